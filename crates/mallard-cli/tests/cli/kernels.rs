//! The lab on the system calls of older kernels (`crates/e2e/programs/older-kernel.c`).

use std::path::Path;

use assert_cmd::Command;

use crate::place::*;

const KERNELS: [&str; 3] = ["3.10", "4.14", "5.4"];
const LAUNCHER: &str = include_str!("../../../e2e/programs/older-kernel.c");

/// Threads that allocate, and a child; as many rounds as it is told.
const PROGRAM: &str = r#"
    #include <pthread.h>
    #include <stdlib.h>
    #include <sys/wait.h>
    #include <unistd.h>
    void *volatile kept;
    int rounds = 1;
    static void *work(void *unused) {
        (void)unused;
        for (int i = 0; i < rounds * 20000; i++) {
            free(kept = malloc(100 + i % 900));
        }
        kept = malloc(100000);
        return 0;
    }
    int main(int count, char **arguments) {
        if (count > 1) rounds = atoi(arguments[1]);
        pthread_t thread;
        if (pthread_create(&thread, 0, work, 0) != 0) return 9;
        pid_t child = fork();
        if (child == 0) { work(0); _exit(0); }
        int status;
        waitpid(child, &status, 0);
        pthread_join(thread, 0);
        return status;
    }
"#;

/// The lab, as if the kernel were of that release.
fn mallard(launcher: &Path, kernel: &str, place: &Place, line: &str) -> Command {
    let mut command = Command::new(launcher);
    command.current_dir(place.path()).arg(kernel);
    command.arg(assert_cmd::cargo::cargo_bin("mallard"));
    command.args(typed(line)).env_remove("MALLOC_CONF");
    command
}

/// Runs `diagnose` for long enough to be sampled. Its answer is the machine's.
#[track_caller]
fn diagnose(launcher: &Path, kernel: &str, place: &Place, command: &str) {
    let line = format!("{command} ./program 500");
    let (code, told, said) = outcome(&mut mallard(launcher, kernel, place, &line));
    assert!(
        matches!(code, Some(SUCCESS | CANNOT_TELL)),
        "Linux {kernel}: {code:?}: {told}{said}"
    );
    assert!(
        told.contains("memory ") && !told.contains(" 0 samples"),
        "Linux {kernel}: {told}"
    );
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn old_kernels_have_the_system_calls_that_the_lab_needs() {
    let place = Place::new();
    let launcher = place.compile("older-kernel", LAUNCHER, &[]);
    place.compile(
        "program",
        PROGRAM,
        &["-g", "-O1", "-fno-builtin", "-pthread"],
    );
    let (code, _, said) = outcome(&mut mallard(&launcher, "5.4", &place, "--version"));
    if code == Some(NOT_EXECUTABLE) {
        return mallard_testing::skipped(said);
    }
    for kernel in KERNELS {
        let exits = |line: &str| mallard(&launcher, kernel, &place, line).exits(SUCCESS);
        let (_, said) = exits("run --conf confirm_conf:short -- ./program");
        assert!(said.contains("mallard: version"), "Linux {kernel}: {said}");
        let (told, _) = exits("profile -- ./program");
        assert!(told.contains("work"), "Linux {kernel}: {told}");
        let (_, said) = exits("record ./program");
        assert!(said.contains(" 0 dropped"), "Linux {kernel}: {said}");
        diagnose(&launcher, kernel, &place, "diagnose --quick");
    }
    // Counting system calls needs seccomp as of Linux 5.5: the report says so. The command asks the
    // kernel for its release, which is the real one, and then for the filter, which is missing.
    diagnose(&launcher, "3.10", &place, "diagnose");
    let page = place.text("mallard-results/diagnose-program/diagnose.html");
    assert!(page.contains("refused (seccomp: "), "{page}");
}
