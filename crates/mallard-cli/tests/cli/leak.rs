//! `mallard leak` and `mallard profile -- PROGRAM` on small programs.

use mallard_testing::lacks;

use crate::place::*;

/// Leaks once, and with an argument at each of some steps as well.
const LEAKING: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    void *volatile sink;
    __attribute__((noinline)) void *once(void) { return malloc(5000); }
    __attribute__((noinline)) void *step(void) { return malloc(100); }
    int main(int count, char **words) {
        (void)words;
        sink = once();
        if (count > 1)
            for (int i = 0; i < 300; i++) {
                sink = step();
                usleep(3000);
            }
        puts("done");
        return count > 2 ? 7 : 0;
    }
"#;

const CLEAN: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    int main(void) {
        void *volatile block = malloc(100);
        free(block);
        puts("done");
        return 0;
    }
"#;

/// Uses what Rust's runtime keeps until the end, and leaks with an argument.
const RUST: &str = r#"
    use std::hint::black_box;
    #[inline(never)]
    fn enqueue() {
        std::mem::forget(black_box(vec![1u8; 5000]));
    }
    fn main() {
        let worker = std::thread::Builder::new().name("worker".into());
        worker.spawn(|| println!("{:?}", std::thread::current().name())).unwrap().join().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel::<i32>();
        let late = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            drop(sender);
        });
        let _ = receiver.recv();
        late.join().unwrap();
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        let _ = std::panic::catch_unwind(|| panic!("as told"));
        if std::env::args().count() > 1 {
            enqueue();
        }
    }
"#;

/// Leaks in functions with names such as those of the C library.
const NAMESAKE: &str = r#"
    #include <stdlib.h>
    #include <time.h>
    void *volatile sink;
    __attribute__((noinline)) void *dl_enqueue(void) { return malloc(5000); }
    int main(void) {
        time_t now = time(0);
        sink = localtime(&now);
        sink = dl_enqueue();
        return 0;
    }
"#;

/// Holds a block, and ends without a profile: by `_exit` with its first argument, or by a signal.
/// With a second one it can be read before.
const SUDDEN: &str = r#"
    #include <signal.h>
    #include <stdlib.h>
    #include <unistd.h>
    void *volatile sink;
    __attribute__((noinline)) void *held(void) { return malloc(5000); }
    int main(int count, char **words) {
        sink = held();
        if (count > 2)
            sleep(3);
        if (words[1][0] == 's')
            raise(SIGTERM);
        _exit(atoi(words[1]));
    }
"#;

fn run(place: &Place, words: &[&str]) -> (Option<i32>, String, String) {
    outcome(&mut place.mallard(words))
}

#[test]
fn leaks_are_told_by_site_and_those_that_grow_apart() {
    let place = Place::new();
    let program = place.compile("leaking", LEAKING, &["-g", "-O1", "-fno-builtin"]);
    let program = program.to_str().unwrap();
    let (code, stdout, stderr) = run(&place, &["leak", "--", program, "grow"]);
    assert_eq!(code, Some(FAILED), "{stdout}{stderr}");
    assert!(
        stdout.contains("at 2 sites never freed, 1 of them growing"),
        "{stdout}"
    );
    let (growing, others) = stdout.split_once("not growing").unwrap();
    assert!(
        growing.contains("step") && !growing.contains("once"),
        "{stdout}"
    );
    assert!(
        others.contains("once") && !others.contains("step"),
        "{stdout}"
    );

    let quiet = ["leak", "--json", "--suppress", "on*e", "--", program];
    let (code, stdout, stderr) = run(&place, &quiet);
    assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
    assert!(stdout.contains("\"leaks\": []"), "{stdout}");
    assert!(
        stderr.contains("done"),
        "the program's output goes elsewhere: {stderr}"
    );
}

#[test]
fn the_exit_code_is_for_ci() {
    let place = Place::new();
    let leaking = place.compile("leaking", LEAKING, &["-g", "-O1", "-fno-builtin"]);
    let clean = place.compile("clean", CLEAN, &["-g", "-O1", "-fno-builtin"]);
    let (leaking, clean) = (leaking.to_str().unwrap(), clean.to_str().unwrap());
    let code = |words: &[&str]| run(&place, words).0;
    assert_eq!(code(&["leak", "--", clean]), Some(SUCCESS));
    assert_eq!(code(&["leak", "--", leaking]), Some(FAILED));
    assert_eq!(
        code(&["leak", "--min", "6000", "--", leaking]),
        Some(SUCCESS)
    );
    assert_eq!(code(&["leak", "--growing", "--", leaking]), Some(SUCCESS));
    assert_eq!(code(&["leak", "--", leaking, "and", "fail"]), Some(7));
    assert_eq!(code(&["leak"]), Some(USAGE));
    assert_eq!(code(&["leak", "--", "no-such-program"]), Some(NOT_FOUND));
}

