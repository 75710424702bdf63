//! Records every call in order ([`mallard_formats::probe::chunks`] describes the memory).
//!
//! A record costs a read of the clock and two stores into a chunk that only this thread writes. The
//! clock gives the order: an allocation is stamped after the real call has returned, a free before
//! the real call is made. The program passed the block from one to the other, and the allocator
//! passed the address from a free to the next allocation, so along each address the stamps rise.
//! The clock ([`crate::arch::ticks_after_loads`]) waits for the loads before it, and no store after
//! it is visible earlier. Where the counter is coarser than a call takes (AArch64), two of them may
//! have one stamp: those of a thread are in order in its chunk, and for those of two threads
//! `mallard_trace::life` finds the order by their blocks.
//!
//! If no chunk is free, the thread waits until the lab has emptied one, or drops what it has
//! recorded in its chunk (`--lossy`). A lab that is gone is noticed, and recording ends.
//!
//! [`pool`] has the chunks, [`own_chunk`] writes that of a thread, and [`common_chunk`] the one of
//! all threads that have none. [`mode`] has the clock, and [`large_blocks`] looks at large blocks.

mod common_chunk;
mod large_blocks;
mod mode;
mod own_chunk;
mod pool;

use core::ptr::null_mut;
use core::sync::atomic::Ordering;

pub use large_blocks::note_begin;
pub use mode::{Mode, is_on, mode};
pub use pool::{leave_parent, make};

use crate::allocator::loader::Pointer;
use crate::tls::Thread;
use crate::{allocator, state};
use large_blocks::{LARGE_BLOCK_BYTES, may_be_large, touched};
use mallard_formats::event::Kind;
use mallard_formats::probe::chunks::*;
use mode::{clock, clock_in};
use own_chunk::push;
use pool::{hand_over, pool, put};

/// A call of a thread that records into its own chunk by the processor's counter: nearly all calls
/// of a recording. The other ones go through [`crate::count::Call`].
pub struct Recorder {
    thread: &'static Thread,
}

/// Begins a call of this kind; `None` if the call is of another kind.
#[inline(always)]
pub fn enter(thread: &'static Thread) -> Option<Recorder> {
    // A thread with a chunk has joined. In a forked child the segment is not ready: the chunk is
    // the parent's.
    let ready = !thread.next.get().is_null()
        && thread.busy.get() == 0
        && state::is_ready()
        && mode().is_by_tsc();
    if !ready {
        return None;
    }
    thread.busy.set(1);
    Some(Recorder { thread })
}

impl Recorder {
    /// A request was answered with `block`. `plain` is the kind of one without an alignment.
    #[inline(always)]
    pub fn begin(&self, plain: Kind, align: u32, block: Pointer, size: usize) {
        note_begin(block, size);
        let kind = kind_of(plain, align, block);
        write(
            self.thread,
            Mode::BY_TSC,
            kind,
            u64::from(align),
            block,
            size,
        );
    }

    /// A block is about to end.
    #[inline(always)]
    pub fn end(&self, kind: Kind, block: Pointer) {
        note_end(self.thread, Mode::BY_TSC, kind, block);
    }

    #[inline(always)]
    pub fn leave(self) {
        self.thread.busy.set(0);
    }
}

/// Every block has this alignment: 16 bytes, as a logarithm.
const PLAIN_ALIGN: u32 = 4;

/// The kind of record of an answered request.
#[inline(always)]
pub fn kind_of(plain: Kind, align: u32, block: Pointer) -> Kind {
    match align {
        _ if block.is_null() => Kind::Failed,
        _ if align > PLAIN_ALIGN => Kind::Aligned,
        _ => plain,
    }
}

/// Writes a record.
#[inline(always)]
pub fn write(thread: &Thread, mode: Mode, kind: Kind, align: u64, address: Pointer, size: usize) {
    let at = thread.next.get();
    let passed = clock_in(mode).wrapping_sub(thread.base.get());
    let size = size as u64;
    let first = address.addr() as u64 & ADDRESS_MASK | (kind as u64) << KIND_AT | align << ALIGN_AT;
    // A thread without a chunk has null for both.
    if at >= thread.end.get() || passed > TICKS_MASK || size > LARGEST_SIZE {
        return write_slowly(thread, first, size);
    }
    // SAFETY: below the end of the thread's own chunk.
    unsafe { put(at, first, size << SIZE_AT | passed) };
    thread.next.set(at.wrapping_add(1));
}

#[cold]
#[inline(never)]
fn write_slowly(thread: &Thread, first: u64, size: u64) {
    if thread.next.get().is_null() {
        return common_chunk::push(first, size);
    }
    if thread.next.get() >= thread.end.get() && !own_chunk::change(thread) {
        return;
    }
    let now = clock();
    if now.wrapping_sub(thread.base.get()) > TICKS_MASK {
        push(thread, CLOCK << KIND_AT, now);
        thread.base.set(now);
    }
    let passed = now.wrapping_sub(thread.base.get());
    if size > LARGEST_SIZE {
        push(thread, LARGE << KIND_AT, size);
        push(thread, first, passed);
    } else {
        push(thread, first, size << SIZE_AT | passed);
    }
}

/// A thread gets its first chunk, if there are enough for it.
pub fn start(thread: &Thread) {
    thread.next.set(null_mut());
    thread.end.set(null_mut());
    if !is_on() {
        return;
    }
    let pool = pool();
    let max = pool.count.load(Ordering::Relaxed) / 4 * 3;
    if pool.taken.fetch_add(1, Ordering::Relaxed) >= max {
        pool.taken.fetch_sub(1, Ordering::Relaxed);
    } else if let Some((index, _)) = pool::take() {
        thread.serial.set(0);
        own_chunk::open(thread, index);
    } else {
        pool.taken.fetch_sub(1, Ordering::Relaxed);
    }
    write(thread, mode(), Kind::ThreadStart, 0, null_mut(), 0);
}

/// A thread ends: its chunk is the lab's. What it still does goes into the common chunk.
pub fn end(thread: &Thread) {
    if !is_on() {
        return;
    }
    write(thread, mode(), Kind::ThreadEnd, 0, null_mut(), 0);
    if !thread.next.get().is_null() {
        thread.next.set(null_mut());
        thread.end.set(null_mut());
        hand_over(thread.chunk.get());
        pool().taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The process is about to fork.
pub fn before_fork(thread: &Thread) {
    if is_on() {
        let before = thread.busy.replace(1);
        write(thread, mode(), Kind::Fork, 0, null_mut(), 0);
        pool::note_fork(clock());
        thread.busy.set(before);
    }
}

/// The pages of a large block that were ever touched, as a record.
#[cold]
#[inline(never)]
fn note_touched(thread: &Thread, mode: Mode, block: Pointer) {
    let usable = allocator::usable_size(block);
    if usable >= LARGE_BLOCK_BYTES
        && let Some(share) = touched(block, usable)
    {
        write(thread, mode, Kind::Touched, 0, null_mut(), share);
    }
}

/// A block is about to end. Of a large one, what was touched of it is recorded first.
#[inline(always)]
pub fn note_end(thread: &Thread, mode: Mode, kind: Kind, block: Pointer) {
    if may_be_large(block) {
        note_touched(thread, mode, block);
    }
    write(thread, mode, kind, 0, block, 0);
}
