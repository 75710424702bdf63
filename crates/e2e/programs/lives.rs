//! A Rust program on Mallard by one static: threads with destructors of their own, and forks from a
//! process with threads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

#[global_allocator]
static ALLOCATOR: mallard::Mallard = mallard::Mallard;

static ENDED: AtomicUsize = AtomicUsize::new(0);

/// Allocates when its thread ends.
struct Last(Vec<String>);

impl Drop for Last {
    fn drop(&mut self) {
        let joined = self.0.concat();
        ENDED.fetch_add(joined.len(), Ordering::Relaxed);
    }
}

thread_local!(static LAST: RefCell<Last> = const { RefCell::new(Last(Vec::new())) });

fn work(seed: usize) -> usize {
    LAST.with(|last| last.borrow_mut().0 = vec!["x".repeat(10); 10]);
    let mut words = BTreeMap::new();
    for i in 0..20_000 {
        let word = format!("word {}", (i * 7919 + seed) % 1000);
        *words.entry(word).or_insert(0) += i;
    }
    words.len()
}

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

fn main() {
    let begin = || -> Vec<_> {
        let start = |seed| std::thread::spawn(move || work(seed));
        (0..4).map(start).collect()
    };
    let mut good = 0;
    for _ in 0..20 {
        let threads = begin();
        // SAFETY: the child allocates, which our handlers of forks permit, and ends.
        let child = unsafe { fork() };
        if child == 0 {
            let right = work(1) == 1000;
            // SAFETY: ends the child, without the destructors of the parent's threads.
            unsafe { _exit(if right { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: the status is written to a variable of this function.
        unsafe { waitpid(child, &mut status, 0) };
        good += usize::from(child > 0 && status == 0);
        for thread in threads {
            assert_eq!(thread.join().expect("no thread panics"), 1000);
        }
    }
    println!("{good} children");
    println!(
        "{} bytes at the ends of threads",
        ENDED.load(Ordering::Relaxed)
    );
    let buffer = vec![1u8; 64 << 20];
    println!(
        "on Mallard: {}",
        mallard::arena_of(buffer.as_ptr()).is_some()
    );
}
