//! Hardened blocks: given out, taken back, changed in their length.
//!
//! Slow paths come here, in a hardened process all of them, and for the blocks of an arena that is
//! hardened alone.

use super::alloc::{alloc_large, alloc_outside, out_of_memory, refilled, spend_aligned};
use crate::arena::pages::Pages;
use crate::arena::{self, Arena, Misuse, large};
use crate::cache::{ThreadCache, counted, current, deferred, delay, inside};
use crate::class::{self, Class, MAX, SLAB_MAX, StackOffset, TABLE_MAX};
use crate::hardened::run::{self, RunPlace};
use crate::hardened::word::{self, Damage, Family, Word, WordPlace};
use crate::hardened::{self, Mismatch, keys};
use crate::heap::Contents;
use crate::prof::unwind::Registers;
use crate::prof::{self, Filed, callers};
use crate::report::{self, Block, Event, Finding, FoundBy};
use crate::space::Segment;
use crate::space::segment::PageRecord;
use crate::sys::fault;
use crate::sys::page::{LINE, PAGE};
use crate::upkeep;

/// The place for a request at a multiple of `align`: bytes that a slab class may have, or none.
#[inline(always)]
fn place_for(size: usize, align: usize) -> Option<usize> {
    if size > SLAB_MAX || align > SLAB_MAX {
        return None;
    }
    let bytes = word::place_for(size);
    let bytes = if align > 16 {
        class::aligned_size(bytes, align)
    } else {
        bytes
    };
    (bytes <= SLAB_MAX).then_some(bytes)
}

/// Whether the calling thread's requests get hardened blocks: all do, or its arena's.
#[inline]
pub(in crate::api) fn is_wanted() -> bool {
    hardened::is_on() || hardened::are_any() && is_wanted_here()
}

#[cold]
#[inline(never)]
fn is_wanted_here() -> bool {
    current::cache().is_some_and(|cache| cache.arena().is_hardened())
}

/// The call site under way, if sites are noted.
#[inline(always)]
fn site() -> u16 {
    if hardened::notes_sites() {
        site_of_call()
    } else {
        callers::UNKNOWN
    }
}

#[cold]
#[inline(never)]
fn site_of_call() -> u16 {
    callers::site_of_request()
}

/// Allocates a hardened block of at least `size` bytes at a multiple of `align` from an arena whose
/// blocks are hardened, past all caches.
#[cold]
#[inline(never)]
pub(in crate::api) fn alloc_in(
    arena: &'static Arena,
    size: usize,
    align: usize,
    contents: Contents,
) -> *mut u8 {
    let Some(_inside) = inside::enter() else {
        return alloc_outside(size, align, contents);
    };
    let taken = match place_for(size, align) {
        Some(bytes) => take_small(arena, Class::of(bytes)),
        None if size > MAX - PAGE => None,
        None => {
            let pages = Pages::of(run::bytes_for(size));
            upkeep::tick_for(pages.bytes());
            counted::allocated(pages.bytes());
            large::alloc_fit(pages, align, arena.index(), contents).map(|run| run.addr)
        }
    };
    let Some(block) = taken else {
        return out_of_memory(size);
    };
    dress(block, size, Family::Any);
    if contents == Contents::Zeros {
        // SAFETY: the block is new, and this long.
        unsafe { (block as *mut u8).write_bytes(0, size) };
    }
    block as *mut u8
}

fn take_small(arena: &'static Arena, class: Class) -> Option<usize> {
    let mut one = [0];
    let n = arena.fill(class, &mut one);
    upkeep::tick_uncached();
    counted::allocated(class.size());
    (n == 1).then_some(one[0])
}

/// Allocates a block of at least `size` bytes at a multiple of `align`, where [`is_wanted`].
#[cold]
#[inline(never)]
pub(in crate::api) fn alloc(size: usize, align: usize, family: Family) -> *mut u8 {
    if !hardened::is_on()
        && let Some(cache) = current::cache()
    {
        return alloc_in(cache.arena(), size, align, Contents::Any);
    }
    match counted::cache() {
        Some(cache) => alloc_from(cache, size, align, family),
        None => alloc_without_place(size, align, family),
    }
}

