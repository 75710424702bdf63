//! Records every call in order ([`crate::chunks`] describes the memory).
//!
//! A record costs a read of the clock and two stores into a chunk that only this thread writes.
//! The clock gives the order: an allocation is stamped after the real call has returned, a free
//! before the real call is made. The program passed the block from one to the other, and the
//! allocator passed the address from a free to the next allocation, so along each address the
//! stamps rise. `rdtscp` waits for the loads before it, and no store after it is visible earlier.
//!
//! If no chunk is free, the thread waits until the lab has emptied one, or drops what it has
//! recorded in its chunk (`--lossy`). A lab that is gone is noticed, and recording ends.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::chunks::*;
use crate::file::Text;
use crate::layout::Control;
use crate::loader::Pointer;
use crate::tls::Thread;
use crate::{real, state};

/// Whether this process records, and by which clock.
static MODE: AtomicU32 = AtomicU32::new(OFF);
const OFF: u32 = 0;
const BY_TSC: u32 = 1;
const BY_MONOTONIC: u32 = 2;

static POOL: AtomicPtr<Pool> = AtomicPtr::new(null_mut());
static LOSSY: AtomicU32 = AtomicU32::new(0);
static LAB: AtomicU32 = AtomicU32::new(0);
/// The clock when this process last forked; a child finds its parent's.
static FORKED_AT: AtomicU64 = AtomicU64::new(0);
/// The pool's file, to reserve more of it.
static FILE: crate::file::Path = crate::file::Path::new();

/// Records that fit after the last one that is written on the fast path: a clock, a large size, the
/// record itself, and the end of the thread.
const SPARE_RECORDS: usize = 4;
/// How long a thread waits before it looks whether the lab is still there.
const LOOK_INTERVAL_NS: i64 = 100_000_000;
/// Blocks from this size on are looked at when they end: the share of their pages that was touched.
const LARGE_BLOCK: usize = 64 << 10;

/// What [`MODE`] was when a call began.
#[derive(Clone, Copy)]
pub struct Mode(u32);

impl Mode {
    #[inline(always)]
    pub fn is_on(self) -> bool {
        self.0 != OFF
    }
}

#[inline(always)]
pub fn mode() -> Mode {
    Mode(MODE.load(Ordering::Relaxed))
}

pub fn is_on() -> bool {
    mode().is_on()
}

fn clock() -> u64 {
    clock_in(mode())
}

#[inline(always)]
fn clock_in(mode: Mode) -> u64 {
    if mode.0 == BY_MONOTONIC {
        return monotonic();
    }
    let mut cpu = 0;
    // SAFETY: every x86-64 processor of the last fifteen years has it.
    unsafe { core::arch::x86_64::__rdtscp(&raw mut cpu) }
}

#[cold]
fn monotonic() -> u64 {
    // SAFETY: fills a structure of ours in.
    let now = unsafe {
        let mut now: libc::timespec = core::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
        now
    };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[inline(always)]
fn pool() -> &'static Pool {
    // SAFETY: set before the mode, and mapped as long as this process records.
    unsafe { &*POOL.load(Ordering::Relaxed) }
}

fn head(index: u32) -> *mut Head {
    let offset = CHUNKS_AT + index as usize * CHUNK_BYTES;
    POOL.load(Ordering::Relaxed)
        .wrapping_byte_add(offset)
        .cast::<Head>()
}

fn records(index: u32) -> *mut Record {
    head(index).wrapping_add(1).cast::<Record>()
}

/// A call of a thread that records into its own chunk by the time-stamp counter: nearly all calls
/// of a recording. The other ones go through [`crate::count::Call`].
pub struct Recorder {
    thread: &'static Thread,
}

/// Begins such a call. None if it is another one.
#[inline(always)]
pub fn enter(thread: &'static Thread) -> Option<Recorder> {
    // A thread with a chunk has joined. In a forked child the segment is not ready: the chunk is
    // the parent's.
    let ready = !thread.next.get().is_null()
        && thread.busy.get() == 0
        && state::is_ready()
        && MODE.load(Ordering::Relaxed) == BY_TSC;
    if !ready {
        return None;
    }
    thread.busy.set(1);
    Some(Recorder { thread })
}

