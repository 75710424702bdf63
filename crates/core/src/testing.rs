//! What the unit tests share.
//!
//! Page heap, arenas and caches are the process's, and so are their figures, budgets and ticks. A
//! test that compares them or changes them has a process of its own ([`own_process`]): what another
//! test has left, or does meanwhile, cannot affect it. Within it [`alone`] keeps cases of a
//! property apart.

use crate::heap::{DIRTY_DECAY_MS, PAGE_HEAPS};
use std::collections::BTreeSet;
use std::format;
use std::io::Write;
use std::path::Path;
use std::string::String;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::sleep;
use std::time::Duration;

/// Names the test whose process this is.
const MARK: &str = "MALLARD_UNIT_TEST";

pub(crate) use mallard_testing::{lacks, not_installed, skipped};

/// For the beginning of a test: has the rest of it run in a process of its own, and returns in this
/// one, with the value that is given. In a property the first case does so for all of them.
macro_rules! own_process {
    () => {
        $crate::testing::own_process!(())
    };
    ($done:expr) => {
        fn place_of_this_test() {}
        if $crate::testing::is_handed_over(core::any::type_name_of_val(&place_of_this_test)) {
            return $done;
        }
    };
}
pub(crate) use own_process;

/// Whether the system shows the memory of this process. An emulator does not pass advice on, and
/// shows mappings of its own.
pub fn shows_memory() -> bool {
    let is_emulated = emulator().is_some();
    if is_emulated {
        skipped("an emulator does not show the memory of this process");
    }
    !is_emulated
}

/// The emulator that Cargo was told to run tests for this architecture with, and its arguments.
fn emulator() -> Option<String> {
    let mark = std::env::consts::ARCH.to_uppercase();
    let (_, runner) = std::env::vars().find(|(name, _)| {
        name.starts_with("CARGO_TARGET_") && name.contains(&mark) && name.ends_with("_RUNNER")
    })?;
    Some(runner)
}

/// A command that runs a program for this architecture.
fn command_for(program: &Path) -> std::process::Command {
    let Some(emulator) = emulator() else {
        return std::process::Command::new(program);
    };
    let mut words = emulator.split_whitespace();
    let mut command = std::process::Command::new(words.next().unwrap_or_default());
    command.args(words).arg(program);
    command
}

/// Whether the test that a function is within has run elsewhere, which it does unless this process
/// is for it.
pub fn is_handed_over(within: &str) -> bool {
    static DONE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let path = within.trim_end_matches("::place_of_this_test");
    let path = path.trim_end_matches("::{{closure}}");
    let test = path.split_once("::").map_or(path, |(_, test)| test);
    if std::env::var_os(MARK).is_some_and(|mark| mark == test) {
        return false;
    }
    let is_first = (DONE.lock().unwrap_or_else(PoisonError::into_inner)).insert(test.into());
    if is_first {
        let this = std::env::current_exe().expect("the path of this test");
        let output = command_for(&this)
            .args(["--exact", test, "--include-ignored", "--nocapture"])
            .env(MARK, test)
            .output()
            .expect("the test binary runs");
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        // Where no test has this name none fails either.
        let passed = output.status.success() && text.contains("test result: ok. 1 passed");
        assert!(passed, "{}\n{text}", output.status);
        for line in text.lines().filter(|line| line.starts_with("skipped: ")) {
            let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
        }
    }
    true
}

/// Milliseconds that a thread is given to end after its test: far more than it takes on a busy
/// machine.
const END_MS: u32 = 60_000;

/// The thread of the test that runs alone, or ran alone last.
pub type Alone = MutexGuard<'static, i32>;

/// Keeps all other tests of the process's state out. A test that failed does not stop the others.
pub fn alone() -> Alone {
    static ALONE: Mutex<i32> = Mutex::new(0);
    // SAFETY: always succeeds.
    let me = unsafe { libc::gettid() };
    waiting().insert(me);
    let mut holder = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    waiting().remove(&me);
    if *holder != me {
        wait_for_end(*holder);
    }
    *holder = me;
    // The decay times are those of the start of a process.
    static START: Once = Once::new();
    START.call_once(|| PAGE_HEAPS.set_decay(DIRTY_DECAY_MS, 0));
    holder
}

/// The threads that wait to be alone.
fn waiting() -> MutexGuard<'static, BTreeSet<i32>> {
    static WAITING: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until a thread has ended, unless it takes the lock again: what its cache holds goes back
/// only then, and would change the next test's figures.
fn wait_for_end(thread: i32) {
    let task = format!("/proc/self/task/{thread}");
    for _ in 0..END_MS {
        if !Path::new(&task).exists() || waiting().contains(&thread) {
            return;
        }
        sleep(Duration::from_millis(1));
    }
}

/// The flags that the system says the mapping of an address has.
pub fn mapping_flags(addr: usize) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("readable");
    let mut inside = false;
    for line in smaps.lines() {
        if let Some((range, _)) = line.split_once(' ')
            && let Some((start, end)) = range.split_once('-')
        {
            let at = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            inside = (at(start)..at(end)).contains(&addr);
        }
        if inside && line.starts_with("VmFlags:") {
            return line.into();
        }
    }
    panic!("{addr:#x} is not mapped")
}
