//! The pool of this process: its chunks, which go round between threads and the lab.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::mode;
use crate::file::{Path, Text};
use mallard_formats::probe::chunks::*;
use mallard_formats::probe::layout::{self, Control};

static POOL: AtomicPtr<Pool> = AtomicPtr::new(null_mut());
static LOSSY: AtomicU32 = AtomicU32::new(0);
static LAB: AtomicU32 = AtomicU32::new(0);
/// The clock when this process last forked; a child finds its parent's.
static FORKED_AT: AtomicU64 = AtomicU64::new(0);
/// The pool's file, to reserve more of it.
static FILE: Path = Path::new();

/// Records that fit after the last one that is written on the fast path: a clock, a large size, the
/// record itself, and the end of the thread.
pub const SPARE_RECORDS: usize = 4;
/// How long a thread waits before it checks whether the lab is still there.
const CHECK_INTERVAL_NS: i64 = 100_000_000;

/// The pool of the process, which must be recording.
#[inline(always)]
pub fn pool() -> &'static Pool {
    // SAFETY: set before the mode, and mapped as long as this process records.
    unsafe { &*POOL.load(Ordering::Relaxed) }
}

pub fn head(index: u32) -> *mut Head {
    let offset = CHUNKS_AT + index as usize * CHUNK_BYTES;
    POOL.load(Ordering::Relaxed)
        .wrapping_byte_add(offset)
        .cast::<Head>()
}

pub fn records(index: u32) -> *mut Record {
    head(index).wrapping_add(1).cast::<Record>()
}

/// # Safety
/// `at` is a record of a chunk that this thread may write.
#[inline(always)]
pub unsafe fn put(at: *mut Record, first: u64, second: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        (*at).second.store(second, Ordering::Relaxed);
        (*at).first.store(first, Ordering::Release);
    }
}

/// Whether records are dropped if no chunk is free.
pub fn drops() -> bool {
    LOSSY.load(Ordering::Relaxed) != 0
}

/// Marks a chunk as full.
pub fn hand_over(index: u32) {
    pool().states[index as usize].store(FULL, Ordering::Release);
}

pub fn note_stall(ticks: u64) {
    pool().stalls.fetch_add(1, Ordering::Relaxed);
    pool().stalled.fetch_add(ticks, Ordering::Relaxed);
}

/// A free chunk, whose memory is there.
pub fn try_take() -> Option<u32> {
    let pool = pool();
    let count = pool.count.load(Ordering::Relaxed).min(CHUNKS_MAX as u32);
    let take = |index: u32, from: u32| {
        let state = &pool.states[index as usize];
        state.load(Ordering::Relaxed) == from
            && state
                .compare_exchange(from, TAKEN, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    };
    if let Some(index) = (0..count).find(|index| take(*index, FREE)) {
        return Some(index);
    }
    let index = (0..count).find(|index| take(*index, NONE))?;
    if FILE.reserve(CHUNKS_AT + index as usize * CHUNK_BYTES, CHUNK_BYTES) {
        return Some(index);
    }
    // The file system is full: no more chunks than there are.
    pool.states[index as usize].store(NONE, Ordering::Release);
    pool.count.fetch_min(index, Ordering::Relaxed);
    None
}

/// A free chunk, and whether the thread has waited for it. None if recording has ended.
pub fn take() -> Option<(u32, bool)> {
    let pool = pool();
    let mut waited = false;
    loop {
        let freed = pool.freed.load(Ordering::Acquire);
        if let Some(index) = try_take() {
            return Some((index, waited));
        }
        if pool.stop.load(Ordering::Relaxed) != 0
            || pool.count.load(Ordering::Relaxed) == 0
            || lab_is_gone()
        {
            mode::stop();
            return None;
        }
        waited = true;
        pool.waiting.fetch_add(1, Ordering::SeqCst);
        let limit = libc::timespec {
            tv_sec: 0,
            tv_nsec: CHECK_INTERVAL_NS,
        };
        // SAFETY: waits on a word of the pool while it has this value, for some time at most.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                &raw const pool.freed,
                libc::FUTEX_WAIT,
                freed,
                &raw const limit,
                0_usize,
                0,
            )
        };
        pool.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

fn lab_is_gone() -> bool {
    let lab = LAB.load(Ordering::Relaxed) as i32;
    // SAFETY: asks whether the process exists; the error is read at once.
    lab > 0 && unsafe { libc::kill(lab, 0) != 0 && *libc::__errno_location() == libc::ESRCH }
}

/// The process forks at this time.
pub fn note_fork(now: u64) {
    FORKED_AT.store(now, Ordering::Relaxed);
}

/// A forked child stops to write into its parent's memory.
pub fn leave_parent() {
    mode::stop();
    let parents = POOL.swap(null_mut(), Ordering::Relaxed);
    if parents.is_null() {
        FORKED_AT.store(0, Ordering::Relaxed);
    } else {
        // SAFETY: this child no longer uses its parent's pool. The parent does.
        unsafe { libc::munmap(parents.cast(), POOL_BYTES) };
    }
}

/// Makes the pool of this process, if the lab wants a recording. `path` is that of its segment.
pub fn make(control: &Control, mut path: Text) {
    if control.flags & layout::RECORD == 0 || path.push(SUFFIX.as_bytes()).is_none() {
        return;
    }
    let Ok(made) = FILE.make(&path, POOL_BYTES, CHUNKS_AT) else {
        return;
    };
    let made = made.cast::<Pool>();
    // SAFETY: just mapped, and of this length.
    let pool = unsafe { &*made };
    pool.count.store(
        control.chunks.clamp(8, CHUNKS_MAX as u32),
        Ordering::Relaxed,
    );
    pool.forked_at
        .store(FORKED_AT.load(Ordering::Relaxed), Ordering::Relaxed);
    let lossy = control.flags & layout::LOSSY != 0;
    LOSSY.store(u32::from(lossy), Ordering::Relaxed);
    LAB.store(control.lab, Ordering::Relaxed);
    POOL.store(made, Ordering::Relaxed);
    pool.magic.store(layout::MAGIC, Ordering::Release);
    let by_tsc = control.flags & layout::MONOTONIC == 0;
    mode::begin(by_tsc);
}
