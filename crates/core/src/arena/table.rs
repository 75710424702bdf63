//! Which arenas exist.
//!
//! Automatic arenas come first, made in the order of their numbers as threads arrive; manual
//! arenas (`choice::manual`) have numbers from [`automatic`] on. Records are never freed: that of a
//! destroyed arena is reused for the next manual one.

use crate::arena::Arena;
use crate::arena::life::Life;
use crate::arena::making::{Making, making};
use crate::arena::pages::Counts;
use crate::heap::{self, PageHeap, nodes};
use crate::space::meta;
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::published::{Count, Published};
use crate::sys::{cpu, time};

/// The most automatic arenas.
pub const AUTOMATIC_ARENAS_MAX: usize = 1024;
/// The most arenas: the numbers that a flag of `mallocx` can hold.
pub const ARENAS_MAX: usize = 4095;
/// The number that stands for all arenas together; no arena has it.
pub const ALL: usize = 4096;
/// The number that stands for all destroyed arenas together.
pub const DESTROYED: usize = 4097;

/// The first arena, which every process has: it lies with the data that every process touches, not
/// in the table.
static FIRST_ARENA: Published<Arena> = Published::none();
/// The other arenas, by number.
static OTHERS: [Published<Arena>; ARENAS_MAX - 1] = [const { Published::none() }; ARENAS_MAX - 1];
/// One more than the highest arena number.
static END: Count = Count::none();
/// How many arenas threads are spread over; 0 until it is needed.
static AUTOMATIC: AtomicU32 = AtomicU32::new(0);

/// Sets the number of arenas, before the first is used; `None` for the default.
pub fn configure(narenas: Option<usize>) {
    AUTOMATIC.store(
        narenas.map_or(0, |n| n.clamp(1, AUTOMATIC_ARENAS_MAX)) as u32,
        Ordering::Relaxed,
    );
}

/// The number of arenas that threads are spread over.
#[inline(never)]
pub fn automatic() -> usize {
    match AUTOMATIC.load(Ordering::Relaxed) {
        0 => {
            let n = default_number();
            AUTOMATIC.store(n as u32, Ordering::Relaxed);
            n
        }
        n => n as usize,
    }
}

/// One arena for four CPUs, up to 16: blocks that one thread frees and another needs meet in the
/// transfer cache of their arena, and threads of one arena contend for a lock once per batch. See
/// `docs/design/caches.md`.
fn default_number() -> usize {
    cpu::allowed().div_ceil(4).clamp(1, 16)
}

/// The records of all arenas so far, including destroyed ones, by number.
pub fn records() -> impl DoubleEndedIterator<Item = &'static Arena> {
    (0..END.get()).filter_map(record)
}

/// Whether there has been more than one arena.
pub(in crate::arena) fn several() -> bool {
    END.now() > 1
}

/// The live arenas, by number.
pub fn made() -> impl DoubleEndedIterator<Item = &'static Arena> {
    records().filter(|a| a.life().is_live())
}

/// The live arenas that threads are spread over.
pub(in crate::arena) fn spread() -> impl Iterator<Item = &'static Arena> {
    made().filter(|a| !a.is_manual())
}

/// The table entry of the arena with this number.
fn slot(index: usize) -> Option<&'static Published<Arena>> {
    match index.checked_sub(1) {
        None => Some(&FIRST_ARENA),
        Some(other) => OTHERS.get(other),
    }
}

/// The arena that has, or had, this number.
pub(in crate::arena) fn record(index: usize) -> Option<&'static Arena> {
    slot(index)?.get()
}

/// The arena with this number.
pub fn existing(index: usize) -> Option<&'static Arena> {
    record(index).filter(|a| a.life().is_live())
}

/// The automatic arena with this number, made if needed. `None` when memory is out.
pub(in crate::arena) fn get(index: usize) -> Option<&'static Arena> {
    existing(index).or_else(|| make(index))
}

#[cold]
fn make(index: usize) -> Option<&'static Arena> {
    let making = making();
    make_under(&making, index, &heap::FIRST_HEAP, Life::Automatic)
}

/// Makes the arena with this number, unless there is one.
pub(in crate::arena) fn make_under(
    _: &Making,
    index: usize,
    heap: &'static PageHeap,
    life: Life,
) -> Option<&'static Arena> {
    if let Some(arena) = existing(index) {
        return Some(arena);
    }
    let slot = slot(index)?;
    let large = meta::take_apart(size_of::<Counts>())?;
    let Some(room) = meta::take(size_of::<Arena>()) else {
        // SAFETY: just taken with this size, and nothing refers to it.
        unsafe { meta::give(large, size_of::<Counts>()) };
        return None;
    };
    let arena: *mut Arena = room.as_ptr().cast();
    // SAFETY: both records are long enough, aligned to a cache line and used by nothing else. Zeros
    // are valid counts.
    let arena: &'static Arena = unsafe {
        let large = large.cast().as_ref();
        arena.write(Arena::new(index, heap, life, time::now_ns(), large));
        &*arena
    };
    if index == 0 {
        nodes::begin();
    }
    slot.set(arena);
    END.set(END.now().max(index + 1));
    Some(arena)
}

pub(in crate::arena) fn threads(index: usize) -> u32 {
    existing(index).map_or(0, |a| a.threads.load(Ordering::Relaxed))
}

/// The page heap that the arena with this number takes memory from.
pub(in crate::arena) fn heap_of(index: u16) -> &'static PageHeap {
    record(index as usize).map_or(&heap::FIRST_HEAP, Arena::heap)
}

/// The large-block counts of the arena with this number.
#[inline]
pub(in crate::arena) fn large_counts(index: u16) -> Option<&'static Counts> {
    record(index as usize).map(|a| a.large)
}

/// The arena with this number; an automatic one is made if needed. `None` when there is none, or
/// memory is out.
#[inline(never)]
pub fn numbered(index: usize) -> Option<&'static Arena> {
    existing(index).or_else(|| (index < automatic()).then(|| make(index))?)
}

/// The arena for a thread without a cache.
pub fn any() -> Option<&'static Arena> {
    get(0)
}
