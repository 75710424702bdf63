//! What the unit tests share.
//!
//! Page heap, arenas and caches are the process's, and so are their figures: a test that compares
//! figures takes this lock for its whole length, and so does every test that changes them.

use crate::heap::HEAP;
use std::format;
use std::path::Path;
use std::string::String;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::sleep;
use std::time::Duration;

/// Milliseconds that a thread is given to end after its test; one that takes the lock again and again does not end.
const END_MS: u32 = 5;

/// The decay time of dirty pages where no option says otherwise.
const DIRTY_MS: i64 = 10_000;

/// The thread of the test that runs alone, or ran alone last.
pub type Alone = MutexGuard<'static, i32>;

/// Keeps all other tests of the process's state out. A test that failed does not stop the others.
pub fn alone() -> Alone {
    static ALONE: Mutex<i32> = Mutex::new(0);
    let mut holder = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: always succeeds.
    let me = unsafe { libc::gettid() };
    if *holder != me {
        wait_for_end(*holder);
    }
    *holder = me;
    // As a process's start has it.
    static START: Once = Once::new();
    START.call_once(|| HEAP.set_decay(DIRTY_MS, 0));
    holder
}

/// Waits until a thread has ended, unless it goes on after its test: what its cache holds goes back only then, and would
/// change the next test's figures.
fn wait_for_end(thread: i32) {
    let task = format!("/proc/self/task/{thread}");
    for _ in 0..END_MS {
        if !Path::new(&task).exists() {
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
