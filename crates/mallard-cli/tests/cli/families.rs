//! `mallard leak`, `mallard profile -- PROGRAM` and `mallard run` on programs that start processes.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::place::*;

/// Three children leak and end as the argument says. The parent frees what it has, which the
/// children have from it.
const CHILDREN: &str = r#"
    #include <signal.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <unistd.h>
    void *volatile sink;
    __attribute__((noinline)) void *held_by_parent(void) { return malloc(1000000); }
    __attribute__((noinline)) void child_leak(void) {
        for (int i = 0; i < 100; i++) sink = malloc(300);
    }
    int main(int count, char **words) {
        char how = count > 1 ? words[1][0] : 'e';
        void *held = held_by_parent();
        for (int k = 0; k < 3; k++)
            if (fork() == 0) {
                child_leak();
                if (how == 's') raise(SIGTERM);
                if (how == '_') _exit(4);
                exit(0);
            }
        while (wait(0) > 0) {}
        free(held);
        return 0;
    }
"#;

/// Leaves a daemon behind that leaks, and goes on while the file exists that the argument names,
/// but no longer than ten minutes.
const DAEMON: &str = r#"
    #include <fcntl.h>
    #include <stdlib.h>
    #include <unistd.h>
    void *volatile sink;
    __attribute__((noinline)) void work(void) { for (int i = 0; i < 100; i++) sink = malloc(300); }
    int main(int count, char **words) {
        (void)count;
        int ready[2];
        char word;
        if (pipe(ready) != 0) return 9;
        if (fork()) { if (read(ready[0], &word, 1) != 1) return 9; _exit(0); }
        setsid();
        if (chdir("/") != 0) return 9;
        int null = open("/dev/null", O_RDWR);
        for (int i = 0; i < 3; i++) if (dup2(null, i) != i) return 9;
        work();
        if (write(ready[1], "x", 1) != 1) return 9;
        for (int i = 0; i < 60000 && access(words[1], F_OK) == 0; i++) usleep(10000);
        work();
        exit(0);
    }
"#;

const FLAGS: [&str; 3] = ["-g", "-O1", "-fno-builtin"];

/// Whether the system lets the lab trace, by what it says.
fn is_traced(stdout: &str) -> bool {
    let refused = stdout.contains("tracing is not permitted");
    if refused {
        mallard_testing::skipped(stdout);
    }
    !refused
}

#[test]
fn children_have_their_own_leaks_however_they_end() {
    let place = Place::new();
    let program = place.compile("children", CHILDREN, &FLAGS);
    let program = program.to_str().unwrap();
    for (how, end) in [
        ("exit", "exit code 0"),
        ("_exit", "exit code 4"),
        ("signal", "SIGTERM"),
    ] {
        let (stdout, _) = place.mallard(&["leak", "--", program, how]).exits(FAILED);
        if !is_traced(&stdout) {
            return;
        }
        assert!(stdout.starts_with("children ("), "{stdout}");
        for words in [
            " and 3 more processes: 93.8 KiB never freed, in 3 of them\n",
            "children, 3 processes with the same leaks (",
            "31.2 KiB at 1 site never freed",
            "child_leak",
        ] {
            assert!(stdout.contains(words), "{how}: {words}: {stdout}");
        }
        let ended = stdout
            .lines()
            .filter(|line| line.ends_with(end) && line.contains("31.2 KiB"));
        assert_eq!(ended.count(), 3, "{how}: {stdout}");
        assert!(!stdout.contains("held_by_parent"), "{how}: {stdout}");
    }
}

#[test]
fn what_a_shell_starts_leaks_and_the_shell_itself_does_not_count() {
    let place = Place::new();
    let program = place.compile("children", CHILDREN, &FLAGS);
    let script = format!("{0} exit && {0} _exit && true", program.display());
    let words = ["leak", "--by-program", "--", "sh", "-c", &script];
    let (stdout, _) = place.mallard(&words).exits(FAILED);
    if !is_traced(&stdout) {
        return;
    }
    assert!(stdout.starts_with("sh ("), "{stdout}");
    assert!(
        stdout.contains("a shell; what it holds for itself does not count"),
        "{stdout}"
    );
    assert!(
        stdout.contains("children, 6 processes together: 188 KiB at 1 site"),
        "{stdout}"
    );
    let quiet = ["leak", "--suppress", "child_*", "--", "sh", "-c", &script];
    let (stdout, _) = place.mallard(&quiet).exits(SUCCESS);
    assert!(
        stdout.contains(" and 8 more processes: no leaks\n"),
        "{stdout}"
    );
}

