//! Processes that end in unusual ways, under `mallard leak` and `mallard run`.

use std::fs;

use assert_cmd::Command;
use serde_json::Value;

use crate::place::*;

/// `main` ends before another thread, which leaks. The argument says how that ends, or that it runs
/// the program anew.
const THREADS: &str = r#"
    #include <pthread.h>
    #include <signal.h>
    #include <stdlib.h>
    #include <unistd.h>
    void *volatile sink;
    static char how;
    __attribute__((noinline)) void thread_leak(void) {
        for (int i = 0; i < 100; i++) sink = malloc(300);
    }
    static void *work(void *unused) {
        (void)unused;
        if (how == 'n') execl("/proc/self/exe", "threads", "return", (char *)0);
        usleep(200000);
        thread_leak();
        if (how == 's') raise(SIGTERM);
        if (how == '_') _exit(4);
        return 0;
    }
    int main(int count, char **words) {
        pthread_t thread;
        how = count > 1 ? words[1][0] : 'r';
        if (pthread_create(&thread, 0, work, 0) != 0) return 9;
        if (how == 'n') pause();
        pthread_exit(0);
    }
"#;

const FLAGS: [&str; 4] = ["-g", "-O1", "-fno-builtin", "-pthread"];
const OPTIONS: &str = "prof:true,prof_final:true,lg_prof_sample:0";

/// How the thread ends, and the exit code of the program.
const ENDS: [(&str, i32); 4] = [
    ("return", 0),
    ("_exit", 4),
    ("signal", 128 + 15),
    ("new", 0),
];

#[test]
fn a_process_ends_with_its_last_thread() {
    let place = Place::new();
    let program = place.compile("threads", THREADS, &FLAGS);
    for (how, code) in ENDS {
        let words = ["leak", "--wait", "0", "--", program.to_str().unwrap(), how];
        let code = if code == 0 { FAILED } else { code };
        let (stdout, _) = place.mallard(&words).exits(code);
        if stdout.contains("tracing is not permitted") {
            return mallard_testing::skipped(stdout);
        }
        assert!(
            stdout.contains("31.2 KiB") && stdout.contains("thread_leak"),
            "{how}: {stdout}"
        );
    }
}

#[test]
fn a_run_leaves_one_profile_of_a_process_that_ends_with_its_last_thread() {
    let place = Place::new();
    let program = place.compile("threads", THREADS, &FLAGS);
    for (how, code) in ENDS {
        let words = [
            "run",
            "--conf",
            OPTIONS,
            "--",
            program.to_str().unwrap(),
            how,
        ];
        let (status, _, stderr) = outcome(&mut place.mallard(&words));
        assert_eq!(status.unwrap_or(128 + 15), code, "{how}: {stderr}");
        let entries = fs::read_dir(place.path()).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        let written: Vec<String> = names.filter(|name| name.starts_with("jeprof.")).collect();
        if written.is_empty() && how != "return" && stderr.is_empty() {
            return mallard_testing::skipped("tracing is not permitted");
        }
        assert_eq!(written.len(), 1, "{how}: {written:?}: {stderr}");
        let words = ["profile", "--text", &written[0]];
        let (stdout, _) = place.mallard(&words).exits(SUCCESS);
        assert!(stdout.contains("thread_leak"), "{how}: {stdout}");
        fs::remove_file(place.path().join(&written[0])).unwrap();
    }
}

#[test]
fn a_name_that_no_process_has_is_an_error() {
    let place = Place::new();
    let words = ["leak", "--only", "nowhere", "--", "sh", "-c", "exit 0"];
    let (_, stderr) = place.mallard(&words).exits(FAILED);
    assert!(
        stderr.contains("no process of nowhere was seen; seen: sh"),
        "{stderr}"
    );
    let words = ["leak", "--only", "nowhere", "--", "sh", "-c", "exit 7"];
    place.mallard(&words).exits(7);
}

#[test]
fn the_json_says_which_processes_do_not_count() {
    let place = Place::new();
    let program = place.compile("threads", THREADS, &FLAGS);
    let script = format!("{} return; exit 0", program.display());
    let words = ["leak", "--json", "--", "sh", "-c", &script];
    let (stdout, _) = place.mallard(&words).exits(FAILED);
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    let of = |place: usize, field: &str| answer["processes"][place][field].clone();
    assert_eq!(
        (of(0, "left_out"), of(0, "bytes")),
        (true.into(), Value::Null),
        "{stdout}"
    );
    assert_eq!(of(1, "left_out"), false, "{stdout}");
    assert!(of(1, "bytes").as_f64() >= Some(32000.0), "{stdout}");
}

#[test]
fn a_reader_of_what_the_program_wrote_does_not_wait_for_other_processes() {
    // The process that outlives the program has closed the pipe.
    const SCRIPT: &str = r#"
        { "$MALLARD" run --conf "$OPTIONS" -- sh -c '
            (while [ -d "$PWD" ] && [ ! -e end ]; do sleep 0.02; done) 3>&- 2>&- &
            exit 0' 3>&1 >/dev/null; } | timeout 60 cat
        code=$?
        touch end
        exit $code
    "#;
    let place = Place::new();
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT]).current_dir(place.path());
    command.env("MALLARD", env!("CARGO_BIN_EXE_mallard"));
    command.env("OPTIONS", OPTIONS);
    command.exits(SUCCESS);
}

#[test]
fn the_wait_is_for_programs() {
    let words = ["profile", "--wait", "1s", "some.heap"];
    let (_, stderr) = Place::new().mallard(&words).exits(USAGE);
    assert!(stderr.contains("--wait is for programs"), "{stderr}");
}
