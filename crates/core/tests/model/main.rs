//! Tests the allocator against a model of what an allocator promises.
//!
//! Random histories (`ops`) run against the real functions and a map of live blocks (`blocks`),
//! each filled with bytes of its own (`pattern`). The test checks that blocks do not overlap and
//! lose no byte, alignment, usable size, requested zeros, null and no other change if a request
//! cannot be met, and that nothing remains when all is freed.
//!
//! The tests first run in this process, with threads in turn and in parallel, and then in processes
//! of their own under options that take other paths. A failure reports the seed that repeats it,
//! even after an abort or fault: `MALLARD_SEED=n cargo test -p mallard-core --test model`.

mod blocks;
mod ops;
mod pattern;

use std::collections::hash_map::RandomState;
use std::env;
use std::fmt::Write as _;
use std::hash::BuildHasher;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use mallard_core::{api, stats};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use blocks::{Block, Blocks};
use ops::Op;

/// The statistics are per process, so only one history runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number from the environment.
fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

static SEED: AtomicU64 = AtomicU64::new(0);

/// Prints the seed if the allocator or the kernel ends the process, and lets it end.
extern "C" fn say_seed(signal: i32) {
    let mut line = mallard_core::sys::fault::MessageLine::new();
    let seed = SEED.load(Ordering::Relaxed);
    let _ = write!(line, "MALLARD_SEED={seed} repeats this");
    line.emit();
    // SAFETY: both may be called in a signal handler.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Runs a property on `cases` histories (or `MALLARD_CASES`).
fn check<T: std::fmt::Debug>(
    cases: u32,
    histories: impl Strategy<Value = T>,
    property: impl Fn(&T),
) {
    let _alone = alone();
    let seed = number("MALLARD_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    SEED.store(seed, Ordering::Relaxed);
    for signal in [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the handler does only what signal handlers may.
        unsafe { libc::signal(signal, say_seed as *const () as usize) };
    }
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: number("MALLARD_CASES").map_or(cases, |n| n as u32),
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let outcome = TestRunner::new_with_rng(config, rng).run(&histories, |history| {
        property(&history);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}\nMALLARD_SEED={seed} repeats this");
    }
}

/// Runs a body and asserts that it leaves no block behind.
fn leaving_nothing(body: impl FnOnce()) {
    let before = stats::now().allocated;
    body();
    api::trim();
    assert_eq!(
        stats::now().allocated,
        before,
        "allocated bytes after all was freed"
    );
}

/// Resets the decay to the process's start, whatever the last history set.
fn reset_decay() {
    let options = api::options();
    api::set_decay(options.dirty_decay_ms, options.muzzy_decay_ms);
}

/// Runs one history, by one thread at a time.
fn run_history(history: &[Op]) {
    reset_decay();
    leaving_nothing(|| {
        let mut blocks = Blocks::default();
        history.iter().for_each(|op| op.run(&mut blocks));
        blocks.assert_all_intact();
        blocks.free_all();
    });
}

#[test]
fn a_history_leaves_every_block_whole_and_nothing_behind() {
    check(160, ops::ops_with_threads(150), |history| {
        run_history(history)
    });
}

/// Runs one of several threads. Every few steps it passes a block to its neighbour.
fn work(history: &[Op], to: Sender<Block>, from: Receiver<Block>) {
    let mut blocks = Blocks::default();
    for (i, op) in history.iter().enumerate() {
        op.run(&mut blocks);
        if i % 3 == 0
            && let Some(block) = blocks.part_with(i)
        {
            // If the neighbour has finished, the block stays here.
            if let Err(back) = to.send(block) {
                blocks.receive(back.0);
            }
        }
        from.try_iter().for_each(|block| blocks.receive(block));
    }
    drop(to);
    // Receives until the neighbour has finished.
    from.iter().for_each(|block| blocks.receive(block));
    blocks.assert_all_intact();
    blocks.free_all();
}

fn run_together(histories: &[Vec<Op>]) {
    reset_decay();
    leaving_nothing(|| {
        let done = AtomicBool::new(false);
        thread::scope(|s| {
            let purger = s.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    api::trim();
                    thread::yield_now();
                }
            });
            let (mut ends, mut starts): (Vec<_>, Vec<_>) =
                histories.iter().map(|_| channel()).unzip();
            ends.rotate_left(1);
            let workers: Vec<_> = histories
                .iter()
                .map(|history| {
                    let (to, from) = (ends.remove(0), starts.remove(0));
                    s.spawn(move || work(history, to, from))
                })
                .collect();
            let outcomes: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
            done.store(true, Ordering::Relaxed);
            let _ = purger.join();
            for outcome in outcomes {
                outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
        });
    });
}

