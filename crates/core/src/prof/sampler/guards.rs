//! Requests that get a guarded block.
//!
//! They are chosen by the countdowns of the samples. A thread that is not sampled counts down to
//! its next guarded block. While it is sampled, a part of its samples say that the next request
//! gets one. The blocks themselves are made above ([`switch`] says by which function).

use crate::arena;
use crate::class::hidden;
use crate::prof::gap;
use crate::prof::unwind::Registers;
use crate::space::Segment;
use crate::sys::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// A request that may get a guarded block.
#[derive(Clone, Copy)]
pub struct Request {
    pub size: usize,
    /// A block for it lies at a multiple of this; 0 if it can have none.
    pub align: usize,
    /// Whether it got the first block of its class.
    pub is_first: bool,
}

/// What a request gets in place of the block that it has got; `None` if it keeps it.
pub type Replace = fn(block: usize, Request, &Registers) -> Option<usize>;

/// A [`Replace`]; null before the first switch.
static REPLACE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static ON: AtomicBool = AtomicBool::new(false);
/// The mean bytes between guarded blocks (base-2 logarithm).
static LG_BYTES: AtomicU32 = AtomicU32::new(0);
/// The classes of which a first block was seen since the switch, as bits.
static SEEN: AtomicU64 = AtomicU64::new(0);
/// Bytes to the next try after a request that could not have a guarded block (base-2 logarithm).
pub(super) const LG_RETRY_BYTES: u32 = 14;

/// Whether some requests get guarded blocks.
#[inline]
pub fn are_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Lets requests get what `replace` returns, with this mean distance in bytes (base-2 logarithm),
/// or with `None` not any more. `changed` runs while no other thread switches. For a thread that is
/// inside.
pub(super) fn switch(lg_bytes: Option<u32>, replace: Replace, changed: impl FnOnce()) {
    REPLACE.store(replace as *mut (), Ordering::Release);
    hidden::set(hidden::User::Guards, || {
        if let Some(lg) = lg_bytes {
            LG_BYTES.store(lg, Ordering::Relaxed);
            SEEN.store(0, Ordering::Relaxed);
        }
        ON.store(lg_bytes.is_some(), Ordering::Relaxed);
        changed();
        lg_bytes.is_some()
    });
}

/// Stops to count the bytes of requests for guarded blocks, or goes on with it. For a thread that
/// is inside.
pub fn look(on: bool) {
    hidden::set(hidden::User::Guards, || on && are_on());
}

/// Whether requests get guarded blocks for their sites, and not by their bytes.
static BY_SITE: AtomicBool = AtomicBool::new(false);

/// Chooses requests by their sites, or by their bytes. For the thread that switches guards on.
pub fn set_by_site(by_site: bool) {
    BY_SITE.store(by_site, Ordering::Relaxed);
}

/// Whether requests are chosen by their sites.
pub fn is_by_site() -> bool {
    BY_SITE.load(Ordering::Relaxed)
}

/// The mean bytes between guarded blocks (base-2 logarithm).
pub fn lg_bytes() -> u32 {
    LG_BYTES.load(Ordering::Relaxed)
}

/// The bytes to the next guarded block of a thread that is not sampled.
pub(super) fn distance() -> i64 {
    match () {
        () if !are_on() => i64::MAX,
        // Each request is looked at.
        () if is_by_site() => 0,
        () => gap::draw(lg_bytes()),
    }
}

/// Whether one is due after a sample, where the mean distance between samples is 2^`lg` bytes.
pub(super) fn is_due_with_sample(lg: u32) -> bool {
    // One sample in this many (base-2 logarithm); each, if guarded blocks are to be as frequent.
    let rarer = lg_bytes().saturating_sub(lg);
    are_on() && (rarer == 0 || gap::random() >> (64 - rarer.min(63)) == 0)
}

/// How a block for a request of `size` bytes must be aligned, 0 if it can have no guarded one, and
/// whether this is the first of its class. Requests with an alignment have sizes that are multiples
/// of it.
pub(super) fn look_at(block: usize, size: usize) -> (usize, bool) {
    let class = Segment::find(block).map(|segment| segment.class_of(block));
    let Some(class) = class.filter(|class| class.is_slab()) else {
        return (0, false);
    };
    let bit = 1u64.checked_shl(class.0.into()).unwrap_or(0);
    let is_first = bit & !SEEN.fetch_or(bit, Ordering::Relaxed) != 0;
    let least = if size < 16 { 8 } else { 16 };
    let most = class.shape().align as usize;
    (
        most.min(1 << size.max(1).trailing_zeros()).max(least),
        is_first,
    )
}

/// The guarded block of a request that is due; `None` if it keeps the block that it has got.
pub(super) fn replacement(block: usize, request: Request, from: &Registers) -> Option<usize> {
    let replace = REPLACE.load(Ordering::Acquire);
    if !are_on() || replace.is_null() || request.align == 0 || is_of_manual_arena(block) {
        return None;
    }
    // SAFETY: only `switch` writes it, and only with a function of this type.
    let replace = unsafe { core::mem::transmute::<*mut (), Replace>(replace) };
    replace(block, request, from)
}

/// Whether the block goes with its arena, whose program may discard all of its blocks.
fn is_of_manual_arena(block: usize) -> bool {
    let owner = arena::owner_of(block).and_then(|number| arena::existing(number.into()));
    owner.is_none_or(|arena| arena.life() == arena::Life::Manual)
}
