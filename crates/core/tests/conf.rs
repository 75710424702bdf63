//! Tests the option reader in real processes: runs this binary again with an environment, and
//! checks the child's output.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use mallard_core::conf::{self, Options};
use mallard_testing::skipped;

const CHILD: &str = "child";
const EARLY_CHILD: &str = "child_before_libc_is_ready";

/// The arguments with which a child of this binary runs only the ignored test of this name.
fn only(test: &str) -> [&str; 5] {
    [
        test,
        "--exact",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]
}

/// Not a test by itself: reads the options and prints the result.
#[test]
#[ignore = "the other tests run it, in processes of its own"]
fn child() {
    print_outcome();
}

/// Like [`child`], but in the state in which the first allocation may find a process: libc has not
/// set `environ` yet.
#[test]
#[ignore = "the other tests run it, in processes of its own"]
fn child_before_libc_is_ready() {
    if !env::args().any(|argument| argument == EARLY_CHILD) {
        return; // `--include-ignored`: other tests run beside this one and need the environment
    }
    unsafe extern "C" {
        static mut environ: *const *const std::ffi::c_char;
    }
    // SAFETY: the harness was told to run this test alone, so no other thread looks at the
    // environment.
    unsafe {
        let kept = environ;
        environ = std::ptr::null();
        print_outcome();
        environ = kept;
    }
}

fn print_outcome() {
    // SAFETY: errno is this thread's own; getauxval has no preconditions.
    let (outcome, errno, privileged) = unsafe {
        *libc::__errno_location() = 77;
        let outcome = conf::read(
            &Options::DEFAULT,
            Some(|| [Some(c"narenas:2,tcache:false"), None]),
            &mut conf::Stderr,
        );
        (
            outcome.expect("a string was given"),
            *libc::__errno_location(),
            libc::getauxval(libc::AT_SECURE),
        )
    };
    println!(
        "narenas={:?} tcache={} zero={} errors={} abort={} errno={errno} privileged={privileged}",
        outcome.options.narenas,
        outcome.options.tcache,
        outcome.options.zero,
        outcome.errors,
        outcome.must_abort,
    );
}

fn run_child(program: &Path, environment: &[(&str, &[u8])]) -> Output {
    let mut command = Command::new(program);
    command.args(only(CHILD)).env_clear();
    for (name, value) in environment {
        command.env(name, std::ffi::OsStr::from_bytes(value));
    }
    command.output().expect("the test binary runs")
}

fn this_binary() -> PathBuf {
    env::current_exe().expect("the path of this test")
}

/// Whether the machine has its own `/etc/malloc.conf`, which would change the children's options.
fn machine_has_options() -> bool {
    fs::symlink_metadata("/etc/malloc.conf").is_ok()
}

fn outcome(output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let line = stdout
        .lines()
        .find_map(|line| line.find("narenas=").map(|at| line[at..].to_string()));
    line.unwrap_or_else(|| panic!("the child printed no outcome: {output:?}"))
}

fn errors(output: &Output) -> Vec<String> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    stderr
        .lines()
        .filter(|line| line.starts_with("mallard: "))
        .map(String::from)
        .collect()
}

#[test]
fn mistakes_are_whole_lines_on_standard_error_and_errno_is_kept() {
    let output = run_child(
        &this_binary(),
        &[("MALLOC_CONF", b"narenass:1,zero:\xff,zero:true")],
    );
    assert_eq!(
        errors(&output),
        [
            r#"mallard: MALLOC_CONF: unknown option "narenass"; did you mean "narenas"?"#,
            r#"mallard: MALLOC_CONF: option "zero" cannot be "\xff"; valid: true or false"#,
        ]
    );
    assert!(outcome(&output).contains("zero=true errors=2 abort=false errno=77"));
}

#[test]
fn the_variables_count_before_libc_is_ready() {
    let output = Command::new(this_binary())
        .args(only(EARLY_CHILD))
        .env_clear()
        .env("MALLOC_CONF", "narenas:5,zero:true")
        .env("MALLARD_CONF", "narenas:9,nonsense")
        .output()
        .expect("the test binary runs");
    let outcome = outcome(&output);
    let expected = "narenas=Some(9) tcache=false zero=true errors=1 abort=false errno=77";
    assert!(outcome.starts_with(expected), "{outcome}");
    assert_eq!(errors(&output).len(), 1);
}

#[test]
fn standard_error_may_be_closed() {
    let script = "exec 2>&-; exec \"$@\"";
    let output = Command::new("/bin/sh")
        .args(["-c", script, "sh"])
        .arg(this_binary())
        .args(only(CHILD))
        .env("MALLOC_CONF", "nonsense")
        .output()
        .expect("a shell");
    assert!(outcome(&output).contains("errors=1"), "{output:?}");
}

/// A copy of this test that is setuid to `nobody`, if the machine permits making and using one.
struct SetuidCopy(PathBuf);

impl SetuidCopy {
    fn make() -> Option<Self> {
        let folder = env::temp_dir().join(format!("mallard-conf-setuid-{}", std::process::id()));
        fs::create_dir_all(&folder).ok()?;
        let copy = SetuidCopy(folder);
        let program = copy.program();
        // Uses `cp` rather than `fs::copy`: a child of another test would inherit the open file,
        // and a file that is open for writing cannot be executed.
        let copied = Command::new("cp")
            .arg(this_binary())
            .arg(&program)
            .status()
            .ok()?;
        if !copied.success() {
            return None;
        }
        fs::set_permissions(&copy.0, fs::Permissions::from_mode(0o755)).ok()?;
        const NOBODY: u32 = 65534;
        chown(&program, Some(NOBODY), None).ok()?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).ok()?;
        Some(copy)
    }

    fn program(&self) -> PathBuf {
        self.0.join("program")
    }
}

impl Drop for SetuidCopy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_privileged_process_does_not_heed_the_variables() {
    let Some(copy) = SetuidCopy::make() else {
        return skipped("a setuid program can be made by root only");
    };
    let environment: [(&str, &[u8]); 2] = [
        ("MALLOC_CONF", b"narenas:5,nonsense"),
        ("MALLARD_CONF", b"narenas:6"),
    ];
    let output = run_child(&copy.program(), &environment);
    let outcome = outcome(&output);
    if !outcome.ends_with("privileged=1") {
        let folder = copy.0.display();
        return skipped(format_args!(
            "this machine does not honour setuid in {folder}"
        ));
    }
    if !machine_has_options() {
        assert!(
            outcome.starts_with("narenas=Some(2)"),
            "the symbol still counts: {outcome}"
        );
    } else {
        skipped("the machine has options of its own, in /etc/malloc.conf");
    }
    assert!(errors(&output).is_empty(), "{output:?}");
}
