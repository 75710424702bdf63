//! The chunk of the threads that have none of their own.

use core::sync::atomic::Ordering;

use super::mode::clock;
use super::pool::{SPARE_RECORDS, hand_over, head, pool, put, records, take};
use crate::tls::thread_id;
use mallard_formats::probe::chunks::*;

/// A record of a thread that has no chunk.
pub fn push(first: u64, size: u64) {
    let pool = pool();
    while pool
        .lock
        .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        // SAFETY: lets another thread run, which may have the lock.
        unsafe { libc::sched_yield() };
    }
    write(pool, first, size);
    pool.lock.store(0, Ordering::Release);
}

/// Call it with the lock.
fn write(pool: &Pool, first: u64, size: u64) {
    let relaxed = Ordering::Relaxed;
    let me = thread_id();
    let mut chunk = pool.common.load(relaxed);
    if chunk == 0 || pool.common_next.load(relaxed) as usize > CHUNK_RECORDS - SPARE_RECORDS {
        if chunk != 0 {
            hand_over(chunk - 1);
            pool.common.store(0, relaxed);
        }
        let Some((index, _)) = take() else { return };
        let now = clock();
        // SAFETY: the chunk was just taken.
        unsafe {
            (*head(index)).base.store(now, relaxed);
            (*head(index)).thread.store(0, Ordering::Release);
        }
        chunk = index + 1;
        pool.common_next.store(0, relaxed);
        pool.common_thread.store(0, relaxed);
        pool.common.store(chunk, relaxed);
    }
    let next = pool.common_next.load(relaxed) as usize;
    let mut at = records(chunk - 1).wrapping_add(next);
    let mut push = |first, second| {
        // SAFETY: `SPARE_RECORDS` were left, and at most as many are written.
        unsafe { put(at, first, second) };
        at = at.wrapping_add(1);
        pool.common_next.fetch_add(1, relaxed);
    };
    if pool.common_thread.swap(me, relaxed) != me {
        push(u64::from(me) | THREAD << KIND_AT, 0);
    }
    // Such records are few: each has a clock of its own.
    push(CLOCK << KIND_AT, clock());
    if size > LARGEST_SIZE {
        push(LARGE << KIND_AT, size);
        push(first, 0);
    } else {
        push(first, size << SIZE_AT);
    }
}