#[test]
fn a_program_is_profiled_from_start_to_end() {
    let place = Place::new();
    let leaking = place.compile("leaking", LEAKING, &["-g", "-O1", "-fno-builtin"]);
    let leaking = leaking.to_str().unwrap();
    let words = ["profile", "--no-html", "--rate", "1", "--", leaking];
    let (code, stdout, stderr) = run(&place, &words);
    assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
    assert!(
        stdout.contains("  peak ") && stdout.contains("  live "),
        "{stdout}"
    );
    assert!(stdout.contains("once"), "{stdout}");
    let words = [
        "profile",
        "--no-html",
        "--rate",
        "1",
        "--",
        leaking,
        "and",
        "fail",
    ];
    assert_eq!(run(&place, &words).0, Some(7));
    let (code, _, stderr) = run(&place, &["profile", "999999999"]);
    let expected = "error: there is no process 999999999\n";
    assert_eq!((code, stderr.as_str()), (Some(FAILED), expected));
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_leak_in_rust_is_told_from_what_its_runtime_keeps() {
    if lacks(&["rustc"]) {
        return;
    }
    let place = Place::new();
    // With inlined functions, and with symbols alone as in a release of cargo's.
    for (name, flags) in [
        ("debug", &["-g"][..]),
        ("release", &["-O", "-Cstrip=debuginfo"]),
    ] {
        let program = place.compile_rust(name, RUST, flags);
        let program = program.to_str().unwrap();
        for backtrace in ["0", "1"] {
            let leak = |words: &[&str]| {
                let mut command = place.mallard(&[&["leak", "--", program], words].concat());
                outcome(command.env("RUST_BACKTRACE", backtrace))
            };
            let (code, stdout, stderr) = leak(&[]);
            assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
            assert!(stdout.contains("no leaks"), "{stdout}");
            let (code, stdout, stderr) = leak(&["leak"]);
            assert_eq!(code, Some(FAILED), "{stdout}{stderr}");
            assert!(stdout.contains("at 1 site never freed"), "{stdout}");
            assert!(stdout.contains("enqueue"), "{stdout}");
        }
    }
}

#[test]
fn functions_of_the_program_with_names_of_the_c_library_leak_as_others_do() {
    let place = Place::new();
    let program = place.compile("namesake", NAMESAKE, &["-g", "-O1", "-fno-builtin"]);
    let (code, stdout, stderr) = run(&place, &["leak", "--", program.to_str().unwrap()]);
    assert_eq!(code, Some(FAILED), "{stdout}{stderr}");
    assert!(stdout.contains("at 1 site never freed"), "{stdout}");
    assert!(stdout.contains("dl_enqueue"), "{stdout}");
}

#[test]
fn a_program_that_ends_by_exit_or_a_signal_is_read_at_its_end() {
    let place = Place::new();
    let program = place.compile("sudden", SUDDEN, &["-g", "-O1", "-fno-builtin"]);
    let program = program.to_str().unwrap();
    for (end, code) in [("0", 1), ("7", 7), ("signal", 128 + libc::SIGTERM)] {
        let (found, stdout, stderr) = run(&place, &["leak", "--", program, end]);
        if stdout.contains("tracing is not permitted") {
            return mallard_testing::skipped(stdout);
        }
        assert_eq!(found, Some(code), "{stdout}{stderr}");
        assert!(stdout.contains("at 1 site never freed"), "{stdout}");
        assert!(stdout.contains("held"), "{stdout}");
        assert!(!stdout.contains("read before"), "{stdout}");
    }
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn without_tracing_such_a_program_is_shown_as_it_was_read_before() {
    let place = Place::new();
    let program = place.compile("sudden", SUDDEN, &["-g", "-O1", "-fno-builtin"]);
    let program = program.to_str().unwrap();
    for (end, code) in [("0", 1), ("7", 7), ("signal", 128 + libc::SIGTERM)] {
        let words = ["leak", "--no-trace", "--", program, end, "late"];
        let (found, stdout, stderr) = run(&place, &words);
        assert_eq!(found, Some(code), "{stdout}{stderr}");
        assert!(stdout.contains("at 1 site never freed"), "{stdout}");
        assert!(stdout.contains("held"), "{stdout}");
        assert!(stdout.contains("the last one read before"), "{stdout}");
    }
}

#[test]
fn a_program_that_leaves_nothing_to_read_has_its_own_exit_code() {
    let place = Place::new();
    let program = place.compile("sudden", SUDDEN, &["-g", "-O1", "-fno-builtin"]);
    let program = program.to_str().unwrap();
    for command in [&["leak"][..], &["profile", "--no-html"]] {
        for (end, code) in [("7", 7), ("signal", 128 + libc::SIGTERM)] {
            // The program itself does not run on Mallard.
            let shell = format!("unset LD_PRELOAD; exec {program} {end}");
            let words = [command, &["--", "sh", "-c", &shell]].concat();
            let (found, stdout, stderr) = run(&place, &words);
            assert_eq!(found, Some(code), "{stdout}{stderr}");
        }
    }
}
