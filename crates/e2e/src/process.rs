//! Runs a program until its whole process group has ended. A run that exceeds its time is killed
//! with everything it started, so a deadlock in the allocator becomes a failed test, with the
//! output so far, and never a hang.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use wait_timeout::ChildExt;

/// The result of a finished program.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The command line, for messages.
    pub command: String,
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Outcome {
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The signal that ended the program, if one did.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// Returns the standard output if the program exited with 0.
    ///
    /// # Panics
    /// If it did not exit with 0.
    pub fn expect_success(&self) -> String {
        assert!(self.status.success(), "{}", self.account());
        self.stdout_text()
    }

    /// Returns itself if the program exited with 0, or else an account of how it failed.
    pub fn success(self) -> Result<Outcome, String> {
        if self.status.success() {
            Ok(self)
        } else {
            Err(self.account())
        }
    }

    /// Command, status and the last lines of both streams.
    pub fn account(&self) -> String {
        format!(
            "`{}` ended with {}\n--- its standard output ends:\n{}\n--- its standard error ends:\n{}",
            self.command,
            self.status,
            last_lines(&self.stdout),
            last_lines(&self.stderr)
        )
    }
}

/// Runs the command to its end. Output goes to files rather than pipes, so that a descendant with
/// an open stream cannot block the test.
///
/// # Errors
/// The program cannot be started, or it ran past its limit.
pub fn run(command: &mut Command, limit: Duration) -> Result<Outcome, String> {
    let name = describe(command);
    let scratch =
        || tempfile::tempfile().map_err(|error| format!("cannot make a file for output: {error}"));
    let (mut stdout, mut stderr) = (scratch()?, scratch()?);
    let copy = |file: &File| {
        file.try_clone()
            .map_err(|error| format!("cannot share a file: {error}"))
    };
    command
        .stdout(copy(&stdout)?)
        .stderr(copy(&stderr)?)
        .process_group(0);
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot start `{name}`: {error}"))?;
    let waited = child
        .wait_timeout(limit)
        .map_err(|error| format!("cannot wait for `{name}`: {error}"))?;
    // Also after a clean exit: nothing that a test started may outlive it.
    let group = rustix::process::Pid::from_child(&child);
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let status = match waited {
        Some(status) => status,
        None => child
            .wait()
            .map_err(|error| format!("cannot wait for `{name}`: {error}"))?,
    };
    let outcome = Outcome {
        command: name,
        status,
        stdout: contents(&mut stdout)?,
        stderr: without_the_emulator(contents(&mut stderr)?),
    };
    match waited {
        Some(_) => Ok(outcome),
        None => Err(format!(
            "not over after {} s and killed: {}",
            limit.as_secs(),
            outcome.account()
        )),
    }
}

/// Leaves out what an emulator says when a signal ends its program.
fn without_the_emulator(stderr: Vec<u8>) -> Vec<u8> {
    let lines = stderr.split_inclusive(|&byte| byte == b'\n');
    let own = lines.filter(|line| !line.starts_with(b"qemu: uncaught target signal"));
    own.flatten().copied().collect()
}

/// As [`run`], with the text as the program's standard input.
///
/// # Errors
/// As [`run`].
pub fn run_with_input(
    command: &mut Command,
    input: &[u8],
    limit: Duration,
) -> Result<Outcome, String> {
    use std::io::Write;
    let file = || -> std::io::Result<File> {
        let mut file = tempfile::tempfile()?;
        file.write_all(input)?;
        file.rewind()?;
        Ok(file)
    };
    let file = file().map_err(|error| format!("cannot make a file for input: {error}"))?;
    run(command.stdin(Stdio::from(file)), limit)
}

fn contents(file: &mut File) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .map_err(|error| format!("cannot read a program's output back: {error}"))?;
    Ok(bytes)
}

fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    let line = words.join(" ");
    match line.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn last_lines(bytes: &[u8]) -> String {
    const LINES_MAX: usize = 40;
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
}
