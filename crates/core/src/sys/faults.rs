//! Failures on purpose: what the system refuses, and when.
//!
//! Each call of the system, and each place that takes a record, is a *fault point*:
//! `asked!(KIND or RESULT, CALL)` is `CALL`, unless the plan says that this point fails. Then
//! `errno` has the plan's error, and the value is `RESULT`. Without the feature `faults`, and
//! outside unit tests, the macro leaves the call alone, and there is no plan.
//!
//! A plan has up to [`RULES`] rules. Each names kinds, points by number in the order of the
//! process, and an error. Some calls can also fail after they took effect, as the kernel's do when
//! a part of the range was done: [`Rule::after`].

use crate::sys::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use crate::sys::errno;
use core::panic::Location;
use core::ptr::null_mut;

/// What is asked of the system at a fault point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    Map,
    Unmap,
    Protect,
    Advise,
    /// Changes the length of a mapping in place.
    Resize,
    /// Moves pages to another address.
    Move,
    Limit,
    Memfd,
    /// Closes, numbers and examines descriptors.
    Descriptor,
    Open,
    Read,
    /// Writes, shortens and removes a file.
    Write,
    /// Sleeps on a word; to wake a thread never fails.
    Wait,
    Sleep,
    Clock,
    /// Finds the kernel's function for the clocks.
    Vdso,
    Cpu,
    Node,
    Probe,
    Thread,
    /// A key of thread-specific data, and a value for it.
    Key,
    Value,
    AtFork,
    /// Closes pages, or opens them.
    Fence,
    /// Memory for a record.
    Meta,
}

/// How many kinds there are.
pub const KINDS: usize = Kind::Meta as usize + 1;

impl Kind {
    /// The kind with this number.
    pub fn numbered(number: u8) -> Option<Kind> {
        ALL.get(number as usize).copied()
    }

    /// Whether such a call reports its error by `errno`, or may leave one there.
    fn sets_errno(self) -> bool {
        let silent = [
            Kind::Clock,
            Kind::Vdso,
            Kind::Node,
            Kind::Probe,
            Kind::Key,
            Kind::Meta,
        ];
        !silent.contains(&self)
    }

    /// The bit of this kind in [`Rule::kinds`].
    pub const fn bit(self) -> u32 {
        1 << self as u8
    }
}

/// All kinds, by number.
pub const ALL: [Kind; KINDS] = [
    Kind::Map,
    Kind::Unmap,
    Kind::Protect,
    Kind::Advise,
    Kind::Resize,
    Kind::Move,
    Kind::Limit,
    Kind::Memfd,
    Kind::Descriptor,
    Kind::Open,
    Kind::Read,
    Kind::Write,
    Kind::Wait,
    Kind::Sleep,
    Kind::Clock,
    Kind::Vdso,
    Kind::Cpu,
    Kind::Node,
    Kind::Probe,
    Kind::Thread,
    Kind::Key,
    Kind::Value,
    Kind::AtFork,
    Kind::Fence,
    Kind::Meta,
];

/// Points that fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The bits of the kinds that fail.
    pub kinds: u32,
    /// The first number that fails, and the last; numbers begin with 0.
    pub first: u32,
    pub last: u32,
    pub error: i32,
    /// Whether the call takes effect before it fails.
    pub after: bool,
}

/// How many rules a plan may have.
pub const RULES: usize = 2;
/// Fault points that are remembered.
pub const REMEMBERED: usize = 1 << 16;

/// A rule that threads may read.
struct Shared {
    kinds: AtomicU32,
    first: AtomicU32,
    last: AtomicU32,
    error: AtomicU32,
    after: AtomicBool,
}

static PLAN: [Shared; RULES] = [const {
    Shared {
        kinds: AtomicU32::new(0),
        first: AtomicU32::new(0),
        last: AtomicU32::new(0),
        error: AtomicU32::new(0),
        after: AtomicBool::new(false),
    }
}; RULES];

