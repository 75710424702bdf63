//! The stacks of requests while their bytes are counted, for the heap profiler and others.
//!
//! While the offsets of stacks are hidden ([`set`]), the two tables that the fast paths look up
//! hold the offset of a stack that stays empty ([`StackOffset::HIDDEN`]). So every request of every
//! thread takes the slow path, which finds the offset here, counts the bytes and pops as the fast
//! path would have. Sampling is switched on for all threads at once, and while it is off no
//! instruction knows of it.
//!
//! One thread at a time changes the tables, under a lock: to hide or show the offsets, or to tailor
//! a class ([`try_change`]), which enters its offset in the tables that hold the offsets then.
//!
//! A thread may read an entry just before it changes. So the copy is written before the entries are
//! hidden, and stays valid after they are restored ([`saved`]).

mod saved;

use super::late_values;
use super::{MEDIUM_GRAIN, MEDIUM_MAX, SMALL_GRAIN, StackOffset, TABLE_MAX, TABLES};
use crate::sys::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use crate::sys::lock::{Guard, Mutex, RawLock};
use crate::sys::rank::Rank;

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

/// Held by the thread that changes the tables.
static CHANGING: Mutex<()> = Mutex::named(Rank::Places, ());
/// Whether the tables are hidden. Changed by the thread that is changing the tables.
static HIDDEN: AtomicBool = AtomicBool::new(false);
/// For what they are hidden, as bits of [`User`]. Changed by the thread that is changing the
/// tables.
static USERS: AtomicU8 = AtomicU8::new(0);

/// What the offsets are hidden for.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum User {
    Profiler = 1,
    Guards = 2,
}

/// Whether offsets are hidden.
#[inline(always)]
pub fn is_on() -> bool {
    HIDDEN.load(Ordering::Relaxed)
}

/// The offset of a request of up to [`MEDIUM_MAX`] bytes whose entry was found hidden.
pub fn offset_of(n: usize) -> StackOffset {
    if n <= TABLE_MAX {
        offset_of_small(n)
    } else {
        offset_of_medium(n)
    }
}

/// Like [`offset_of`], for a request of up to [`TABLE_MAX`] bytes.
#[inline(always)]
pub fn offset_of_small(n: usize) -> StackOffset {
    debug_assert!(n <= TABLE_MAX);
    // Two instructions; of `div_ceil` the compiler makes more where it does not see the bound.
    let grains = n.wrapping_add(SMALL_GRAIN - 1) / SMALL_GRAIN;
    // SAFETY: `n` is at most TABLE_MAX, so the index is inside the table.
    StackOffset(unsafe { saved::get(&SAVED.small, grains) } as usize)
}

/// Like [`offset_of`], for a request above [`TABLE_MAX`] bytes.
#[inline(always)]
pub fn offset_of_medium(n: usize) -> StackOffset {
    debug_assert!(n <= MEDIUM_MAX);
    let grains = n.wrapping_add(MEDIUM_GRAIN - 1) / MEDIUM_GRAIN;
    // SAFETY: `n` is at most MEDIUM_MAX, so the index is inside the table.
    StackOffset(unsafe { saved::get(&SAVED.medium, grains) } as usize)
}

/// The lock, for forks.
pub fn lock() -> &'static RawLock {
    CHANGING.raw()
}

/// Takes the right to change the tables; `None` if another thread has it.
pub fn try_change() -> Option<Guard<'static, ()>> {
    CHANGING.try_lock()
}

/// Hides the offsets for a user, or shows them again if no other wants them hidden. `wanted` says
/// which, under the lock: it takes no other. For a thread that is inside.
#[inline(always)]
pub fn set(user: User, wanted: impl FnOnce() -> bool) {
    let _changing = CHANGING.lock_seldom();
    let others = USERS.load(Ordering::Relaxed) & !(user as u8);
    let users = others | if wanted() { user as u8 } else { 0 };
    USERS.store(users, Ordering::Relaxed);
    change(users != 0);
}

/// For a thread that has the right to change the tables.
#[cold]
#[inline(never)]
fn change(on: bool) {
    if on == is_on() {
        return;
    }
    let tables = [
        (&TABLES.small[..], &SAVED.small[..]),
        (&TABLES.medium[..], &SAVED.medium[..]),
    ];
    if !on {
        for (table, saved) in tables {
            saved::show(table, saved);
        }
        HIDDEN.store(false, Ordering::Release);
        return;
    }
    for (table, saved) in tables {
        saved::copy(table, saved);
    }
    HIDDEN.store(true, Ordering::Release);
    for (table, _) in tables {
        saved::hide(table, StackOffset::HIDDEN.bytes() as u32);
    }
}

/// Assigns the requests of up to `cut` bytes whose offset is `from` to `to`, hidden or not. For the
/// thread that makes a class, which has the right to change the tables.
pub(super) fn assign(from: StackOffset, to: StackOffset, cut: usize) {
    let (from, to) = (from.bytes() as u32, to.bytes() as u32);
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
        Class, STRIDE, offset_of_medium as shown_medium, offset_of_small as shown_small,
    };

    #[test]
    fn hidden_offsets_are_found_and_shown_again() {
        crate::testing::own_process!();
        let sizes = (0..=MEDIUM_MAX).step_by(7);
        let offset = |n| {
            if n <= TABLE_MAX {
                shown_small(n)
            } else {
                shown_medium(n)
            }
        };
        let before: Vec<(usize, StackOffset)> = sizes.map(|n| (n, offset(n))).collect();
        for _ in 0..2 {
            set(User::Profiler, || true);
            set(User::Profiler, || true);
            for &(n, old) in &before {
                assert!(offset(n).is_hidden(), "{n}");
                assert_eq!(offset_of(n), old, "{n}");
                assert_eq!(Class::for_request(n), old.class(), "{n}");
            }
            set(User::Profiler, || false);
            set(User::Profiler, || false);
            for &(n, old) in &before {
                assert_eq!(offset(n), old, "{n}");
            }
        }
        assert!(
            before
                .iter()
                .all(|(_, offset)| offset.bytes() % STRIDE == 0)
        );
    }

    #[test]
    fn offsets_stay_hidden_while_any_user_wants_that() {
        crate::testing::own_process!();
        set(User::Profiler, || true);
        set(User::Guards, || true);
        set(User::Profiler, || false);
        assert!(is_on() && shown_small(64).is_hidden());
        set(User::Guards, || false);
        assert!(!is_on() && !shown_small(64).is_hidden());
    }

    #[test]
    fn a_class_made_while_offsets_are_hidden_serves_once_they_are_shown() {
        crate::testing::own_process!();
        let from = shown_medium(1100);
        let to = StackOffset::of(Class(super::super::TABLED as u8 + 1));
        set(User::Profiler, || true);
        assign(from, to, 1152);
        assert_eq!((offset_of(1100), offset_of(1200)), (to, from));
        set(User::Profiler, || false);
        assert_eq!((shown_medium(1100), shown_medium(1200)), (to, from));
    }
}