/// Like [`alloc`], for a thread with this cache.
#[inline(always)]
pub(super) fn alloc_from(
    cache: &ThreadCache,
    size: usize,
    align: usize,
    family: Family,
) -> *mut u8 {
    let Some(bytes) = place_for(size, align) else {
        return alloc_large(size, align.max(LINE), Contents::Any);
    };
    let offset = if bytes <= TABLE_MAX {
        class::tabled_offset_of_small(bytes)
    } else {
        StackOffset::of(Class::of(bytes))
    };
    let Some(block) = counted::pop(cache, offset) else {
        return alloc_without_place(size, align, family);
    };
    give_out(block, offset.size(), size, align, family)
}

/// The thread has no free block of this kind, or no cache.
#[cold]
#[inline(never)]
fn alloc_without_place(size: usize, align: usize, family: Family) -> *mut u8 {
    let Some(bytes) = place_for(size, align) else {
        return alloc_large(size, align.max(LINE), Contents::Any);
    };
    let class = Class::of(bytes);
    let Some(block) = refilled(class) else {
        return out_of_memory(size);
    };
    if Segment::find(block).is_none() {
        // A fork is under way.
        return block as *mut u8;
    }
    give_out(block, class.size(), size, align, family)
}

#[inline(always)]
fn give_out(block: usize, bytes: usize, size: usize, align: usize, family: Family) -> *mut u8 {
    if prof::is_counting() && prof::guards::are_on() {
        return give_out_or_guard(block, bytes, size, align, family);
    }
    enter(WordPlace { at: block, bytes }, size, family);
    if prof::is_counting() {
        return spend_aligned(block, size, align);
    }
    block as *mut u8
}

/// Puts a block in use that comes from a slab of this class; in a hardened process, all are
/// hardened.
#[inline(always)]
fn enter(place: WordPlace, size: usize, family: Family) {
    // SAFETY: as above, and the caller has got the block.
    if !unsafe { place.give_out(size, family, site(), &{ *keys() }) } {
        die_written(place);
    }
}

/// Ends the process because of what was written to a free block.
#[cold]
#[inline(never)]
fn die_written(place: WordPlace) -> ! {
    // SAFETY: a free region of a hardened slab.
    die_at(unsafe { place.written(keys()) }, place)
}

/// Ends the process because of a block that is not in use, or what lies around it.
#[cold]
#[inline(never)]
fn die_of(place: WordPlace) -> ! {
    // SAFETY: a region of a hardened slab.
    die_at(unsafe { place.damage(keys()) }, place)
}

/// Like [`give_out`], where a guarded block may be given in its place. The block is entered only
/// afterwards: until then it can go back as it came.
#[cold]
#[inline(never)]
fn give_out_or_guard(
    block: usize,
    bytes: usize,
    size: usize,
    align: usize,
    family: Family,
) -> *mut u8 {
    let given = spend_aligned(block, size, align);
    if given.addr() == block {
        enter(WordPlace { at: block, bytes }, size, family);
    }
    given
}

/// Makes a block that an arena gave for `bytes_for` a hardened one.
#[cold]
#[inline(never)]
pub(in crate::api) fn dress(block: usize, size: usize, family: Family) {
    match find(block) {
        Found::Small(Ok((place, ..))) => enter(place, size, family),
        Found::Large(place) => {
            // SAFETY: the block is new, and has room for the record.
            unsafe { place.enter(size, family, site(), keys()) };
        }
        Found::Small(Err(_)) | Found::Plain => {}
    }
}

/// What an address is, as far as hardened blocks are concerned.
enum Found {
    /// In a hardened slab: a block's place, whether it is the slab's first, and its class.
    Small(Result<(WordPlace, bool, Class), Misuse>),
    /// The start of a large block with a record.
    Large(RunPlace),
    Plain,
}

#[inline(always)]
fn find(at: usize) -> Found {
    let Some(segment) = Segment::find(at) else {
        return Found::Plain;
    };
    match segment.record_of(at) {
        PageRecord::Slab(slab) | PageRecord::Watched { slab, .. } => {
            match arena::place_in_slab(slab, at) {
                Some(found) => Found::Small(found),
                None => Found::Plain,
            }
        }
        PageRecord::Large { arena, .. } => find_large(at, arena as u16),
        PageRecord::None => Found::Plain,
    }
}

