//! The ends of a process that misused a hardened block, and the reports of them.

use crate::arena::Misuse;
use crate::hardened::word::{self, Damage, Family, Word, WordPlace};
use crate::hardened::{self, Mismatch, keys};
use crate::prof::unwind::Registers;
use crate::report::{self, Block, Event, Finding, FoundBy};
use crate::sys::fault;

/// Ends the process because of what was written to a free block.
#[cold]
#[inline(never)]
pub fn die_written(place: WordPlace) -> ! {
    // SAFETY: a free region of a hardened slab.
    die_at(unsafe { place.written(keys()) }, place)
}

/// Ends the process because of a block that is not in use, or what lies around it.
#[cold]
#[inline(never)]
pub fn die_of(place: WordPlace) -> ! {
    // SAFETY: a region of a hardened slab.
    die_at(unsafe { place.damage(keys()) }, place)
}

/// Ends the process if a free names another size than the block's, or another family, if that is
/// not allowed.
#[inline(always)]
pub fn check_call(
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

/// Ends the process with a report of what a place shows.
#[cold]
#[inline(never)]
pub fn die_at(damage: Damage, place: WordPlace) -> ! {
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
pub fn die_in_use(place: WordPlace) -> ! {
    // SAFETY: a region of a hardened slab.
    match unsafe { place.damage(keys()) } {
        Damage::Free(_) => Misuse::NoBlock.die_in_use(place.at),
        damage => die_at(damage, place),
    }
}