/// Whether points are counted, and fail as the plan says.
static IS_ON: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU32 = AtomicU32::new(0);
/// How many failed, and the bits of their kinds.
static FAILED: AtomicU32 = AtomicU32::new(0);
static FAILED_KINDS: AtomicU32 = AtomicU32::new(0);
/// Bytes of addresses that were given up because nobody knows whose they are.
#[cfg(test)]
static LOST: AtomicUsize = AtomicUsize::new(0);
static SEEN_KINDS: [AtomicU8; REMEMBERED] = [const { AtomicU8::new(0) }; REMEMBERED];
static SEEN_PLACES: [AtomicPtr<Location<'static>>; REMEMBERED] =
    [const { AtomicPtr::new(null_mut()) }; REMEMBERED];

/// Begins to count, and to fail as the rules say.
pub fn begin(rules: &[Rule]) {
    for (place, rule) in PLAN.iter().zip(rules) {
        place.first.store(rule.first, Ordering::Relaxed);
        place.last.store(rule.last, Ordering::Relaxed);
        place.error.store(rule.error as u32, Ordering::Relaxed);
        place.after.store(rule.after, Ordering::Relaxed);
        place.kinds.store(rule.kinds, Ordering::Relaxed);
    }
    IS_ON.store(true, Ordering::Release);
}

/// From here on nothing fails, and nothing is counted.
pub fn end() {
    IS_ON.store(false, Ordering::Release);
}

/// How many points there were, and how many failed.
pub fn counts() -> (u32, u32) {
    let read = |count: &AtomicU32| count.load(Ordering::Relaxed);
    (read(&COUNT), read(&FAILED))
}

/// The bits of the kinds that failed.
pub fn failed_kinds() -> u32 {
    FAILED_KINDS.load(Ordering::Relaxed)
}

/// Notes addresses that are given up, because after a move nobody knows whose they are.
#[cfg(test)]
pub fn lose(bytes: usize) {
    LOST.fetch_add(bytes, Ordering::Relaxed);
}

/// How many bytes were given up so.
#[cfg(test)]
pub fn lost() -> usize {
    LOST.load(Ordering::Relaxed)
}

/// The kind of a point, and where it is in the sources.
pub fn seen(number: u32) -> Option<(Kind, &'static Location<'static>)> {
    let kind = Kind::numbered(SEEN_KINDS.get(number as usize)?.load(Ordering::Relaxed))?;
    let place = SEEN_PLACES.get(number as usize)?.load(Ordering::Acquire);
    // SAFETY: null, or a static.
    Some((kind, unsafe { place.as_ref() }?))
}

/// What a point does.
enum Verdict {
    Goes,
    FailsBefore,
    FailsAfter,
}

/// Counts a point, and says what it does; `errno` is the caller's to keep.
#[cold]
fn verdict(kind: Kind, place: &'static Location<'static>) -> (Verdict, i32) {
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    if let (Some(kinds), Some(places)) = (
        SEEN_KINDS.get(number as usize),
        SEEN_PLACES.get(number as usize),
    ) {
        kinds.store(kind as u8, Ordering::Relaxed);
        places.store(core::ptr::from_ref(place).cast_mut(), Ordering::Release);
    }
    for rule in &PLAN {
        let read = |field: &AtomicU32| field.load(Ordering::Relaxed);
        if read(&rule.kinds) & kind.bit() == 0
            || !(read(&rule.first)..=read(&rule.last)).contains(&number)
        {
            continue;
        }
        FAILED.fetch_add(1, Ordering::Relaxed);
        FAILED_KINDS.fetch_or(kind.bit(), Ordering::Relaxed);
        let after = rule.after.load(Ordering::Relaxed);
        let verdict = if after {
            Verdict::FailsAfter
        } else {
            Verdict::FailsBefore
        };
        return (verdict, read(&rule.error) as i32);
    }
    (Verdict::Goes, 0)
}

/// Makes the call, or fails as the plan says; after its whole effect if it is to fail afterwards.
#[track_caller]
#[inline]
pub fn ask<T>(kind: Kind, failed: impl FnOnce() -> T, call: impl FnOnce() -> T) -> T {
    ask_with(kind, failed, None::<fn()>, call)
}

/// Like [`ask`], for a call that fails after another effect than that of its success.
#[track_caller]
#[inline]
pub fn ask_with<T>(
    kind: Kind,
    failed: impl FnOnce() -> T,
    effect: Option<impl FnOnce()>,
    call: impl FnOnce() -> T,
) -> T {
    if !IS_ON.load(Ordering::Acquire) {
        return call();
    }
    let (verdict, error) = verdict(kind, Location::caller());
    match verdict {
        Verdict::Goes => return call(),
        Verdict::FailsBefore => {}
        Verdict::FailsAfter => match effect {
            Some(effect) => effect(),
            None => _ = call(),
        },
    }
    if kind.sets_errno() {
        errno::set(error);
    }
    failed()
}