#[test]
fn the_json_has_the_leaks_of_all_and_of_each() {
    let place = Place::new();
    let program = place.compile("children", CHILDREN, &FLAGS);
    let program = program.to_str().unwrap();
    let (stdout, _) = place
        .mallard(&["leak", "--json", "--", program, "_exit"])
        .exits(FAILED);
    if !is_traced(&stdout) {
        return;
    }
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(answer["schema"], 1);
    assert_eq!(answer["leaks"][0]["bytes"], 3.0 * 100.0 * 320.0, "{stdout}");
    let processes = answer["processes"].as_array().unwrap();
    let bytes: Vec<f64> = processes
        .iter()
        .map(|it| it["bytes"].as_f64().unwrap())
        .collect();
    assert_eq!(bytes, [0.0, 32000.0, 32000.0, 32000.0], "{stdout}");
    for child in &processes[1..] {
        assert_eq!(child["parent"], processes[0]["pid"], "{stdout}");
        assert_eq!(
            (&child["exit_code"], &child["signal"]),
            (&4.into(), &Value::Null)
        );
        assert_eq!(
            child["leaks"][0]["site"], "child_leak (children.c)",
            "{stdout}"
        );
    }
}

/// The program [`DAEMON`], and the file while which its daemon goes on. The file is in the folder
/// of the test: no daemon outlives that.
fn daemon(place: &Place) -> (String, PathBuf) {
    let program = place.compile("daemon", DAEMON, &FLAGS);
    let goes_on = place.path().join("goes-on");
    fs::write(&goes_on, "").unwrap();
    (program.to_str().unwrap().to_owned(), goes_on)
}

/// Looks for leaks with these options, and ends the daemon once it is waited for.
fn leak_of_daemon(options: &[&str]) -> (String, String) {
    let place = Place::new();
    let (program, goes_on) = daemon(&place);
    let line = ["--wait", "10m", "--", &program, goes_on.to_str().unwrap()];
    let words = [&["leak"], options, &line].concat();
    let message = "waiting up to 10m for daemon (";
    let end = || fs::remove_file(&goes_on).unwrap();
    let (code, stdout, stderr) = place.act_at_line(&words, message, |_| end());
    assert_eq!(code, Some(FAILED), "{stdout}\n{stderr}");
    assert!(stderr.contains(message), "{stderr}");
    assert!(
        stdout.contains(" and 1 more process: 62.5 KiB never freed, in one of them"),
        "{stdout}"
    );
    (stdout, stderr)
}

#[test]
fn processes_are_found_without_tracing_as_well() {
    let (stdout, _) = leak_of_daemon(&["--no-trace"]);
    assert!(stdout.contains("note: they were not traced"), "{stdout}");
}

#[test]
fn a_daemon_is_waited_for() {
    let (stdout, stderr) = leak_of_daemon(&[]);
    assert!(stdout.contains("work  "), "{stdout}");
    assert!(!stderr.contains("No such file"), "{stderr}");
}