#[test]
fn histories_at_once_disturb_each_other_in_nothing() {
    let histories = prop::collection::vec(ops::ops(120), 2..=4);
    check(40, histories, |histories| run_together(histories));
}

/// Growth over used memory: in place, by moving pages and by copying. The options' promise for new
/// bytes also covers the added ones.
#[test]
fn a_block_that_grows_over_used_memory_keeps_its_bytes_and_the_options() {
    const KIB: usize = 1024;
    check(1, Just(()), |()| {
        leaving_nothing(|| {
            api::set_decay(-1, -1);
            for size in [16 * KIB, 320 * KIB, 1024 * KIB, 5000 * KIB] {
                let mut blocks = Blocks::default();
                blocks.alloc(40_000 * KIB);
                blocks.free_all();
                blocks.alloc(size);
                for factor in [2, 3, 5] {
                    blocks.resize(0, size * factor);
                }
                blocks.free_all();
            }
        });
    });
}

/// The tests above that child processes run.
const IN_CHILDREN: [&str; 3] = [
    "a_block_that_grows_over_used_memory_keeps_its_bytes_and_the_options",
    "a_history_leaves_every_block_whole_and_nothing_behind",
    "histories_at_once_disturb_each_other_in_nothing",
];

/// Not a test by itself: prints the options of its process.
#[test]
#[ignore = "run in processes of its own"]
fn options_in_force() {
    println!("{:?}", api::options());
}

/// Runs tests of this binary in a process of its own with these options; returns its output.
fn child(conf: &str, tests: &[&str], cases: &str) -> String {
    let output = Command::new(env::current_exe().unwrap())
        .args(tests)
        .args(["--exact", "--include-ignored", "--nocapture"])
        .arg("--test-threads=1")
        .env_remove("MALLARD_CONF")
        .env("MALLOC_CONF", conf)
        .env("MALLARD_CASES", cases)
        .output()
        .expect("the test binary runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "under MALLOC_CONF={conf}: {}\n{text}",
        output.status
    );
    text.into_owned()
}

#[test]
fn the_promises_hold_under_options_that_take_other_paths() {
    // Each with the text that shows that the option took effect.
    let confs = [
        ("tcache:false", "tcache: false"),
        ("narenas:1", "narenas: Some(1)"),
        ("junk:true", "junk: "),
        ("zero:true", "zero: true"),
        ("dirty_decay_ms:0", "dirty_decay_ms: 0"),
        ("muzzy_decay_ms:1000", "muzzy_decay_ms: 1000"),
        ("tcache_max:1024", "tcache_max: 1024"),
        ("thp:never", "thp: Never"),
        ("thp:always", "thp: Always"),
        ("retain:false", "retain: false"),
        ("hardened:true", "hardened: true"),
        (
            "narenas:1,tcache:false,dirty_decay_ms:0,reserve:64M",
            "reserve: Some(67108864)",
        ),
    ];
    for (conf, shown) in confs {
        let options = child(conf, &["options_in_force"], "1");
        assert!(options.contains(shown), "{conf}: {options}");
        let text = child(conf, &IN_CHILDREN, "12");
        assert!(text.contains("3 passed"), "{conf}: {text}");
    }
}
