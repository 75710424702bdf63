//! The chunk that a thread has as its own.

use core::ptr::null_mut;
use core::sync::atomic::Ordering;

use super::mode::{self, clock};
use super::pool::{
    SPARE_RECORDS, drops, hand_over, head, note_stall, pool, put, records, take, try_take,
};
use crate::tls::{Thread, thread_id};
use mallard_formats::event::Kind;
use mallard_formats::probe::chunks::*;

/// Writes into the room that every chunk has left.
pub fn push(thread: &Thread, first: u64, second: u64) {
    let at = thread.next.get();
    // SAFETY: `SPARE_RECORDS` are left after `end`, and the slow path writes at most as many.
    unsafe { put(at, first, second) };
    thread.next.set(at.wrapping_add(1));
}

/// Begins to write a chunk.
pub fn open(thread: &Thread, index: u32) {
    let now = clock();
    // SAFETY: the chunk is this thread's, and its memory is there.
    unsafe {
        let head = &*head(index);
        head.base.store(now, Ordering::Relaxed);
        head.serial.store(thread.serial.get(), Ordering::Relaxed);
        head.thread.store(thread_id(), Ordering::Release);
    }
    thread.serial.set(thread.serial.get().wrapping_add(1));
    thread.base.set(now);
    thread.chunk.set(index);
    thread.next.set(records(index));
    thread
        .end
        .set(records(index).wrapping_add(CHUNK_RECORDS - SPARE_RECORDS));
}

/// Hands the thread's chunk over and takes another one. False if recording has ended.
pub fn change(thread: &Thread) -> bool {
    let full = thread.chunk.get();
    let begun = clock();
    if drops() {
        match try_take() {
            Some(index) => {
                hand_over(full);
                open(thread, index);
            }
            None => drop_chunk(thread, full),
        }
        return !ended(thread);
    }
    hand_over(full);
    let Some((index, waited)) = take() else {
        thread.next.set(null_mut());
        thread.end.set(null_mut());
        return false;
    };
    open(thread, index);
    if waited {
        let ticks = clock().wrapping_sub(begun);
        note_stall(ticks);
        let size = (ticks >> STALL_SHIFT).min(LARGEST_SIZE);
        push(thread, (Kind::Stall as u64) << KIND_AT, size << SIZE_AT);
    }
    !ended(thread)
}

/// Whether the lab wants no more.
fn ended(thread: &Thread) -> bool {
    let ended = pool().stop.load(Ordering::Relaxed) != 0;
    if ended {
        mode::stop();
        thread.next.set(null_mut());
        thread.end.set(null_mut());
    }
    ended
}

/// Drops the contents of a chunk, and begins it again.
fn drop_chunk(thread: &Thread, index: u32) {
    let written = CHUNK_RECORDS - SPARE_RECORDS;
    pool().dropped.fetch_add(written as u64, Ordering::Relaxed);
    for place in (0..CHUNK_RECORDS).rev() {
        let record = records(index).wrapping_add(place);
        // SAFETY: a record of this thread's chunk. Backwards, so that a reader sees a beginning.
        unsafe { (*record).first.store(0, Ordering::Relaxed) };
    }
    thread.serial.set(thread.serial.get().wrapping_sub(1));
    open(thread, index);
}
