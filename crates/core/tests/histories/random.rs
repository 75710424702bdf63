//! Inputs for tests that read them from bytes: those that the fuzzer has kept, and some made up at
//! random.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keeps the process for one test: the statistics are the process's, and lack what other threads
/// get while it forks.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number from the environment.
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// xorshift64*: enough to make bytes up.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = self.next() >> 32;
        (0..len % 600).map(|_| (self.next() >> 56) as u8).collect()
    }
}

/// Tries the inputs of a folder, and `count` others (or `MALLARD_CASES`), from `MALLARD_SEED`.
pub fn check(corpus: &Path, count: u64, try_one: impl Fn(&[u8])) {
    let _alone = alone();
    let files = std::fs::read_dir(corpus).expect("the corpus");
    for file in files {
        let file = file.expect("the corpus").path();
        let bytes = std::fs::read(&file).expect("an input");
        told(&file.display().to_string(), || try_one(&bytes));
    }
    let seed = number("MALLARD_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    let mut random = Random(seed | 1);
    for case in 0..number("MALLARD_CASES").unwrap_or(count) {
        let bytes = random.bytes();
        told(&format!("MALLARD_SEED={seed}, case {case}"), || {
            try_one(&bytes);
        });
    }
}

/// Says which input failed.
fn told(name: &str, body: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        eprintln!("{name} fails");
        resume_unwind(panic);
    }
}
