//! Single samples over time: the last ones (`prof_recent_alloc_max`), the log of those that were
//! freed (`prof_log`), and the names of threads.
//!
//! Worth (2026-11-29): jemalloc has these options and names, and the README promises them all. They
//! are 5.9 KB of code; while they are off, a sampled block costs a load at its beginning and its
//! end.
//!
//! Records lie in metadata memory, under a lock of their own.

use super::samples::Sample;
use super::sites::Site;
use crate::space::meta;
use crate::sys::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use crate::sys::lock::{Mutex, RawLock};
use crate::sys::page::PAGE;
use crate::sys::rank::Rank;
use core::ffi::{CStr, c_char};
use core::ptr::NonNull;

/// What happened to a block, where, when and in which thread.
#[derive(Clone, Copy)]
pub struct Moment {
    /// Nanoseconds of the monotonic clock.
    pub ns: u64,
    pub site: Option<&'static Site>,
    pub thread: u32,
}

/// A sampled block.
#[derive(Clone, Copy)]
pub struct Record {
    pub requested: usize,
    pub usable: usize,
    pub born: Moment,
    pub freed: Option<Moment>,
    at: usize,
    /// The record made next, and the next one in the same bucket.
    next: Link,
    same: Link,
}

type Link = Option<NonNull<Record>>;

/// A list of records, the oldest first.
struct List {
    first: Link,
    last: Link,
    count: usize,
}

impl List {
    const NONE: List = List {
        first: None,
        last: None,
        count: 0,
    };

    fn push(&mut self, record: Record) -> Link {
        let room = meta::take(size_of::<Record>())?.cast::<Record>();
        // SAFETY: the room is for a record, and nothing else uses it. Records in the list are its.
        unsafe {
            room.write(record);
            match self.last {
                Some(last) => (*last.as_ptr()).next = Some(room),
                None => self.first = Some(room),
            }
        }
        self.last = Some(room);
        self.count += 1;
        Some(room)
    }

    fn pop(&mut self) -> Option<Record> {
        let first = self.first?;
        // SAFETY: a record of the list, taken with this size, which leaves it.
        let record = unsafe {
            let record = first.read();
            meta::give(first.cast(), size_of::<Record>());
            record
        };
        self.first = record.next;
        if self.first.is_none() {
            self.last = None;
        }
        self.count -= 1;
        Some(record)
    }
}

/// A string in metadata memory.
struct Text {
    first: NonNull<u8>,
    /// Bytes of the string, with its closing zero.
    len: usize,
}

impl Text {
    fn copy(text: &CStr) -> Option<Text> {
        let bytes = text.to_bytes_with_nul();
        let (first, len) = (meta::take(bytes.len())?, bytes.len());
        // SAFETY: the room has this length, and nothing else uses it.
        unsafe { first.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), len) };
        Some(Text { first, len })
    }

    fn get(&self) -> &CStr {
        // SAFETY: copied with its end.
        unsafe { CStr::from_ptr(self.first.as_ptr().cast()) }
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: taken with this size.
        unsafe { meta::give(self.first, self.len) };
    }
}

/// Bytes of the longest name of a thread, with its end, as in the system.
pub const NAME_MAX: usize = 16;

pub type Name = [u8; NAME_MAX];

/// The name of a thread. They are in a list, the one that was set last first.
struct Named {
    thread: u32,
    name: Name,
    next: Option<NonNull<Named>>,
}

/// The most names that are kept: threads come and go, and nothing shows when the last sample of one
/// has gone.
const NAMES_MAX: usize = if cfg!(test) { 1 << 4 } else { 1 << 14 };

/// The most records of a log: about 150 MB. Tests are satisfied with less.
pub const LOG_MAX: usize = if cfg!(test) { 1 << 8 } else { 1 << 20 };

/// Buckets of recent records in use, by address.
const BUCKETS: usize = 1024;

struct History {
    recent: List,
    log: List,
    /// Blocks that were freed when the log was full.
    log_missed: u64,
    /// When the log began, and the name of its file, if the program gave one.
    began_ns: u64,
    log_name: Option<Text>,
    buckets: Option<NonNull<[Link; BUCKETS]>>,
    names: Option<NonNull<Named>>,
}

// SAFETY: the pointers lead to records that only this structure refers to.
unsafe impl Send for History {}

static HISTORY: Mutex<History> = Mutex::named(
    Rank::History,
    History {
        recent: List::NONE,
        log: List::NONE,
        log_missed: 0,
        began_ns: 0,
        log_name: None,
        buckets: None,
        names: None,
    },
);

/// How many recent samples are kept; negative for all.
static RECENT_MAX: AtomicI64 = AtomicI64::new(0);
/// Whether the list of recent blocks has a record.
static ANY_RECENT: AtomicBool = AtomicBool::new(false);
static LOGS: AtomicBool = AtomicBool::new(false);
/// The number of the next log.
static NEXT_LOG: AtomicU64 = AtomicU64::new(0);

