//! `mallard top`, and `mallard profile --start`, on running programs.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mallard_testing::{lacks, skipped};
use serde_json::Value;

use crate::place::*;

/// Holds more than 32 MiB, renews a part of it, and allocates until its standard input ends.
const WATCHED: &str = r#"
    #include <poll.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    int main(void) {
        enum { HELD = 1024, RENEWED = 300 };
        static void *held[HELD], *some[3000];
        for (int i = 0; i < HELD; i++) memset(held[i] = malloc(65536), 1, 65536);
        for (int next = 0;;) {
            // Once sampling is on, some of these are sampled and live. The others stay unsampled.
            for (int i = 0; i < 16; i++, next = (next + 1) % RENEWED) {
                free(held[next]);
                memset(held[next] = malloc(65536), 1, 65536);
            }
            for (int size = 48; size < 20000; size *= 2) {
                for (int i = 0; i < 3000; i++) some[i] = malloc(size);
                for (int i = 0; i < 3000; i++) free(some[i]);
            }
            struct pollfd in = {.fd = 0, .events = POLLIN};
            char byte;
            if (poll(&in, 1, 5) > 0 && read(0, &byte, 1) <= 0) return 0;
        }
    }
"#;
const TIMEOUT: Duration = Duration::from_secs(60);

struct Watched(Child);

impl Watched {
    fn start(place: &Place, options: &str) -> Watched {
        Watched::run(&place.compile("watched", WATCHED, &["-O1"]), options)
    }

