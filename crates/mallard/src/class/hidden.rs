//! The places of requests while the heap profiler samples.
//!
//! While [`hide`] is in force, the two tables that the fast paths look up hold the place of a stack
//! that is empty for ever ([`Place::HIDDEN`]), so every request of every thread takes the slow
//! path, which finds its place here, counts its bytes and pops as the fast path would have.
//! Sampling is switched on for all threads at once, and while it is off no instruction knows of it.
//!
//! One thread at a time changes the tables ([`try_change`]): to hide or show the places, or to
//! tailor a class, which enters its place where the places are.
//!
//! A thread may read an entry just before it changes. So the copy is written before the entries are
//! hidden, and stays valid after they are restored.

use super::late_values;
use super::{MEDIUM_GRAIN, MEDIUM_MAX, Place, SMALL_GRAIN, TABLE_MAX, TABLES};
use crate::sys::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use crate::sys::time;

/// Copies of the tables of the same names.
struct Saved {
    small: [AtomicU32; TABLE_MAX / SMALL_GRAIN + 1],
    medium: [AtomicU32; MEDIUM_MAX / MEDIUM_GRAIN + 1],
}

/// Zero, and hence without memory, in processes that never sample.
static SAVED: Saved = Saved {
    small: [const { AtomicU32::new(0) }; TABLE_MAX / SMALL_GRAIN + 1],
    medium: [const { AtomicU32::new(0) }; MEDIUM_MAX / MEDIUM_GRAIN + 1],
};

/// Whether a thread is changing the tables. In the child of a fork during that, no thread does any
/// more.
static CHANGING: AtomicBool = AtomicBool::new(false);
/// Whether the tables are hidden. Changed by the thread that is changing the tables.
static HIDDEN: AtomicBool = AtomicBool::new(false);

/// Whether places are hidden.
#[inline(always)]
pub fn is_on() -> bool {
    HIDDEN.load(Ordering::Relaxed)
}

/// The place of a request of up to [`MEDIUM_MAX`] bytes whose entry was found hidden.
pub fn place_of(n: usize) -> Place {
    match n <= TABLE_MAX {
        true => place_of_small(n),
        false => place_of_medium(n),
    }
}

/// Like [`place_of`], for a request of up to [`TABLE_MAX`] bytes.
#[inline(always)]
pub fn place_of_small(n: usize) -> Place {
    debug_assert!(n <= TABLE_MAX);
    // Pairs with the stores of `hide`: the copy is older than the hidden entry.
    fence(Ordering::Acquire);
    // Two instructions; of `div_ceil` the compiler makes more where it does not see the bound.
    let grains = n.wrapping_add(SMALL_GRAIN - 1) / SMALL_GRAIN;
    // SAFETY: `n` is at most TABLE_MAX, so the index is inside the table.
    let place = unsafe { SAVED.small.get_unchecked(grains) };
    Place(place.load(Ordering::Relaxed) as usize)
}

/// Like [`place_of`], for a request above [`TABLE_MAX`] bytes.
#[inline(always)]
pub fn place_of_medium(n: usize) -> Place {
    debug_assert!(n <= MEDIUM_MAX);
    fence(Ordering::Acquire);
    // SAFETY: `n` is at most MEDIUM_MAX, so the index is inside the table.
    let grains = n.wrapping_add(MEDIUM_GRAIN - 1) / MEDIUM_GRAIN;
    // SAFETY: as above, for MEDIUM_MAX.
    let place = unsafe { SAVED.medium.get_unchecked(grains) };
    Place(place.load(Ordering::Relaxed) as usize)
}

/// Pairs of an entry of the tables and of its copy.
fn entries() -> impl Iterator<Item = (&'static AtomicU32, &'static AtomicU32)> {
    let small = TABLES.small.iter().zip(&SAVED.small);
    small.chain(TABLES.medium.iter().zip(&SAVED.medium))
}

/// Takes the right to change the tables, which [`end_change`] gives back; false if another thread
/// has it.
pub(super) fn try_change() -> bool {
    !CHANGING.swap(true, Ordering::Acquire)
}

pub(super) fn end_change() {
    CHANGING.store(false, Ordering::Release);
}

/// Calls `f` with the right to change the tables.
fn change(f: impl FnOnce()) {
    while !try_change() {
        time::give_way();
    }
    f();
    end_change();
}

/// Hides the places, if they are not.
#[cold]
#[inline(never)]
pub fn hide() {
    change(|| {
        if is_on() {
            return;
        }
        for (entry, saved) in entries() {
            saved.store(entry.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        HIDDEN.store(true, Ordering::Release);
        for (entry, _) in entries() {
            entry.store(Place::HIDDEN.offset() as u32, Ordering::Release);
        }
    });
}

/// Shows the places again, if they are hidden.
#[cold]
#[inline(never)]
pub fn show() {
    change(|| {
        if !is_on() {
            return;
        }
        for (entry, saved) in entries() {
            entry.store(saved.load(Ordering::Relaxed), Ordering::Release);
        }
        HIDDEN.store(false, Ordering::Release);
    });
}

/// Assigns the requests of up to `cut` bytes whose place is `from` to `to`, hidden or not. For the
/// thread that makes a class, which has the right to change the tables.
pub(super) fn assign(from: Place, to: Place, cut: usize) {
    let (from, to) = (from.offset() as u32, to.offset() as u32);
    let small = (cut / SMALL_GRAIN + 1).min(TABLES.small.len());
    let medium = (cut / MEDIUM_GRAIN + 1).min(TABLES.medium.len());
    let (small_saved, medium_saved) = (&SAVED.small[..small], &SAVED.medium[..medium]);
    if is_on() {
        for saved in small_saved.iter().chain(medium_saved) {
            late_values::enter(saved, from, to);
        }
        return;
    }
    let entries = TABLES.small[..small].iter().chain(&TABLES.medium[..medium]);
    for entry in entries {
        late_values::enter(entry, from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{
        Class, STRIDE, place_of_medium as shown_medium, place_of_small as shown_small,
    };

    #[test]
    fn hidden_places_are_found_and_shown_again() {
        crate::testing::own_process!();
        let sizes = (0..=MEDIUM_MAX).step_by(7);
        let place = |n| match n <= TABLE_MAX {
            true => shown_small(n),
            false => shown_medium(n),
        };
        let before: Vec<(usize, Place)> = sizes.map(|n| (n, place(n))).collect();
        for _ in 0..2 {
            hide();
            hide();
            for &(n, old) in &before {
                assert!(place(n).is_hidden(), "{n}");
                assert_eq!(place_of(n), old, "{n}");
                assert_eq!(Class::for_request(n), old.class(), "{n}");
            }
            show();
            show();
            for &(n, old) in &before {
                assert_eq!(place(n), old, "{n}");
            }
        }
        assert!(before.iter().all(|(_, place)| place.offset() % STRIDE == 0));
    }

    #[test]
    fn a_class_made_while_places_are_hidden_serves_once_they_are_shown() {
        crate::testing::own_process!();
        let from = shown_medium(1100);
        let to = Place::of(Class(super::super::TABLED as u8 + 1));
        hide();
        assign(from, to, 1152);
        assert_eq!((place_of(1100), place_of(1200)), (to, from));
        show();
        assert_eq!((shown_medium(1100), shown_medium(1200)), (to, from));
    }
}