/// The lock, for forks.
pub fn lock() -> &'static RawLock {
    HISTORY.raw()
}

pub fn recent_max() -> i64 {
    RECENT_MAX.load(Ordering::Relaxed)
}

/// Whether single samples matter when they are taken.
pub fn keeps() -> bool {
    recent_max() != 0
}

/// Whether single samples matter when they are freed.
pub fn cares_for_frees() -> bool {
    LOGS.load(Ordering::Relaxed) || ANY_RECENT.load(Ordering::Relaxed)
}

pub fn logs() -> bool {
    LOGS.load(Ordering::Relaxed)
}

fn birth(sample: &Sample, at: usize) -> Record {
    Record {
        requested: sample.requested,
        usable: sample.usable,
        born: Moment {
            ns: sample.born_ns,
            site: Some(sample.site),
            thread: sample.thread,
        },
        freed: None,
        at,
        next: None,
        same: None,
    }
}

impl History {
    fn bucket(&mut self, at: usize) -> Option<&mut Link> {
        // Large blocks begin with pages, small ones do not.
        let i = ((at / 16) ^ (at / PAGE)) % BUCKETS;
        // SAFETY: the buckets belong to this structure.
        self.buckets
            .map(|buckets| unsafe { &mut (*buckets.as_ptr())[i] })
    }

    /// Takes the record of the block at this address out of its bucket.
    #[inline(never)]
    fn unfile(&mut self, at: usize) -> Link {
        let mut link = core::ptr::from_mut(self.bucket(at)?);
        loop {
            // SAFETY: a bucket, or the link of a record; the lock is held.
            let record = unsafe { (*link)? };
            let record_at = record.as_ptr();
            // SAFETY: records in buckets belong to this structure.
            unsafe {
                if (*record_at).at == at {
                    *link = (*record_at).same;
                    return Some(record);
                }
                link = &raw mut (*record_at).same;
            }
        }
    }

    /// Takes the thread's name out of the list, or else the last one if there are too many; of a
    /// list with room, it makes another. `None` when memory is out.
    fn room_for_name(&mut self, thread: u32) -> Option<NonNull<Named>> {
        let mut link = &raw mut self.names;
        for place in 1.. {
            // SAFETY: the list's beginning, or the link of a name; names live for ever; the lock is
            // held.
            unsafe {
                let Some(named) = *link else {
                    break;
                };
                let at = named.as_ptr();
                if (*at).thread == thread || place == NAMES_MAX {
                    *link = (*at).next;
                    return Some(named);
                }
                link = &raw mut (*at).next;
            }
        }
        meta::take(size_of::<Named>()).map(NonNull::cast)
    }

    /// Drops the oldest records above the limit.
    #[inline(never)]
    fn shorten(&mut self) {
        let max = usize::try_from(recent_max()).unwrap_or(usize::MAX);
        while self.recent.count > max {
            if let Some(oldest) = self.recent.first {
                // SAFETY: a record of the list; the lock is held.
                let (at, is_freed) =
                    unsafe { (oldest.as_ref().at, oldest.as_ref().freed.is_some()) };
                if !is_freed {
                    self.unfile(at);
                }
            }
            self.recent.pop();
        }
        ANY_RECENT.store(self.recent.count > 0, Ordering::Relaxed);
    }
}

/// Sets how many recent samples are kept; negative for all. Returns the number before. For a thread
/// that is inside.
pub fn set_recent_max(max: i64) -> i64 {
    let mut history = HISTORY.lock_seldom();
    let before = RECENT_MAX.swap(max, Ordering::Relaxed);
    history.shorten();
    before
}

/// Keeps a sample of the block at this address.
#[cold]
#[inline(never)]
pub fn sampled(at: usize, sample: &Sample) {
    let mut history = HISTORY.lock_seldom();
    if history.buckets.is_none() {
        // Zeros are empty buckets.
        history.buckets = meta::take_apart(size_of::<[Link; BUCKETS]>()).map(NonNull::cast);
    }
    if history.buckets.is_none() {
        return;
    }
    // A block that was freed unseen while another process was forked.
    if let Some(old) = history.unfile(at) {
        // SAFETY: a record of the list; the lock is held.
        unsafe { (*old.as_ptr()).at = 0 };
    }
    let Some(record) = history.recent.push(birth(sample, at)) else {
        return;
    };
    if let Some(bucket) = history.bucket(at) {
        // SAFETY: as above.
        unsafe { (*record.as_ptr()).same = bucket.replace(record) };
    }
    history.shorten();
}

/// Notes that the sampled block at this address is freed.
#[cold]
#[inline(never)]
pub fn freed(at: usize, sample: &Sample, end: Moment) {
    let mut history = HISTORY.lock_seldom();
    if let Some(record) = history.unfile(at) {
        // SAFETY: a record of the list; the lock is held.
        unsafe { (*record.as_ptr()).freed = Some(end) };
    }
    if logs() {
        let freed = Some(end);
        let record = Record {
            freed,
            ..birth(sample, at)
        };
        let is_kept = history.log.count < LOG_MAX && history.log.push(record).is_some();
        history.log_missed += u64::from(!is_kept);
    }
}