    /// Runs what is compiled. A program that starts must not be compiled again meanwhile.
    fn run(program: &Path, options: &str) -> Watched {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("mallard"));
        command.args(["run", "--conf", options, "--"]).arg(program);
        Watched(command.stdin(Stdio::piped()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

fn json(place: &Place, pid: &str) -> Option<Value> {
    let words = ["top", "--json", "--interval", "0.3", pid];
    let (code, stdout, _) = outcome(&mut place.mallard(&words));
    (code == Some(SUCCESS)).then(|| serde_json::from_str(&stdout).unwrap())
}

/// The JSON of a process once this holds.
fn json_until(place: &Place, pid: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        if let Some(value) = json(place, pid).filter(&holds) {
            return value;
        }
        assert!(begun.elapsed() < TIMEOUT, "{:?}", json(place, pid));
    }
}

#[test]
fn scripts_get_a_table_or_json() {
    let place = Place::new();
    let mut watched = Watched::start(&place, "export_stats:true");
    let pid = watched.pid();
    // Two looks at one publication tell no rate, or none in between.
    let value = json_until(&place, &pid, |v| {
        v["allocated"].as_u64() >= Some(32 << 20) && v["taken_per_second"].as_f64() > Some(100.0)
    });
    assert_eq!(
        (value["name"].as_str(), value["takes_requests"].as_bool()),
        (Some("watched"), Some(true))
    );
    assert!(value["rss"].as_u64() > Some(32 << 20), "{value}");
    let classes = value["classes"].as_array().unwrap();
    assert!(
        classes
            .iter()
            .any(|c| c["size"] == 65536 && c["blocks"].as_u64() >= Some(512)),
        "{value}"
    );

    let words = [
        "top",
        "--once",
        "--interval",
        "0.2",
        "--match",
        "watched",
        &pid,
    ];
    let stdout = place.mallard(&words).exits(SUCCESS).0;
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{stdout}");
    assert!(lines[0].trim_start().starts_with("PID COMMAND"), "{stdout}");
    assert!(
        lines[1].contains(&pid) && lines[1].contains("watched"),
        "{stdout}"
    );
    drop(watched.0.stdin.take());
    wait_for_end(&watched.0);
    let (code, stdout, stderr) =
        outcome(&mut place.mallard(&["top", "--once", "--interval", "0.1", &pid]));
    watched.end();
    assert_eq!(code, Some(FAILED), "{stdout}");
    assert!(
        stderr.contains(&format!("there is no process {pid}")),
        "{stderr}"
    );
}

#[test]
fn a_core_file_that_is_none_is_told_in_a_line() {
    let place = Place::new();
    for (file, why) in [
        ("/bin/true", "/bin/true is not a core file"),
        ("missing", "cannot read missing: No such file or directory"),
    ] {
        let stderr = place.mallard(&["top", "--core", file]).exits(FAILED).1;
        assert!(stderr.starts_with(&format!("error: {why}")), "{stderr}");
        assert_eq!(
            stderr.matches("No such").count(),
            why.matches("No such").count()
        );
    }
}

#[test]
fn sampling_is_switched_on_and_off_from_outside() {
    let place = Place::new();
    let watched = Watched::start(&place, "export_stats:true");
    let pid = watched.pid();
    json_until(&place, &pid, |v| v["allocated"].as_u64() >= Some(32 << 20));
    let (code, stdout, stderr) =
        outcome(&mut place.mallard(&["profile", "--start", &pid, "--lg-sample", "14"]));
    assert_eq!(
        (code, stdout),
        (Some(SUCCESS), format!("process {pid} samples now\n")),
        "{stderr}"
    );
    let value = json_until(&place, &pid, |v| v["is_sampling"] == 1);
    assert_eq!(value["lg_sample"], 14);
    let table = place.mallard(&["profile", "--text", &pid]).exits(SUCCESS).0;
    // What was allocated before is not in the profile; the first line says so.
    let head = table.lines().next().unwrap_or_default();
    assert!(head.contains(" MiB allocated"), "{head}");
    place
        .mallard(&["profile", "--stop", &pid])
        .assert()
        .code(SUCCESS);
    json_until(&place, &pid, |v| v["is_sampling"] == 0);
    watched.end();
}

#[test]
fn a_profile_is_written_by_the_process_itself_when_it_is_asked() {
    let place = Place::new();
    let prefix = place.path().join("asked");
    let options = format!(
        "export_stats:true,prof:true,prof_prefix:{}",
        prefix.display()
    );
    let watched = Watched::start(&place, &options);
    let pid = watched.pid();
    json_until(&place, &pid, |v| v["allocated"].as_u64() >= Some(32 << 20));
    let (code, stdout, stderr) = outcome(&mut place.mallard(&["profile", "--dump", &pid]));
    assert_eq!(
        (code, stdout),
        (Some(SUCCESS), format!("process {pid} wrote a profile\n")),
        "{stderr}"
    );
    let written = format!("asked.{pid}.0.m0.heap");
    assert!(place.text(&written).starts_with("heap_v2/"));
    watched.end();
}

#[test]
fn a_process_without_a_shared_page_is_not_written_to_unless_allowed() {
    let place = Place::new();
    let watched = Watched::start(&place, "export_stats:auto");
    let pid = watched.pid();
    json_until(&place, &pid, |v| v["allocated"].as_u64() >= Some(32 << 20));
    let stderr = place.mallard(&["profile", "--start", &pid]).exits(FAILED).1;
    assert!(stderr.contains("--write-memory"), "{stderr}");
    place
        .mallard(&["profile", "--start", &pid, "--write-memory"])
        .assert()
        .code(SUCCESS);
    json_until(&place, &pid, |v| v["is_sampling"] == 1);
    watched.end();
}

#[test]
fn another_user_reads_nothing() {
    let place = Place::new();
    let watched = Watched::start(&place, "export_stats:true");
    let pid = watched.pid();
    json_until(&place, &pid, |v| v["allocated"].as_u64() >= Some(32 << 20));
    const NOBODY: u32 = 65534;
    for (words, told) in [
        (
            &["top", "--json", "--interval", "0.1", &pid][..],
            "another user",
        ),
        (
            &["profile", "--text", &pid],
            "run this as that user or as root",
        ),
        (&["profile", "--start", &pid], "another user"),
    ] {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("mallard"));
        match command.args(words).uid(NOBODY).gid(NOBODY).output() {
            Ok(output) => {
                assert!(output.stdout.is_empty());
                let stderr = String::from_utf8_lossy(&output.stderr);
                assert!(stderr.contains(told), "{words:?}: {stderr}");
                assert_eq!(stderr.lines().count(), 1, "{words:?}: {stderr}");
            }
            Err(error) => skipped(format_args!(
                "another user cannot run the command here: {error}"
            )),
        }
    }
    watched.end();
}

/// A terminal of tmux, 80 columns wide.
struct Terminal(String);

impl Terminal {
    fn tmux(&self, words: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-L", &self.0])
            .args(words)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn start(name: &str, command: &str) -> Terminal {
        let terminal = Terminal(format!("{name}-{}", std::process::id()));
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "80",
            "-y",
            "24",
            command,
        ]);
        terminal
    }