#[cold]
#[inline(never)]
fn find_large(at: usize, arena: u16) -> Found {
    match large::bytes_if_any(at) {
        Some(bytes) if arena::is_hardened(arena) => Found::Large(RunPlace { at, bytes }),
        _ => Found::Plain,
    }
}

/// Frees the block at `at`, for which functions of this family were called, perhaps with a size.
/// For processes with hardened blocks; others are freed as without them.
#[inline(never)]
pub(super) fn free(at: usize, family: Family, said: Option<usize>) {
    let found = Segment::plain_slab(at).and_then(|slab| arena::place_in_slab(slab, at));
    let Some(Ok((place, is_first, class))) = found else {
        return free_any(at, family, said);
    };
    let keys = *keys();
    // SAFETY: a region of a hardened slab.
    let Some(word) = (unsafe { place.in_use(&keys) }) else {
        die_of(place);
    };
    check_call(|| place.size(word), word, at, family, said);
    // SAFETY: as above, and the word is the block's, which the caller gave up.
    if !unsafe { place.is_whole_around(word, is_first, &keys) } {
        die_of(place);
    }
    // SAFETY: as above.
    let random = unsafe { place.take_back(word, site(), &keys) };
    match delay::with_rings() {
        Some(mine) => delay::put(mine, class, place.bytes, at, random),
        None => give_back(class, at),
    }
}

/// Like [`free`], for all that is rare: sampled blocks, large ones, other segments.
#[cold]
#[inline(never)]
fn free_any(at: usize, family: Family, said: Option<usize>) {
    if !free_if_small(at, family, said) {
        super::free::dealloc_unhardened(at, said);
    }
}

/// Frees the block at `at` if it is a hardened block of a slab; looks at it if it is a large one.
/// Returns whether it was freed.
#[cold]
#[inline(never)]
pub(super) fn free_if_small(at: usize, family: Family, said: Option<usize>) -> bool {
    match find(at) {
        Found::Small(Ok((place, is_first, class))) => {
            let word = expect_whole(place, is_first);
            check_call(|| place.size(word), word, at, family, said);
            if prof::filed(at) == Filed::Sampled {
                super::free::free_sampled(at);
                return true;
            }
            // SAFETY: a region of a hardened slab, which the caller gave up.
            let random = unsafe { place.take_back(word, site(), keys()) };
            match delay::with_rings() {
                Some(mine) => delay::put(mine, class, place.bytes, at, random),
                None => give_back(class, at),
            }
            true
        }
        Found::Small(Err(misuse)) => misuse.die(at),
        Found::Large(place) => {
            free_large(place, family, said);
            false
        }
        Found::Plain => false,
    }
}

/// The word of a block in use; ends the process unless all is as it was.
fn expect_whole(place: WordPlace, is_first: bool) -> Word {
    // SAFETY: a region of a hardened slab.
    let word = unsafe { place.in_use(keys()) };
    match word {
        // SAFETY: as above.
        Some(word) if unsafe { place.is_whole_around(word, is_first, keys()) } => word,
        _ => die_of(place),
    }
}

/// Looks at a large block that is about to be freed.
#[cold]
#[inline(never)]
fn free_large(place: RunPlace, family: Family, said: Option<usize>) {
    large::check_free(place.at);
    // SAFETY: a block in use with a record begins there.
    match unsafe { place.look(keys()) } {
        Ok((size, word)) => check_call(|| size, word, place.at, family, said),
        Err(damage) => die_at(
            damage,
            WordPlace {
                at: place.at,
                bytes: place.bytes,
            },
        ),
    }
}

/// Ends the process if a free names another size than the block's, or another family, if that is
/// not allowed.
#[inline(always)]
fn check_call(
    size: impl Fn() -> usize,
    word: Word,
    at: usize,
    family: Family,
    said: Option<usize>,
) {
    // A `delete` in place of `delete[]` says another size as well: the family says more. Most
    // families are the same; [`mismatched`] knows what else is allowed.
    if !word.is_of(family) {
        mismatched(word, family, at, size());
    }
    if let Some(said) = said
        && said != size()
    {
        Misuse::Size(said, size()).die(at);
    }
}

