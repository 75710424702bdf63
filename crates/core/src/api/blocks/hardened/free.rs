//! Freeing a hardened block.

use super::places::{Found, expect_record, expect_whole, find, site};
use super::report::{check_call, die_of};
use crate::arena::{self, large};
use crate::cache::{counted, deferred, delay, inside};
use crate::class::Class;
use crate::hardened::keys;
use crate::hardened::run::RunPlace;
use crate::hardened::word::{Family, Keys, Word, WordPlace};
use crate::prof::{self, Filed};
use crate::space::Segment;
use crate::upkeep;

/// What became of a block that was to be freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freed {
    Yes,
    /// It is a hardened block that the profiler sampled, and all is as it should be.
    Sampled,
    /// It is no hardened block of a slab.
    Other,
}

/// Frees the block at `at` if it is a hardened one of a slab. Functions of this family were called
/// for it, perhaps with a size.
#[inline(always)]
pub fn free(at: usize, family: Family, said: Option<usize>) -> Freed {
    let found = Segment::plain_slab(at).and_then(|slab| arena::place_in_slab(slab, at));
    let Some(Ok((place, is_first, class))) = found else {
        return free_if_small(at, family, said);
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
    take_back(place, word, class, &keys);
    Freed::Yes
}

/// Marks a block in use, which has this word, as free, and lets it wait.
#[inline(always)]
fn take_back(place: WordPlace, word: Word, class: Class, keys: &Keys) {
    // SAFETY: a region of a hardened slab, with its word, which the caller gave up.
    let random = unsafe { place.take_back(word, site(), keys) };
    match delay::with_rings() {
        Some(mine) => delay::put(mine, class, place.bytes, place.at, random),
        None => give_back(class, place.at),
    }
}

/// Like [`free`], for all that is rare: sampled blocks, other segments, and large blocks, which it
/// looks at.
#[cold]
#[inline(never)]
pub fn free_if_small(at: usize, family: Family, said: Option<usize>) -> Freed {
    match find(at) {
        Found::Small(Ok((place, is_first, class))) => {
            let word = expect_whole(place, is_first);
            check_call(|| place.size(word), word, at, family, said);
            if prof::filed(at) == Filed::Sampled {
                return Freed::Sampled;
            }
            take_back(place, word, class, keys());
            Freed::Yes
        }
        Found::Small(Err(misuse)) => misuse.die(at),
        Found::Large(place) => {
            free_large(place, family, said);
            Freed::Other
        }
        Found::Plain => Freed::Other,
    }
}

/// Looks at a large block that is about to be freed.
#[cold]
#[inline(never)]
fn free_large(place: RunPlace, family: Family, said: Option<usize>) {
    large::check_free(place.at);
    let (size, word) = expect_record(place);
    check_call(|| size, word, place.at, family, said);
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

/// Marks a small block as free and clears it, for a thread that cannot take it back now.
#[cold]
#[inline(never)]
pub fn give_up(at: usize) {
    if let Found::Small(Ok((place, ..))) = find(at) {
        // SAFETY: a region of a hardened slab, which the caller gave up.
        unsafe {
            if let Some(word) = place.in_use(keys()) {
                place.take_back(word, site(), keys());
            }
        }
    }
}