    fn until(&self, what: &str) -> String {
        self.until_one_of(&[what])
    }

    fn until_one_of(&self, these: &[&str]) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.tmux(&["capture-pane", "-p"]);
            if these.iter().any(|what| screen.contains(what)) {
                return screen;
            }
            assert!(begun.elapsed() < TIMEOUT, "none of {these:?} in:\n{screen}");
            sleep(Duration::from_millis(50));
        }
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Presses the key of a request, waits for the answer, and returns whether it came in time. A
    /// busy process may answer after the screen's patience has ended; the request stays.
    fn request(&self, key: &str, done: &str) -> bool {
        self.press(key);
        self.until_one_of(&[done, LATE]).contains(done)
    }
}

/// The screen's words on a request that stays.
const LATE: &str = "has not answered yet";

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn a_person_watches_two_processes_on_a_terminal() {
    if lacks(&["tmux"]) {
        return;
    }
    let place = Place::new();
    let program = place.compile("watched", WATCHED, &["-O1"]);
    let watched = Watched::run(&program, "export_stats:true");
    let other = Watched::run(&program, "export_stats:true");
    // Numbers of processes start again from the lowest some time.
    let (watched, other) = if watched.0.id() < other.0.id() {
        (watched, other)
    } else {
        (other, watched)
    };
    let (pid, other_pid) = (watched.pid(), other.pid());
    json_until(&place, &pid, |v| v["allocated"].as_u64() >= Some(32 << 20));
    json_until(&place, &other_pid, |v| {
        v["allocated"].as_u64() >= Some(32 << 20)
    });
    let binary = assert_cmd::cargo::cargo_bin("mallard");
    let command = format!(
        "NO_COLOR=1 {} top -i 0.2 -s pid {pid} {other_pid}",
        binary.display()
    );
    let terminal = Terminal::start("mallard-top", &command);
    let screen = terminal.until("2 processes on Mallard");
    assert!(
        screen.contains(&pid) && screen.contains("watched"),
        "{screen}"
    );
    assert!(
        screen.lines().all(|line| line.chars().count() <= 80),
        "{screen}"
    );
    // Sampling, by a key.
    terminal.request("P", "samples now");
    terminal.until("512K");
    terminal.press("Enter");
    terminal.until("an upper bound of the sum");
    terminal.press("c");
    terminal.until("BLOCKS");
    terminal.press("l");
    terminal.until("LONGEST");
    // Blocks that were there before sampling began have no sample.
    terminal.press("p");
    terminal.until(" SITE");
    terminal.until("main");
    let begun = Instant::now();
    while !terminal.request("R", "returned its free memory") {
        assert!(begun.elapsed() < TIMEOUT);
        sleep(Duration::from_millis(500));
    }
    // The process whose details are shown ends.
    watched.end();
    terminal.until("has ended");
    terminal.until("1 process on Mallard");
    terminal.press("q");
    let begun = Instant::now();
    while !terminal.tmux(&["list-sessions"]).is_empty() {
        assert!(begun.elapsed() < TIMEOUT);
        sleep(Duration::from_millis(50));
    }
    other.end();
}
