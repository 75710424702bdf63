//! Mallard beside other libraries that are preloaded, and in programs with more rights than their
//! user, where a preload has no effect.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Outcome, Sandbox, target};
use mallard_testing::{lacks, skipped};

/// Runs the command on each build, and returns what it printed, the same on all.
fn on_each(arrange: impl Fn(&Sandbox) -> Command) -> String {
    let mut texts = Library::under_test().iter().map(|library| {
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        let outcome = sandbox.run_own(&mut arrange(&sandbox));
        assert_eq!(outcome.stderr_text(), "", "on the {} build", library.name);
        outcome.expect_success()
    });
    let text = texts.next().expect("at least one build");
    assert!(texts.all(|other| other == text));
    text
}

#[test]
fn time_is_the_kernels_where_the_clock_is_replaced_by_one_that_allocates() {
    let flags = ["-O1", "-shared", "-fPIC"];
    let clock = Source::new("still-clock.c").flags(&flags).compile();
    let program = Source::new("background.c").flags(&["-O1"]).compile();
    for clock_first in [false, true] {
        on_each(|sandbox| {
            let mut command = sandbox.command(&program);
            let preload = command
                .get_envs()
                .find_map(|(name, value)| (name == "LD_PRELOAD").then_some(value?.to_owned()))
                .expect("the sandbox preloads the library");
            let (clock, preload) = (clock.display(), preload.display().to_string());
            let both = if clock_first {
                format!("{clock}:{preload}")
            } else {
                format!("{preload}:{clock}")
            };
            // It waits until freed memory has gone back.
            command.arg("idle").env("LD_PRELOAD", both);
            command.env("MALLOC_CONF", "dirty_decay_ms:500");
            command
        });
    }
}

/// Threads that allocate, and the date that they see.
const PYTHON: &str = "
import threading, time
def work():
    for _ in range(20): blocks = [bytearray(5000) for _ in range(500)]
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(time.strftime('%F'))";

#[test]
fn libfaketime() {
    if target().lacks_host("a library that is preloaded") || lacks(&["faketime", "python3"]) {
        return;
    }
    for time in ["2000-01-01 00:00:00", "@2000-01-01 00:00:00 x10"] {
        let text = on_each(|sandbox| {
            let mut command = sandbox.command("faketime");
            command.args(["-f", time, "python3", "-c", PYTHON]);
            command
        });
        assert_eq!(text, "2000-01-01\n", "at {time}");
    }
}

#[test]
fn fakeroot() {
    if target().lacks_host("a library that is preloaded") || lacks(&["fakeroot"]) {
        return;
    }
    let script = "touch file && chown 12:34 file && stat -c '%u %g' file";
    let text = on_each(|sandbox| {
        let mut command = sandbox.command("fakeroot");
        command.args(["sh", "-c", script]);
        command
    });
    assert_eq!(text, "12 34\n");
}

#[test]
fn heaptrack() {
    if target().lacks_host("a library that is preloaded")
        || lacks(&["heaptrack", "heaptrack_print"])
    {
        return;
    }
    let program = Source::new("raised.c").compile();
    for library in Library::under_test() {
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        let mut command = sandbox.command("heaptrack");
        let run = |command: &mut Command| sandbox.run(command).expect("it ends well");
        run(command.args(["-o", "record"]).arg(&program));
        let file = ["record.zst", "record.gz"].map(|name| sandbox.path(name));
        let file = file.iter().find(|file| file.is_file()).expect("a record");
        let shown = run(sandbox.plain_command("heaptrack_print").arg("-f").arg(file));
        let text = shown.stdout_text();
        let calls = text
            .lines()
            .find_map(|line| line.strip_prefix("calls to allocation functions: "))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        assert!(calls.is_some_and(|calls| calls > 40), "{text}");
    }
}

/// Runs the program, owned by root and with the set-user-ID bit, as another user.
fn raised(sandbox: &Sandbox, program: &Path, library: &Library, conf: &str) -> Option<Outcome> {
    const NOBODY: &str = "65534";
    let folder = sandbox.path("");
    let copy = sandbox.path("raised");
    let permit = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    std::fs::copy(program, &copy).unwrap();
    permit(&copy, 0o4755);
    permit(&folder, 0o755);
    permit(folder.parent().unwrap(), 0o755);
    let mut command = sandbox.plain_command("setpriv");
    command
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
        // Only the program itself gets these variables.
        .arg("env")
        .arg(format!("LD_PRELOAD={}", library.shared.display()))
        .arg(format!("MALLOC_CONF={conf}"))
        .arg(&copy);
    let outcome = sandbox.run(&mut command).expect("it ends well");
    if outcome.stdout_text() != "0\n" {
        skipped("the set-user-ID bit has no effect here");
        return None;
    }
    Some(outcome)
}

#[test]
fn programs_with_the_rights_of_another_user() {
    if lacks(&["setpriv"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        skipped("only root makes programs with the rights of another user");
        return;
    }
    let conf = "stats_print:true,confirm_conf:true,abort:true,no_such_option:1";
    for library in Library::under_test() {
        let sandbox = Sandbox::temporary(Allocator::System);
        let plain = Source::new("raised.c").compile();
        // The loader ignores the preload, and says so where it cannot open the file at all.
        if let Some(outcome) = raised(&sandbox, &plain, library, conf) {
            let said = outcome.stderr_text();
            assert!(!said.contains("mallard: "), "{said}");
        }
        // Linked with the library: the options of a user with fewer rights are not read.
        let linked = Source::new("raised.c").link(library.archive()).compile();
        if let Some(outcome) = raised(&sandbox, &linked, library, conf) {
            let said = outcome.stderr_text();
            assert!(
                !said.contains("mallard: ") && !said.contains("Mallard"),
                "{said}"
            );
        }
    }
}
