//! Where hardened blocks lie: found by their address, put in use, measured, changed in length.

use super::report::{die_at, die_in_use, die_of, die_written};
use crate::arena::pages::Pages;
use crate::arena::{self, Misuse, large};
use crate::cache::current;
use crate::class::{self, Class, MAX, SLAB_MAX};
use crate::hardened::run::{self, RunPlace};
use crate::hardened::word::{self, Damage, Family, Word, WordPlace};
use crate::hardened::{self, keys};
use crate::prof::callers;
use crate::space::Segment;
use crate::space::segment::PageRecord;
use crate::sys::page::PAGE;

/// The place for a request at a multiple of `align`: bytes that a slab class may have, or none.
#[inline(always)]
pub fn place_for(size: usize, align: usize) -> Option<usize> {
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
pub fn is_wanted() -> bool {
    hardened::is_on() || hardened::are_any() && is_wanted_here()
}

#[cold]
#[inline(never)]
fn is_wanted_here() -> bool {
    current::cache().is_some_and(|cache| cache.arena().is_hardened())
}

/// The call site under way, if sites are noted.
#[inline(always)]
pub fn site() -> u16 {
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

/// Puts a block in use that comes from a slab of this class; in a hardened process, all are
/// hardened.
#[inline(always)]
pub fn enter(place: WordPlace, size: usize, family: Family) {
    // SAFETY: as above, and the caller has got the block.
    if !unsafe { place.give_out(size, family, site(), &{ *keys() }) } {
        die_written(place);
    }
}

/// Makes a block that an arena gave for `bytes_for` a hardened one.
#[cold]
#[inline(never)]
pub fn dress(block: usize, size: usize, family: Family) {
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
pub enum Found {
    /// In a hardened slab: a block's place, whether it is the slab's first, and its class.
    Small(Result<(WordPlace, bool, Class), Misuse>),
    /// The start of a large block with a record.
    Large(RunPlace),
    Plain,
}

#[inline(always)]
pub fn find(at: usize) -> Found {
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

/// The word of a block that a call other than a free uses; ends the process if it is not in use.
fn expect_in_use(place: WordPlace) -> Word {
    // SAFETY: a region of a hardened slab.
    match unsafe { place.in_use(keys()) } {
        Some(word) => word,
        None => die_in_use(place),
    }
}

/// The word of a block in use; ends the process unless all is as it was.
pub fn expect_whole(place: WordPlace, is_first: bool) -> Word {
    // SAFETY: a region of a hardened slab.
    let Some(word) = (unsafe { place.in_use(keys()) }) else {
        die_of(place);
    };
    expect_whole_around(place, word, is_first);
    word
}

/// Ends the process unless what lies around a block in use, which has this word, is as it was.
fn expect_whole_around(place: WordPlace, word: Word, is_first: bool) {
    // SAFETY: a region of a hardened slab, with its word.
    if !unsafe { place.is_whole_around(word, is_first, keys()) } {
        die_of(place);
    }
}

/// The size and the word of a large block in use; ends the process unless all is as it was.
pub fn expect_record(place: RunPlace) -> (usize, Word) {
    let RunPlace { at, bytes } = place;
    // SAFETY: a block in use with a record begins there.
    match unsafe { place.look(keys()) } {
        Ok(found) => found,
        Err(damage) => die_at(damage, WordPlace { at, bytes }),
    }
}

/// The pages of a large block for a request of this size, with its record.
pub fn pages_for(size: usize) -> Pages {
    Pages::exactly(run::bytes_for(size))
}

/// The bytes of a region of a hardened slab that the program may use, none if the block is free.
#[inline(always)]
pub fn bytes_in_use(place: WordPlace) -> usize {
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
pub fn large_bytes(at: usize, bytes: usize) -> Option<usize> {
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
pub fn size_of(at: usize) -> Option<usize> {
    match find(at) {
        Found::Small(Ok((place, ..))) => Some(place.size(expect_in_use(place))),
        Found::Small(Err(misuse)) => misuse.die_in_use(at),
        Found::Large(place) => {
            large::bytes_of(at);
            Some(expect_record(place).0)
        }
        Found::Plain => None,
    }
}

/// What a change of size makes of a block.
pub enum Resized {
    /// The block has the new size, in its place.
    InPlace,
    /// A large block of this number of bytes, which stays one: its pages can change.
    Pages(RunPlace, usize),
    /// The block has to move, and has this number of bytes.
    Moves(usize),
    /// The block is not hardened.
    Plain,
}

/// Changes the size of a hardened block in place, if its place has room and would be the one for a
/// new block of this size.
#[cold]
#[inline(never)]
pub fn resize(at: usize, size: usize) -> Resized {
    match find(at) {
        Found::Small(Ok((place, is_first, class))) => {
            let word = expect_in_use(place);
            expect_whole_around(place, word, is_first);
            if place_for(size, 1).is_none_or(|bytes| Class::of(bytes) != class) {
                return Resized::Moves(place.size(word));
            }
            // SAFETY: a region of a hardened slab; the caller owns the block.
            unsafe { place.resize(word, size, None, keys()) };
            Resized::InPlace
        }
        Found::Small(Err(misuse)) => misuse.die_in_use(at),
        Found::Large(place) => {
            large::bytes_of(at);
            let (old, _) = expect_record(place);
            if size > MAX || place_for(size, 1).is_some() {
                return Resized::Moves(old);
            }
            if pages_for(size).bytes() != place.bytes {
                return Resized::Pages(place, old);
            }
            enter_large(place, size);
            Resized::InPlace
        }
        Found::Plain => Resized::Plain,
    }
}

/// Writes the record of a large block that was made or changed for a request of `size` bytes.
pub fn enter_large(place: RunPlace, size: usize) {
    debug_assert!(place.bytes.is_multiple_of(PAGE));
    // SAFETY: the caller owns the block, which was made with room for the record.
    unsafe { place.enter(size, Family::Any, site(), keys()) };
}