/// Notes that a sampled block moved.
#[cold]
#[inline(never)]
pub fn moved(from: usize, to: usize) {
    let mut history = HISTORY.lock_seldom();
    if let Some(record) = history.unfile(from)
        && let Some(bucket) = history.bucket(to)
    {
        // SAFETY: a record of the list; the lock is held.
        unsafe {
            (*record.as_ptr()).at = to;
            (*record.as_ptr()).same = bucket.replace(record);
        }
    }
}

/// Begins a log that goes to the file with this name; false if one is under way, or memory is out.
/// For a thread that is inside.
pub fn begin_log(now_ns: u64, name: Option<&CStr>) -> bool {
    let mut history = HISTORY.lock_seldom();
    if logs() {
        return false;
    }
    let kept = name.and_then(Text::copy);
    if name.is_some() && kept.is_none() {
        return false;
    }
    history.log_name = kept;
    history.began_ns = now_ns;
    LOGS.store(true, Ordering::Relaxed);
    true
}

/// The number of this log.
pub fn log_number() -> u64 {
    NEXT_LOG.fetch_add(1, Ordering::Relaxed)
}

/// The records of a log or a dump. Belongs to the caller.
pub struct Records {
    list: List,
    /// When the log began, in nanoseconds of the monotonic clock.
    pub began_ns: u64,
    /// Blocks that are not in it: it was full, or memory was out.
    pub missed: u64,
    name: Option<Text>,
}

impl Records {
    /// The name of the log's file, if the program gave one.
    pub fn name(&self) -> Option<&CStr> {
        self.name.as_ref().map(Text::get)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        let mut at = self.list.first;
        core::iter::from_fn(move || {
            // SAFETY: the list is borrowed, and its records live as long.
            let record = unsafe { at?.as_ref() };
            at = record.next;
            Some(record)
        })
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        while self.list.pop().is_some() {}
    }
}

/// Ends the log and returns it; `None` if there is none. For a thread that is inside.
pub fn end_log() -> Option<Records> {
    let mut history = HISTORY.lock_seldom();
    if !LOGS.swap(false, Ordering::Relaxed) {
        return None;
    }
    Some(Records {
        list: core::mem::replace(&mut history.log, List::NONE),
        began_ns: history.began_ns,
        missed: core::mem::take(&mut history.log_missed),
        name: history.log_name.take(),
    })
}

/// Copies the recent records, as far as there is memory. For a thread that is inside.
#[inline(never)]
pub fn recent() -> Records {
    let history = HISTORY.lock_seldom();
    let mut copy = Records {
        list: List::NONE,
        began_ns: 0,
        missed: 0,
        name: None,
    };
    let mut at = history.recent.first;
    while let Some(record) = at {
        // SAFETY: a record of the list; the lock is held.
        let record = unsafe { record.as_ref() };
        at = record.next;
        copy.list.push(Record {
            next: None,
            ..*record
        });
    }
    copy
}

/// Names a thread; false when memory is out, or it has no number. For a thread that is inside.
#[inline(never)]
pub fn set_name(thread: u32, name: &Name) -> bool {
    if thread == 0 {
        return false;
    }
    let mut history = HISTORY.lock_seldom();
    let Some(room) = history.room_for_name(thread) else {
        return false;
    };
    let (name, next) = (*name, history.names);
    // SAFETY: the room is for a name, and nothing else uses it.
    unsafe { room.write(Named { thread, name, next }) };
    history.names = Some(room);
    true
}

fn find(history: &History, thread: u32) -> Option<NonNull<Named>> {
    let mut at = history.names;
    while let Some(named) = at {
        // SAFETY: names live for ever; the lock is held.
        let Named {
            thread: of, next, ..
        } = unsafe { named.as_ref() };
        if *of == thread {
            return Some(named);
        }
        at = *next;
    }
    None
}

/// Where the thread's name is kept, with a zero behind it. What is there changes if the thread is
/// named anew, or when names of many other threads came since.
pub fn name_in_place(thread: u32) -> *const c_char {
    let history = HISTORY.lock_seldom();
    match find(&history, thread) {
        // SAFETY: names live for ever.
        Some(named) => unsafe { (&raw const (*named.as_ptr()).name).cast() },
        None => c"".as_ptr(),
    }
}

/// A copy of the thread's name; empty for none.
#[inline(never)]
pub fn name_of(thread: u32) -> Name {
    let history = HISTORY.lock_seldom();
    // SAFETY: names live for ever; the lock is held.
    find(&history, thread).map_or([0; NAME_MAX], |named| unsafe { named.as_ref().name })
}

/// The name without the zeros behind it.
pub fn trimmed(name: &Name) -> &[u8] {
    name.split(|&byte| byte == 0).next().unwrap_or(&[])
}