#[cold]
#[inline(never)]
fn mismatched(word: Word, is: Family, at: usize, size: usize) {
    let was = word.family();
    let how = hardened::mismatch();
    if was.suits(is) || how == Mismatch::Off {
        return;
    }
    let kind = match (was, is) {
        (Family::New, Family::Malloc) => "free of a block of new",
        (Family::NewArray, Family::Malloc) => "free of a block of new[]",
        (Family::Malloc, Family::New) => "delete of a block of malloc",
        (Family::NewArray, _) => "delete of a block of new[]",
        (Family::Malloc, _) => "delete[] of a block of malloc",
        _ => "delete[] of a block of new",
    };
    if how == Mismatch::Abort {
        die_with(kind, FoundBy::Free, at, size, None, Some(word));
    }
    if hardened::is_first_mismatch() {
        tell(kind, FoundBy::Free, at, size, None, Some(word));
    }
}

/// Takes back a block from a thread without rings.
#[cold]
#[inline(never)]
fn give_back(class: Class, at: usize) {
    counted::freed(class.size());
    let Some(_inside) = inside::enter() else {
        return deferred::put_by(at);
    };
    arena::give_to_owner(class, at);
    upkeep::tick_uncached();
}

/// Ends the process with a report of what a place shows.
#[cold]
#[inline(never)]
pub(super) fn die_at(damage: Damage, place: WordPlace) -> ! {
    use report::Damage as Bytes;
    let at = |offset: usize| {
        Some(Bytes {
            offset: offset as isize,
            bytes: 1,
        })
    };
    let (kind, found_by, size, changed, word) = match damage {
        Damage::Free(word) => (
            "double free",
            FoundBy::Free,
            place.size(word),
            None,
            Some(word),
        ),
        Damage::Over(offset, word) => {
            let size = place.size_within(word, offset);
            (
                "overflow (found by the free)",
                FoundBy::Free,
                size,
                at(offset),
                Some(word),
            )
        }
        // The record is behind the slack: where there is none, behind the block.
        Damage::Word(offset) => (
            "overflow (found by the free)",
            FoundBy::Free,
            offset,
            at(offset),
            None,
        ),
        Damage::Front => {
            let changed = Some(Bytes {
                offset: -(word::WORD as isize),
                bytes: word::WORD,
            });
            // SAFETY: the block is in use.
            let word = unsafe { place.in_use(keys()) };
            let size = word.map_or(place.bytes, |word| place.size(word));
            (
                "underflow (found by the free)",
                FoundBy::Free,
                size,
                changed,
                word,
            )
        }
        Damage::Freed(offset, word) => (
            "write after free",
            FoundBy::Check,
            place.size(word),
            at(offset),
            Some(word),
        ),
        Damage::FreeWord => {
            let offset = place.bytes - word::WORD;
            ("write after free", FoundBy::Check, offset, at(offset), None)
        }
    };
    die_with(kind, found_by, place.at, size, changed, word)
}

/// Ends the process with a report about a block of `size` bytes, which has or had this word.
#[cold]
#[inline(never)]
fn die_with(
    kind: &str,
    found_by: FoundBy,
    at: usize,
    size: usize,
    damage: Option<report::Damage>,
    word: Option<Word>,
) -> ! {
    tell(kind, found_by, at, size, damage, word);
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}

/// Reports what is wrong with a block.
#[cold]
#[inline(never)]
fn tell(
    kind: &str,
    found_by: FoundBy,
    at: usize,
    size: usize,
    damage: Option<report::Damage>,
    word: Option<Word>,
) {
    if !report::is_ready() {
        return fault::tell(format_args!("{kind}: block {at:#x} of {size} bytes"));
    }
    let (allocated, freed) = word.map_or((0, 0), Word::sites);
    let finding = Finding {
        kind,
        found_by,
        at,
        block: Some(Block {
            at,
            size,
            place: "",
        }),
        damage,
        allocated: Event::of_site(allocated),
        freed: Event::of_site(freed),
    };
    let mut room = [0; report::FRAMES_MAX];
    let frames = report::stack_of_this_thread(&Registers::here(), &mut room);
    report::print(&finding, frames);
}

/// Like [`die_of`], in a call that is no free.
#[cold]
#[inline(never)]
fn die_in_use(place: WordPlace) -> ! {
    // SAFETY: a region of a hardened slab.
    match unsafe { place.damage(keys()) } {
        Damage::Free(_) => Misuse::NoBlock.die_in_use(place.at),
        damage => die_at(damage, place),
    }
}

