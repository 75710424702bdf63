//! The two ways to begin a walk, and what comes out of it.

use super::cache::RowCache;
use super::memory::Memory;
use super::modules::{Module, Modules};
use super::registers::Registers;
use super::step::Walker;
use super::table::row::Row;
use crate::sys::atomic::{AtomicPtr, Ordering};
use core::ptr::null_mut;

/// How a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// With a frame that has no caller: `main`'s, a thread's or a fiber's first.
    Complete,
    /// At memory that cannot be read.
    Unreadable,
    /// With a step that leads down or too far, or to what is no code.
    Astray,
    /// At a table that makes no sense.
    BrokenTable,
    /// At a frame whose caller depends on registers that are not known.
    Unknown,
    /// There were more frames than a walk may have.
    TooMany,
}

/// The outcome of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    /// How many entries of the caller's memory were filled.
    pub frames: usize,
    /// Frames that [`OMITTED`] stands for.
    pub omitted: usize,
    pub end: End,
}

/// Stands, in the middle of a stack with more frames than there is room for, for those left out.
pub const OMITTED: usize = usize::MAX;

/// The process's cache and modules.
struct Unwinder {
    cache: AtomicPtr<RowCache>,
    modules: Modules,
}

static UNWINDER: Unwinder = Unwinder {
    cache: AtomicPtr::new(null_mut()),
    modules: Modules::new(),
};

/// Hands over the cache for the rows of all threads.
pub fn set_cache(cache: &'static RowCache) {
    let cache = core::ptr::from_ref(cache).cast_mut();
    UNWINDER.cache.store(cache, Ordering::Release);
}

/// The process's modules, to hand over a list and to make it anew.
pub fn modules() -> &'static Modules {
    &UNWINDER.modules
}

/// The stack of a thread that has these registers, the calling thread's or one that stands still.
/// An entry minus one is an address within the instruction that the frame is at: the call, or the
/// instruction that a signal interrupted. The first entry is for the registers' own frame.
#[cold]
#[inline(never)]
pub fn walk(registers: &Registers, out: &mut [usize]) -> Walk {
    UNWINDER.walk(*registers, out, false)
}

/// The stack of the function that calls this; the first entry is the return address into it.
#[cold]
#[inline(never)]
pub fn capture(out: &mut [usize]) -> Walk {
    UNWINDER.walk(Registers::here(), out, true)
}

impl Unwinder {
    #[inline(always)]
    fn walk(&self, registers: Registers, out: &mut [usize], skips_first: bool) -> Walk {
        // SAFETY: null, or a cache that lives for ever.
        let cache = unsafe { self.cache.load(Ordering::Acquire).as_ref() };
        walk_by(registers, out, skips_first, cache, &self.modules)
    }
}

/// Walks with this cache and these modules; without the registers' own frame if `skips_first`.
#[inline(always)]
pub fn walk_by(
    registers: Registers,
    out: &mut [usize],
    skips_first: bool,
    cache: Option<&RowCache>,
    modules: &Modules,
) -> Walk {
    let mut walker = Walker::new(registers, cache, modules);
    let mut frames = Frames { out, met: 0 };
    let end = walker.run(&mut frames, skips_first);
    frames.finish(end)
}

/// The frames of a walk: those of both ends, if there is no room for all.
pub struct Frames<'a> {
    out: &'a mut [usize],
    met: usize,
}

impl Frames<'_> {
    /// Entries before the one that stands for those left out.
    #[inline(always)]
    fn first(&self) -> usize {
        self.out.len() / 2
    }

    #[inline(always)]
    pub fn push(&mut self, frame: usize) {
        let mut place = self.met;
        self.met += 1;
        if place >= self.out.len() {
            // The second half is a ring.
            let behind = self.first() + 1;
            let ring = self.out.len().saturating_sub(behind);
            if ring == 0 {
                return;
            }
            place = behind + (place - behind) % ring;
        }
        self.out[place] = frame;
    }

    fn finish(self, end: End) -> Walk {
        let (room, behind) = (self.out.len(), self.first() + 1);
        let ring = room.saturating_sub(behind);
        let mut omitted = self.met.saturating_sub(room);
        if omitted > 0 && ring > 0 {
            let oldest = (self.met - behind) % ring;
            let ring = &mut self.out[behind..];
            // A rotation, without the memory that the library's takes.
            ring[..oldest].reverse();
            ring[oldest..].reverse();
            ring.reverse();
            self.out[behind - 1] = OMITTED;
            omitted += 1;
        }
        Walk {
            frames: self.met.min(room),
            omitted,
            end,
        }
    }
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// What a module's own entry in the cache is filed under, beside its tag.
const CHECK: u64 = 0x5bd1_e995_97f4_a7c5;

/// A number for what is loaded at a place. Another module that is loaded there later has another
/// one, so its walks do not find the rows of the first: the start of the table, which has the
/// number of functions, is part of it. Checks the module, too.
pub fn tag_of(module: &mut Module, cache: Option<&RowCache>) -> u64 {
    let mix = |tag: u64, part: u64| (tag ^ part).wrapping_mul(SPREAD).rotate_left(29);
    let parts = [module.start, module.end, module.unwind];
    let place = parts.iter().fold(0, |tag, &part| mix(tag, part as u64));
    let Some(cache) = cache.filter(|_| module.unwind != 0) else {
        return place;
    };
    // The table must be within the module before it is read from here.
    if cache.get(module.unwind, place ^ CHECK).is_none() {
        if !module.is_sound() {
            return place;
        }
        cache.put(module.unwind, place ^ CHECK, Row::CHECKED.bits());
    }
    module.is_checked = true;
    // The kernel is asked about a module that may have been unloaded.
    let mut memory = Memory::unknown();
    let parts = match module.is_doubtful {
        true => [memory.bytes(module.unwind), memory.bytes(module.unwind + 8)]
            .map(|bytes| bytes.map_or(0, u64::from_le_bytes)),
        // SAFETY: the table has these words (`is_sound`), and is loaded.
        false => unsafe {
            core::ptr::with_exposed_provenance::<[u64; 2]>(module.unwind).read_unaligned()
        },
    };
    parts.iter().fold(place, |tag, &part| mix(tag, part))
}
