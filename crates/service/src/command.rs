//! Commands of a description that run to their end, within a time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use mallard_procfs::{family, is_alive};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process};

use crate::words::{Placeholders, Words};

/// How often a command is asked whether it has ended: often at first, because most are short.
const FIRST_LOOK_INTERVAL: Duration = Duration::from_millis(1);
const LOOK_INTERVAL_MAX: Duration = Duration::from_millis(20);

/// What a command said, and how it ended; no status if it was killed at its time limit.
pub struct Ended {
    pub status: Option<ExitStatus>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command with these variables.
///
/// Its output goes into memory rather than through a pipe, so a process that it leaves behind does
/// not keep it from ending.
///
/// # Errors
/// It cannot be started.
pub fn run(
    words: &Words,
    place: &Placeholders,
    variables: &[(String, String)],
    limit: Duration,
) -> io::Result<Ended> {
    let memory = || memfd_create("output", MemfdFlags::CLOEXEC).map(File::from);
    let (stdout, stderr) = (memory()?, memory()?);
    let filled = words.filled(place);
    let mut child = Command::new(&filled[0])
        .args(&filled[1..])
        .current_dir(&place.here)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .spawn()?;
    let status = wait(&mut child, limit)?;
    if status.is_none() {
        end(&mut child);
    }
    Ok(Ended {
        status,
        stdout: text(&stdout)?,
        stderr: text(&stderr)?,
    })
}

fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    let mut interval = FIRST_LOOK_INTERVAL;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let Some(left) = limit.checked_sub(begun.elapsed()) else {
            return Ok(None);
        };
        std::thread::sleep(interval.min(left));
        interval = (2 * interval).min(LOOK_INTERVAL_MAX);
    }
}

/// How long a process that was killed may take to be gone.
const GONE_TIMEOUT: Duration = Duration::from_secs(5);

/// Kills a command with all that it started, and waits until they are gone.
fn end(child: &mut Child) {
    let family = stopped(child.id());
    for process in &family {
        send(*process, Signal::KILL);
    }
    let _ = child.wait();
    let begun = Instant::now();
    while family.iter().any(|process| is_alive(*process)) && begun.elapsed() < GONE_TIMEOUT {
        std::thread::sleep(FIRST_LOOK_INTERVAL);
    }
}

/// Stops a process with all that it started, and returns them. Each is stopped before its children
/// are looked for, so that it starts none in between.
fn stopped(pid: u32) -> Vec<u32> {
    let mut family = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < GONE_TIMEOUT {
        let mut new = family::of(pid);
        new.retain(|process| !family.contains(process));
        if new.is_empty() {
            break;
        }
        for process in &new {
            send(*process, Signal::STOP);
        }
        family.extend(new);
    }
    family
}

/// Sends a signal to a process, which may have ended on its own.
pub fn send(process: u32, signal: Signal) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let _ = pid.map(|pid| kill_process(pid, signal));
}

/// The text of a file from its beginning; a process that still writes keeps its place.
fn text(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Ended {
        let place = Placeholders {
            folder: "/".into(),
            base: "/".into(),
            port: 7,
            seconds: 1,
            here: "/".into(),
        };
        let variables = [("WORD".to_owned(), "spoken".to_owned())];
        run(&Words::Shell(script.to_owned()), &place, &variables, limit).unwrap()
    }

    /// More than any of these commands needs.
    const AMPLE: Duration = Duration::from_secs(60);

    #[test]
    fn a_command_has_its_variables_and_may_leave_a_process_behind() {
        let ended = shell("echo $WORD; echo no >&2; sleep 60 & echo $!; exit 3", AMPLE);
        assert_eq!(ended.status.and_then(|status| status.code()), Some(3));
        let (word, left) = ended.stdout.trim().split_once('\n').unwrap();
        assert_eq!((word, ended.stderr.as_str()), ("spoken", "no\n"));
        let left = left.parse().ok().and_then(Pid::from_raw).unwrap();
        kill_process(left, Signal::KILL).expect("it runs on");
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_all_that_it_started() {
        let ended = shell("sleep 60 & echo $!; wait", Duration::from_secs(3));
        assert_eq!(ended.status, None);
        // The line is missing only if the shell could not even start within that time.
        if let Ok(started) = ended.stdout.trim().parse::<u32>() {
            assert!(!is_alive(started), "it is not gone");
        }
    }

    #[test]
    fn a_command_that_is_killed_while_it_starts_others_leaves_none() {
        let script = "for i in 1 2 3 4 5 6 7 8 9 10; do for j in 1 2 3 4 5 6 7 8 9 10; do \
                      sleep 60 & echo $!; done; done; wait";
        let ended = shell(script, Duration::from_millis(20));
        assert_eq!(ended.status, None);
        let started = ended.stdout.lines().flat_map(str::parse::<u32>);
        let left: Vec<u32> = started.filter(|process| is_alive(*process)).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