#[test]
fn a_daemon_that_goes_on_is_named_and_can_be_read_later() {
    let place = Place::new();
    let (program, goes_on) = daemon(&place);
    let words = [
        "leak",
        "--wait",
        "0",
        "--",
        &program,
        goes_on.to_str().unwrap(),
    ];
    let (stdout, _) = place.mallard(&words).exits(FAILED);
    // What it has leaked until then.
    assert!(stdout.contains("31.2 KiB"), "{stdout}");
    assert!(stdout.contains("still runs: `mallard profile "), "{stdout}");
    fs::remove_file(goes_on).unwrap();
    let file = stdout.split("it writes ").nth(1).unwrap();
    let file = PathBuf::from(file.lines().next().unwrap());
    let words = ["profile", "--no-html", file.to_str().unwrap()];
    let begun = Instant::now();
    // It is not there before the daemon's end, and not whole at once.
    let (mut code, mut stdout, mut stderr) = outcome(&mut place.mallard(&words));
    while code != Some(SUCCESS) && begun.elapsed() < LONGEST {
        std::thread::sleep(Duration::from_millis(20));
        (code, stdout, stderr) = outcome(&mut place.mallard(&words));
    }
    assert!(stdout.contains("live 62.5 KiB"), "{stdout}{stderr}");
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn a_profile_shows_each_process_and_all_together() {
    let place = Place::new();
    let program = place.compile("children", CHILDREN, &FLAGS);
    let program = program.to_str().unwrap();
    let words = ["profile", "--rate", "1", "--", program, "_exit"];
    let (stdout, _) = place.mallard(&words).exits(SUCCESS);
    if !is_traced(&stdout) {
        return;
    }
    assert!(stdout.contains(" and 3 more processes\n"), "{stdout}");
    assert!(
        stdout.contains("held_by_parent") && stdout.contains("child_leak"),
        "{stdout}"
    );
    assert!(stdout.contains("\nwrote profile.html ("), "{stdout}");
    let words = [
        "profile",
        "--rate",
        "1",
        "--collapsed",
        "--",
        program,
        "_exit",
    ];
    let (stdout, _) = place.mallard(&words).exits(SUCCESS);
    assert!(stdout.contains("child_leak 96000\n"), "the sum: {stdout}");
}

#[test]
fn a_run_with_profile_options_leaves_profiles_of_all_processes() {
    let place = Place::new();
    let program = place.compile("children", CHILDREN, &FLAGS);
    let program = program.to_str().unwrap();
    let options = "prof:true,prof_final:true,lg_prof_sample:0";
    for (how, end) in [
        ("exit", "exit code 0"),
        ("_exit", "exit code 4"),
        ("signal", "SIGTERM"),
    ] {
        let words = ["run", "--conf", options, "--", program, how];
        let (stdout, stderr) = place.mallard(&words).exits(SUCCESS);
        assert_eq!(stdout, "", "it is the program's own");
        let written = files(&place, "jeprof.");
        if written.len() == 1 && stderr.is_empty() {
            return mallard_testing::skipped("tracing is not permitted");
        }
        assert_eq!(written.len(), 4, "{written:?}: {stderr}");
        let ended = stderr.lines().filter(|line| line.contains(end));
        assert!(ended.count() >= 3, "{how}: {stderr}");
        let words = [
            &["profile", "--text"],
            &written.iter().map(|it| &**it).collect::<Vec<_>>()[..],
        ];
        let (stdout, _) = place.mallard(&words.concat()).exits(SUCCESS);
        assert!(stdout.starts_with("4 profiles together  live "), "{stdout}");
        // Three times what a child has leaked.
        assert!(
            stdout.contains("93.8 KiB") && stdout.contains("child_leak"),
            "{stdout}"
        );
        for file in &written {
            assert!(stderr.contains(file), "{file}: {stderr}");
            fs::remove_file(place.path().join(file)).unwrap();
        }
    }
}

/// The files in the folder whose names begin so.
fn files(place: &Place, start: &str) -> Vec<String> {
    let entries = fs::read_dir(place.path()).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(start)).collect();
    names.sort();
    names
}

#[test]
fn options_of_the_allocator_do_not_act_on_the_lab_itself() {
    let place = Place::new();
    let source = "#include <stdlib.h>\nint main(void) { return malloc(1) == 0; }";
    let program = place.compile("program", source, &FLAGS);
    let program = program.to_str().unwrap();
    let options = "prof:true,prof_final:true,lg_prof_sample:0,stats_print:false";
    for (variable, words) in [
        (Some("MALLOC_CONF"), vec!["run", "--", program]),
        (Some("MALLARD_CONF"), vec!["run", "--", program]),
        (None, vec!["run", "--conf", options, "--", program]),
    ] {
        let mut command = place.mallard(&words);
        if let Some(variable) = variable {
            command.env(variable, options);
        }
        let (_, stderr) = command.exits(SUCCESS);
        let written = files(&place, "jeprof.");
        assert_eq!(written.len(), 1, "{words:?}: {written:?}: {stderr}");
        fs::remove_file(place.path().join(&written[0])).unwrap();
    }
    // Statistics of the probe program alone, which measures nothing here.
    let mut command = place.mallard(&["allocators"]);
    let (stdout, stderr) = command
        .env("MALLOC_CONF", "stats_print:true")
        .exits(SUCCESS);
    assert!(!(stdout + &stderr).contains("Begin"), "no statistics");
}
