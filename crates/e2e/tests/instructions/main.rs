//! A check without noise: instructions per operation of the release build, on the fast paths and on
//! each layer below them, compared with recorded counts.
//!
//! Instructions are not time. But as long as code and data stay the same, more of them are slower,
//! and unlike time they are the same in every run, folder and machine. `callgrind` counts them,
//! `record` has the recorded counts, and `scripts/instructions.sh` shows both.

mod callgrind;
mod record;

use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use callgrind::Count;
use mallard_e2e::Library;
use mallard_testing::lacks;
use record::Record;

/// Set to 1, it records the current counts.
const RECORD: &str = "MALLARD_RECORD_INSTRUCTIONS";

/// Whether the test can run here; says so if not.
fn can_count() -> bool {
    !lacks(&["valgrind"])
}

fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(&rustc)
        .arg("--version")
        .output()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}", rustc.display()));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// All scenarios on the release build, counted once for all tests, in parallel on all CPUs.
fn counts() -> &'static Record {
    static COUNTS: OnceLock<Record> = OnceLock::new();
    COUNTS.get_or_init(|| {
        let (program, library) = (callgrind::program(), Library::release());
        let names = callgrind::scenarios(&program);
        let (next, done) = (AtomicUsize::new(0), Mutex::new(vec![None; names.len()]));
        let work = || {
            while let Some((at, name)) = take(&next, &names) {
                let count = callgrind::count(&program, name, library, &[]);
                done.lock().expect("no count panics under the lock")[at] = Some(count);
            }
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
        let done = done.into_inner().expect("all workers are done");
        let per_operation = |count: Option<Count>| count.expect("counted").per_operation();
        Record {
            compiler: compiler(),
            counts: names
                .into_iter()
                .zip(done.into_iter().map(per_operation))
                .collect(),
        }
    })
}

fn take<'a>(next: &AtomicUsize, names: &'a [String]) -> Option<(usize, &'a str)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    Some((at, names.get(at)?))
}

/// Bypasses the capture of `cargo test`, so that successes are visible too.
fn say(text: &str) {
    // If standard error is closed, the test goes on without its message.
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[test]
fn no_count_rises_unseen() {
    if !can_count() {
        return;
    }
    let now = counts();
    let path = record::path();
    if std::env::var(RECORD).is_ok_and(|value| value == "1") {
        std::fs::write(&path, now.text())
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }
    let recorded = std::fs::read_to_string(&path)
        .map_err(|error| error.to_string())
        .and_then(|text| Record::parse(&text))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    println!("{}", recorded.table(now));
    if !Library::release().is_mallard_or_skipped() {
        return;
    }
    let verdict = recorded.compare(now);
    for remark in &verdict.remarks {
        say(&format!("bench/instructions.txt: {remark}"));
    }
    assert!(
        verdict.failures.is_empty(),
        "bench/instructions.txt:\n{}",
        verdict.failures.join("\n")
    );
}

/// The design's budgets, independent of the record.
#[test]
fn the_fast_paths_keep_to_their_budgets() {
    if !can_count() || !Library::release().is_mallard_or_skipped() {
        return;
    }
    let mut checked = 0;
    for (name, count) in &counts().counts {
        let parts = name.rsplit_once('-').map(|(f, s)| (f, s.parse::<usize>()));
        let Some((function, Ok(size))) = parts else {
            continue;
        };
        let budget = match (function, size) {
            // Includes the prefetch of the next block, see docs/design/fast-path.md.
            ("malloc" | "new", ..=1024) => 18.0,
            // One more comparison and jump.
            ("malloc", _) => 20.0,
            ("free" | "delete" | "sized-free", _) => 23.0,
            // While the heap profiler samples, requests count down to the next sample; frees are
            // as they were.
            ("sampled-malloc", ..=1024) => 36.0,
            ("sampled-malloc", _) => 38.0,
            ("sampled-new", _) => 48.0,
            ("sampled-free" | "sampled-delete" | "sampled-sized-free", _) => 23.0,
            // In a thread that counts its bytes.
            ("counted-malloc", _) => 46.0,
            ("counted-free", _) => 46.0,
            // These also look at the flags.
            ("mallocx", _) => 20.0,
            ("dallocx", _) => 25.0,
            _ => continue,
        };
        checked += 1;
        // Fewer than ten would mean that the call was not counted.
        assert!(
            (10.0..=budget + 0.05).contains(count),
            "{name} takes {count} instructions, {budget} are allowed"
        );
    }
    assert_eq!(
        checked, 26,
        "five sizes of malloc and free, new, delete, sized free, mallocx, dallocx; sampled: five \
         sizes of malloc, free, sized free, new, delete; counted: malloc, free"
    );
}

/// The folder, the size of the environment and the C library's options must not change a count.
#[test]
fn a_count_depends_on_neither_place_nor_environment() {
    if !can_count() || !Library::release().is_mallard_or_skipped() {
        return;
    }
    let (program, library) = (callgrind::program(), Library::release());
    let long = "x".repeat(5000);
    let first = callgrind::count(&program, "trace", library, &[]);
    let second = callgrind::count(
        &program,
        "trace",
        library,
        &[
            ("PADDING", &long),
            ("MALLOC_CONF", "dirty_decay_ms:10000"),
            ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-ERMS"),
        ],
    );
    assert_eq!(first, second);
}