impl Recorder {
    /// A request was answered with `block`. `plain` is the kind of one without an alignment.
    #[inline(always)]
    pub fn begin(&self, plain: u64, align: u32, block: Pointer, size: usize) {
        note_begin(block, size);
        let kind = kind_of(plain, align, block);
        write(
            self.thread,
            Mode(BY_TSC),
            kind,
            u64::from(align),
            block,
            size,
        );
    }

    /// A block is about to end.
    #[inline(always)]
    pub fn end(&self, kind: u64, block: Pointer) {
        note_end(self.thread, Mode(BY_TSC), kind, block);
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
pub fn kind_of(plain: u64, align: u32, block: Pointer) -> u64 {
    match align {
        _ if block.is_null() => FAILED,
        _ if align > PLAIN_ALIGN => ALIGNED,
        _ => plain,
    }
}

/// Writes a record.
#[inline(always)]
pub fn write(thread: &Thread, mode: Mode, kind: u64, align: u64, address: Pointer, size: usize) {
    let at = thread.next.get();
    let passed = clock_in(mode).wrapping_sub(thread.base.get());
    let size = size as u64;
    let first = address.addr() as u64 & ADDRESS_MASK | kind << KIND_AT | align << ALIGN_AT;
    // A thread without a chunk has null for both.
    if at >= thread.end.get() || passed > TICKS_MASK || size > LARGEST_SIZE {
        return write_slowly(thread, first, size);
    }
    // SAFETY: below the end of the thread's own chunk.
    unsafe { put(at, first, size << SIZE_AT | passed) };
    thread.next.set(at.wrapping_add(1));
}

/// # Safety
/// `at` is a record of a chunk that this thread may write.
#[inline(always)]
unsafe fn put(at: *mut Record, first: u64, second: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        (*at).second.store(second, Ordering::Relaxed);
        (*at).first.store(first, Ordering::Release);
    }
}

#[cold]
#[inline(never)]
fn write_slowly(thread: &Thread, first: u64, size: u64) {
    if thread.next.get().is_null() {
        return in_common(first, size);
    }
    if thread.next.get() >= thread.end.get() && !change(thread) {
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

/// Writes into the room that every chunk has left.
fn push(thread: &Thread, first: u64, second: u64) {
    let at = thread.next.get();
    // SAFETY: `SPARE_RECORDS` are left after `end`, and the slow path writes at most as many.
    unsafe { put(at, first, second) };
    thread.next.set(at.wrapping_add(1));
}

/// A thread gets its first chunk, if there are enough for it.
pub fn start(thread: &Thread) {
    thread.next.set(null_mut());
    thread.end.set(null_mut());
    if !is_on() {
        return;
    }
    let pool = pool();
    let most = pool.count.load(Ordering::Relaxed) / 4 * 3;
    if pool.taken.fetch_add(1, Ordering::Relaxed) >= most {
        pool.taken.fetch_sub(1, Ordering::Relaxed);
    } else if let Some((index, _)) = take() {
        thread.serial.set(0);
        open(thread, index);
    } else {
        pool.taken.fetch_sub(1, Ordering::Relaxed);
    }
    write(thread, mode(), THREAD_START, 0, null_mut(), 0);
}

/// A thread ends: its chunk is the lab's. What it still does goes into the common chunk.
pub fn end(thread: &Thread) {
    if !is_on() {
        return;
    }
    write(thread, mode(), THREAD_END, 0, null_mut(), 0);
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
        write(thread, mode(), FORK, 0, null_mut(), 0);
        FORKED_AT.store(clock(), Ordering::Relaxed);
        thread.busy.set(before);
    }
}

/// The pages of a large block that were ever touched, as a record.
#[cold]
#[inline(never)]
fn note_touched(thread: &Thread, mode: Mode, block: Pointer) {
    let usable = real::usable_size(block);
    if usable >= LARGE_BLOCK
        && let Some(share) = touched(block, usable)
    {
        write(thread, mode, TOUCHED, 0, null_mut(), share);
    }
}

/// Where large blocks have begun, so that the end of a small one need not ask the allocator for its
/// size: a bit for each of some hashes of addresses. A bit stays set; a block that meets another
/// one's is asked about in vain.
static LARGE_BEGUN: [AtomicU64; LARGE_BITS / 64] = [const { AtomicU64::new(0) }; LARGE_BITS / 64];
const LARGE_BITS: usize = 4096;

/// The word and the bit of an address.
#[inline(always)]
fn large_bit(block: Pointer) -> (&'static AtomicU64, u64) {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let hash = (block.addr() as u64 >> 4).wrapping_mul(MULTIPLIER);
    let index = (hash >> (64 - LARGE_BITS.trailing_zeros())) as usize;
    (&LARGE_BEGUN[index / 64], 1 << (index % 64))
}

/// A block begins. An allocator may make twice of what was asked for.
#[inline(always)]
pub fn note_begin(block: Pointer, size: usize) {
    if size >= LARGE_BLOCK / 2 {
        note_large(block);
    }
}

#[cold]
#[inline(never)]
fn note_large(block: Pointer) {
    let (word, bit) = large_bit(block);
    if word.load(Ordering::Relaxed) & bit == 0 {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// The share of a block's pages that lie in memory, in 255ths. Of a block of many pages, parts are
/// looked at, evenly distributed.
fn touched(block: Pointer, usable: usize) -> Option<usize> {
    const PAGE_BYTES: usize = 4096;
    /// Pages in one look, and looks at one block.
    const LOOK_PAGES: usize = 512;
    const LOOKS_MAX: usize = 32;
    let begin = block.addr().next_multiple_of(PAGE_BYTES);
    let end = (block.addr() + usable) & !(PAGE_BYTES - 1);
    let pages = end.checked_sub(begin)? / PAGE_BYTES;
    let (parts, part) = match pages.div_ceil(LOOK_PAGES) {
        looks if looks <= LOOKS_MAX => (looks, LOOK_PAGES),
        _ => (LOOKS_MAX, pages / LOOKS_MAX),
    };
    let (mut seen, mut there) = (0, 0);
    let mut states = [0_u8; LOOK_PAGES];
    for index in 0..parts {
        let from = index * part;
        let count = LOOK_PAGES.min(pages - from);
        let at = block.with_addr(begin + from * PAGE_BYTES);
        // SAFETY: asks for the state of pages of a block that is live; the buffer has room.
        if unsafe { libc::mincore(at.cast(), count * PAGE_BYTES, states.as_mut_ptr()) } != 0 {
            return None;
        }
        seen += count;
        there += states[..count]
            .iter()
            .filter(|state| **state & 1 != 0)
            .count();
    }
    (seen > 0).then(|| (there * 255).div_ceil(seen))
}

/// Begins to write a chunk.
fn open(thread: &Thread, index: u32) {
    let now = clock();
    // SAFETY: the chunk is this thread's, and its memory is there.
    unsafe {
        let head = &*head(index);
        head.base.store(now, Ordering::Relaxed);
        head.serial.store(thread.serial.get(), Ordering::Relaxed);
        head.thread.store(libc::gettid() as u32, Ordering::Release);
    }
    thread.serial.set(thread.serial.get().wrapping_add(1));
    thread.base.set(now);
    thread.chunk.set(index);
    thread.next.set(records(index));
    thread
        .end
        .set(records(index).wrapping_add(RECORDS - SPARE_RECORDS));
}

/// Marks a chunk as full.
fn hand_over(index: u32) {
    pool().states[index as usize].store(FULL, Ordering::Release);
}

/// Hands the thread's chunk over and takes another one. False if recording has ended.
fn change(thread: &Thread) -> bool {
    let full = thread.chunk.get();
    let begun = clock();
    let lossy = LOSSY.load(Ordering::Relaxed) != 0;
    if lossy {
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
        push(thread, STALL << KIND_AT, size << SIZE_AT);
    }
    !ended(thread)
}

/// Whether the lab wants no more.
fn ended(thread: &Thread) -> bool {
    let ended = pool().stop.load(Ordering::Relaxed) != 0;
    if ended {
        MODE.store(OFF, Ordering::Relaxed);
        thread.next.set(null_mut());
        thread.end.set(null_mut());
    }
    ended
}

fn note_stall(ticks: u64) {
    pool().stalls.fetch_add(1, Ordering::Relaxed);
    pool().stalled.fetch_add(ticks, Ordering::Relaxed);
}

/// Forgets what a chunk holds, and begins it again.
fn drop_chunk(thread: &Thread, index: u32) {
    let written = RECORDS - SPARE_RECORDS;
    pool().dropped.fetch_add(written as u64, Ordering::Relaxed);
    for place in (0..RECORDS).rev() {
        let record = records(index).wrapping_add(place);
        // SAFETY: a record of this thread's chunk. Backwards, so that a reader sees a beginning.
        unsafe { (*record).first.store(0, Ordering::Relaxed) };
    }
    thread.serial.set(thread.serial.get().wrapping_sub(1));
    open(thread, index);
}

/// A free chunk, whose memory is there.
fn try_take() -> Option<u32> {
    let pool = pool();
    let count = pool.count.load(Ordering::Relaxed).min(CHUNKS as u32);
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
fn take() -> Option<(u32, bool)> {
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
            MODE.store(OFF, Ordering::Relaxed);
            return None;
        }
        waited = true;
        pool.waiting.fetch_add(1, Ordering::SeqCst);
        let limit = libc::timespec {
            tv_sec: 0,
            tv_nsec: LOOK_INTERVAL_NS,
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

/// A record of a thread that has no chunk.
fn in_common(first: u64, size: u64) {
    let pool = pool();
    while pool
        .lock
        .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        // SAFETY: lets another thread run, which may have the lock.
        unsafe { libc::sched_yield() };
    }
    write_common(pool, first, size);
    pool.lock.store(0, Ordering::Release);
}

/// Call it with the lock.
fn write_common(pool: &Pool, first: u64, size: u64) {
    let relaxed = Ordering::Relaxed;
    // SAFETY: asks for an id.
    let me = unsafe { libc::gettid() } as u32;
    let mut chunk = pool.common.load(relaxed);
    if chunk == 0 || pool.common_next.load(relaxed) as usize > RECORDS - SPARE_RECORDS {
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

/// A forked child stops to write into its parent's memory.
pub fn leave_parent() {
    MODE.store(OFF, Ordering::Relaxed);
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
    if control.flags & crate::layout::RECORD == 0 || path.push(SUFFIX.as_bytes()).is_none() {
        return;
    }
    let Ok(made) = FILE.make(&path, POOL_BYTES, CHUNKS_AT) else {
        return;
    };
    let made = made.cast::<Pool>();
    // SAFETY: just mapped, and of this length.
    let pool = unsafe { &*made };
    pool.count
        .store(control.chunks.clamp(8, CHUNKS as u32), Ordering::Relaxed);
    pool.forked_at
        .store(FORKED_AT.load(Ordering::Relaxed), Ordering::Relaxed);
    let lossy = control.flags & crate::layout::LOSSY != 0;
    LOSSY.store(u32::from(lossy), Ordering::Relaxed);
    LAB.store(control.lab, Ordering::Relaxed);
    POOL.store(made, Ordering::Relaxed);
    pool.magic.store(crate::layout::MAGIC, Ordering::Release);
    let by_tsc = control.flags & crate::layout::MONOTONIC == 0;
    MODE.store(
        if by_tsc { BY_TSC } else { BY_MONOTONIC },
        Ordering::Relaxed,
    );
}

/// A block is about to end. Of a large one, what was touched of it is recorded first.
#[inline(always)]
pub fn note_end(thread: &Thread, mode: Mode, kind: u64, block: Pointer) {
    let (word, bit) = large_bit(block);
    if word.load(Ordering::Relaxed) & bit != 0 {
        note_touched(thread, mode, block);
    }
    write(thread, mode, kind, 0, block, 0);
}