/// The bytes of a region of a hardened slab that the program may use, none if the block is free.
#[inline(always)]
pub(super) fn bytes_in_use(place: WordPlace) -> usize {
    // SAFETY: a region of a hardened slab.
    match unsafe { place.in_use(keys()) } {
        Some(word) => place.size(word),
        None => bytes_of_others(place),
    }
}

/// Like [`bytes_in_use`], of a block that is free, or whose word was overwritten.
#[cold]
#[inline(never)]
fn bytes_of_others(place: WordPlace) -> usize {
    // SAFETY: a region of a hardened slab.
    match unsafe { place.damage(keys()) } {
        Damage::Free(_) => 0,
        // Its next free tells.
        _ => place.bytes,
    }
}

/// The bytes of a large block that the program may use, if it is hardened.
#[inline(never)]
pub(super) fn large_bytes(at: usize, bytes: usize) -> Option<usize> {
    let place = RunPlace { at, bytes };
    let is_hardened = hardened::is_on()
        || hardened::are_any() && arena::owner_of(at).is_some_and(arena::is_hardened);
    // SAFETY: a block with a record begins there.
    let found = is_hardened.then(|| unsafe { place.look(keys()) });
    found?.ok().map(|(size, _)| size)
}

/// The bytes of a block in use, if it is a hardened one.
#[cold]
#[inline(never)]
pub(in crate::api) fn size_of(at: usize) -> Option<usize> {
    match find(at) {
        Found::Small(Ok((place, ..))) => {
            // SAFETY: a region of a hardened slab.
            match unsafe { place.in_use(keys()) } {
                Some(word) => Some(place.size(word)),
                None => die_in_use(place),
            }
        }
        Found::Small(Err(misuse)) => misuse.die_in_use(at),
        Found::Large(place) => {
            large::bytes_of(at);
            // SAFETY: a block in use with a record begins there.
            match unsafe { place.look(keys()) } {
                Ok((size, _)) => Some(size),
                Err(damage) => die_at(
                    damage,
                    WordPlace {
                        at,
                        bytes: place.bytes,
                    },
                ),
            }
        }
        Found::Plain => None,
    }
}

/// Changes the size of a hardened block in place, if its place has room and would be the one for a
/// new block of this size. Returns false if it does not change, and for all other blocks.
#[cold]
#[inline(never)]
pub(in crate::api) fn resize_in_place(at: usize, size: usize) -> bool {
    if size > MAX {
        return false;
    }
    match find(at) {
        Found::Small(Ok((place, is_first, class))) => {
            if place_for(size, 1).is_none_or(|bytes| Class::of(bytes) != class) {
                return false;
            }
            let word = expect_whole(place, is_first);
            // SAFETY: a region of a hardened slab; the caller owns the block.
            unsafe { place.resize(word, size, None, keys()) };
            true
        }
        Found::Large(place) => {
            let pages = Pages::of(run::bytes_for(size));
            if place_for(size, 1).is_some() || pages.bytes() != place.bytes {
                return false;
            }
            enter_large(place, size);
            true
        }
        _ => false,
    }
}

/// The bytes of all pages of the hardened large block at `at`, if it is one.
pub(super) fn expect_large(at: usize) -> Option<usize> {
    match find(at) {
        Found::Large(place) => Some(place.bytes),
        _ => None,
    }
}

/// Whether a request of this size gets a large block, where blocks are hardened.
pub(super) fn is_large(size: usize) -> bool {
    place_for(size, 1).is_none()
}

/// Marks a small block as free and clears it, for a thread that cannot take it back now.
#[cold]
#[inline(never)]
pub(super) fn give_up(at: usize) {
    if let Found::Small(Ok((place, ..))) = find(at) {
        // SAFETY: a region of a hardened slab, which the caller gave up.
        unsafe {
            if let Some(word) = place.in_use(keys()) {
                place.take_back(word, site(), keys());
            }
        }
    }
}

/// Writes the record of a large block that was made or changed for a request of `size` bytes.
pub(super) fn enter_large(place: RunPlace, size: usize) {
    debug_assert!(place.bytes.is_multiple_of(PAGE));
    // SAFETY: the caller owns the block, which was made with room for the record.
    unsafe { place.enter(size, Family::Any, site(), keys()) };
}
