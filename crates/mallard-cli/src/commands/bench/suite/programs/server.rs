//! Functions for the drivers of servers: wait until the server answers, run a client to its end,
//! and read the server's memory.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use mallard_procfs::is_alive;
use mallard_procfs::memory::Rollup;
use rustix::process::{Pid, Signal, kill_process};

use super::installed;

/// A server that has not answered after this time hangs.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server stays idle before its final memory is read, so that allocators have time to
/// return memory.
pub const IDLE_TIME: Duration = Duration::from_secs(1);

/// Calls `ask` until it returns true. An error is a sentence.
pub fn wait_until(pid: u32, mut answers: impl FnMut() -> bool) -> Result<(), String> {
    let start = Instant::now();
    loop {
        if answers() {
            return Ok(());
        }
        if !is_alive(pid) {
            return Err("the server ended before it answered a request".to_owned());
        }
        if start.elapsed() > START_TIMEOUT {
            let seconds = START_TIMEOUT.as_secs();
            return Err(format!("the server did not answer within {seconds} s"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A client of a server. It runs in the row's folder, so that the path of the socket is short.
pub fn driver(name: &str, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(installed::path_or_name(name));
    command.args(arguments).current_dir(folder);
    command.stdin(Stdio::null());
    command
}

/// Runs a client to its end and returns its output. An error is a sentence.
pub fn answer(name: &str, folder: &Path, arguments: &[&str]) -> Result<String, String> {
    answer_within(name, folder, arguments, None)
}

/// Like [`answer`], but interrupts the client after `limit`, as Ctrl-C does, so that it prints its
/// figures. A client that does not end then is killed.
pub fn answer_within(
    name: &str,
    folder: &Path,
    arguments: &[&str],
    limit: Option<Duration>,
) -> Result<String, String> {
    answer_or_kill(name, folder, arguments, limit, END_TIMEOUT)
}

/// How long an interrupted client may take to print what it has.
const END_TIMEOUT: Duration = Duration::from_secs(10);

fn answer_or_kill(
    name: &str,
    folder: &Path,
    arguments: &[&str],
    limit: Option<Duration>,
    grace: Duration,
) -> Result<String, String> {
    let mut command = driver(name, folder, arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command
        .spawn()
        .map_err(|error| format!("cannot start {name}: {error}"))?;
    let id = child.id();
    let (done, end) = mpsc::channel::<()>();
    if let Some(limit) = limit {
        std::thread::spawn(move || {
            let still_runs = |time| end.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            if still_runs(limit) {
                signal(id, Signal::INT);
                if still_runs(grace) {
                    signal(id, Signal::KILL);
                }
            }
        });
    }
    let output = child.wait_with_output();
    drop(done);
    let output = output.map_err(|error| format!("cannot wait for {name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.trim().lines().last().unwrap_or("no error message");
    Err(format!("{name} ended with {}: {last}", output.status))
}

/// Asks a server to finish its current requests and end.
pub fn quit(pid: u32) {
    signal(pid, Signal::QUIT);
}

fn signal(id: u32, signal: Signal) {
    let id = i32::try_from(id).ok().and_then(Pid::from_raw);
    if let Some(id) = id {
        // The server may have ended on its own.
        let _ = kill_process(id, signal);
    }
}

/// The memory of a server at this moment. An error is a sentence.
pub fn memory(pid: u32) -> Result<Rollup, String> {
    Rollup::of(pid).map_err(|error| format!("the server's memory cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_process_is_read_and_that_of_none_is_an_error() {
        assert!(memory(std::process::id()).unwrap().rss > 1 << 20);
        let error = memory(u32::MAX).unwrap_err();
        assert!(error.contains("cannot be read"), "{error}");
    }

    #[test]
    fn waiting_ends_with_the_server() {
        let mut server = Command::new("true").spawn().unwrap();
        let error = wait_until(server.id(), || false).unwrap_err();
        assert!(error.contains("ended before"), "{error}");
        server.wait().unwrap();
    }

    #[test]
    fn the_message_of_a_failing_client_is_reported() {
        let script = "echo first >&2; echo the reason >&2; exit 3";
        let error = answer("sh", Path::new("/"), &["-c", script]).unwrap_err();
        assert!(
            error.contains("exit status: 3") && error.ends_with("the reason"),
            "{error}"
        );
        // Tests in the background of a script ignore the signal, and so would the shell. A handler
        // is not inherited.
        let _ = ctrlc::set_handler(|| {});
        let script = "trap 'echo done; exit 0' INT; while :; do sleep 0.01; done";
        // On a busy machine it may take the shell long to get as far as its trap.
        let patient = |answer: &dyn Fn(Duration) -> Result<String, String>| {
            [100, 1_000, 10_000, 100_000]
                .into_iter()
                .map(|ms| answer(Duration::from_millis(ms)))
                .find(|answer| !matches!(answer, Err(error) if error.contains("signal: 2")))
                .expect("it gets that far")
        };
        let words = ["-c", script];
        let reported = patient(&|time| answer_within("sh", Path::new("/"), &words, Some(time)));
        assert_eq!(reported.unwrap(), "done\n");
        let deaf = "trap '' INT; while :; do sleep 0.01; done";
        let words = ["-c", deaf];
        let error = patient(&|time| answer_or_kill("sh", Path::new("/"), &words, Some(time), time));
        let error = error.unwrap_err();
        assert!(error.contains("signal: 9"), "{error}");
    }
}
