//! The process's snapshot, and copies of it.
//!
//! It lives in metadata memory, a record for every arena, so that neither taking nor reading it
//! allocates. [`refresh`] works in place, because counts that must not fall are kept in the
//! records; a report, which calls foreign code in between, works on a copy of its own ([`take`]).
//!
//! The lock is outermost but for none: its holder takes those of all floors, one at a time.

use super::figures::{ArenaFigures, Totals};
use super::gather;
use crate::arena::{self, Arena};
use crate::cache::inside;
use crate::space::meta;
use crate::sys::count::Kind;
use crate::sys::lock::{Mutex, RawLock};
use core::ptr::NonNull;

/// In the place of an arena's number: all arenas that there are, and all that were destroyed.
pub const ALL: usize = 4096;
pub const DESTROYED: usize = 4097;

/// A record of the list that a snapshot is. A table leads to each by the arena's number, because a
/// refresh looks one up for every block that caches hold.
struct Node {
    figures: ArenaFigures,
    next: Option<NonNull<Node>>,
}

pub struct Snapshot {
    pub totals: Totals,
    /// How often the process's snapshot was refreshed up to this one.
    pub epoch: u64,
    /// That of all arenas, that of destroyed ones, then those of arenas as they were seen first.
    first: Option<NonNull<Node>>,
    last: Option<NonNull<Node>>,
    table: Table,
}

/// Where the records are, by [`Table::slot`].
struct Table {
    slots: Option<NonNull<Option<NonNull<Node>>>>,
    len: usize,
}

impl Table {
    const NONE: Table = Table {
        slots: None,
        len: 0,
    };
    const LEAST: usize = 16;

    /// The place of the record with this index.
    fn slot(index: usize) -> usize {
        match index {
            ALL => 0,
            DESTROYED => 1,
            arena => arena.saturating_add(2),
        }
    }

    fn bytes(len: usize) -> usize {
        len * size_of::<Option<NonNull<Node>>>()
    }

    #[inline(never)]
    fn get(&self, index: usize) -> Option<NonNull<Node>> {
        #[cfg(test)]
        super::tests::step();
        let slot = Table::slot(index);
        if slot >= self.len {
            return None;
        }
        // SAFETY: the table is initialised up to its length.
        unsafe { *self.slots?.add(slot).as_ptr() }
    }

    /// Makes room for a record; none when memory is out.
    fn reach(&mut self, index: usize) -> Option<()> {
        let slot = Table::slot(index);
        if slot < self.len {
            return Some(());
        }
        let len = (slot + 1).next_power_of_two().max(Table::LEAST);
        let new = meta::take(Table::bytes(len))?.cast::<Option<NonNull<Node>>>();
        // SAFETY: the room is so long and nobody else's; zeros are no records.
        unsafe {
            new.write_bytes(0, len);
            if let Some(old) = self.slots {
                new.copy_from_nonoverlapping(old, self.len);
            }
        }
        self.give();
        (self.slots, self.len) = (Some(new), len);
        Some(())
    }

    fn set(&mut self, index: usize, node: NonNull<Node>) {
        if let Some(slots) = self.slots {
            // SAFETY: there is room, which `reach` made.
            unsafe { slots.add(Table::slot(index)).write(Some(node)) };
        }
    }

    fn give(&mut self) {
        if let Some(slots) = self.slots.take() {
            // SAFETY: taken with this size, and nobody goes by it any more.
            unsafe { meta::give(slots.cast(), Table::bytes(self.len)) };
        }
        self.len = 0;
    }
}

// SAFETY: the records are the snapshot's own.
unsafe impl Send for Snapshot {}

static SNAPSHOT: Mutex<Snapshot> = Mutex::named(Kind::Other, Snapshot::empty());

impl Snapshot {
    const fn empty() -> Self {
        Snapshot {
            totals: Totals::ZERO,
            epoch: 0,
            first: None,
            last: None,
            table: Table::NONE,
        }
    }

    /// The figures of the arena with this number, [`ALL`] or [`DESTROYED`].
    pub fn arena(&self, index: usize) -> Option<&ArenaFigures> {
        // SAFETY: as in `each`.
        (self.table.get(index)).map(|node| unsafe { &node.as_ref().figures })
    }

    /// All arenas that there are.
    pub fn arenas(&self) -> impl Iterator<Item = &ArenaFigures> {
        self.each().filter(|a| a.index < ALL && a.exists)
    }

    /// All arenas together.
    pub fn merged(&self) -> Option<&ArenaFigures> {
        self.arena(ALL)
    }

    fn each(&self) -> impl Iterator<Item = &ArenaFigures> {
        // SAFETY: the list's records are the snapshot's and stay while it is borrowed.
        unsafe { walk(self.first) }
    }

    /// The record of all arenas together, and those of each.
    pub(super) fn all_and_each(
        &mut self,
    ) -> Option<(&mut ArenaFigures, impl Iterator<Item = &ArenaFigures>)> {
        // SAFETY: as in `each`; the snapshot is borrowed mutably, and the first record, which is
        // that of all, is not among those behind it.
        unsafe {
            let all = self.first?.as_mut();
            debug_assert_eq!(all.figures.index, ALL);
            let each = walk(all.next).filter(|a: &&ArenaFigures| a.index < ALL && a.exists);
            Some((&mut all.figures, each))
        }
    }

    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = &mut ArenaFigures> {
        let mut at = self.first;
        core::iter::from_fn(move || {
            // SAFETY: as in `each`; the snapshot is borrowed mutably, and no record comes twice.
            let node = unsafe { at?.as_mut() };
            at = node.next;
            #[cfg(test)]
            super::tests::step();
            Some(&mut node.figures)
        })
    }

    pub(super) fn arena_mut(&mut self, index: usize) -> Option<&mut ArenaFigures> {
        // SAFETY: as in `each`; the snapshot is borrowed mutably.
        (self.table.get(index)).map(|mut node| unsafe { &mut node.as_mut().figures })
    }

    /// Makes sure of a record for everything; none when memory is out.
    fn make_room(&mut self) -> Option<()> {
        // There is always one arena, and it owns what no other does.
        arena::any()?;
        self.record(ALL)?;
        self.record(DESTROYED)?;
        for arena in arena::made() {
            self.record(arena.index() as usize)?;
        }
        Some(())
    }

    /// The record with this index, made at the end of the list if need be.
    fn record(&mut self, index: usize) -> Option<NonNull<Node>> {
        if let Some(node) = self.table.get(index) {
            return Some(node);
        }
        self.table.reach(index)?;
        let node = meta::take(size_of::<Node>())?.cast::<Node>();
        // SAFETY: the record is as large and aligned as a node and nobody else's. All of a node's
        // figures are numbers, or options and flags of which zero is a value. The last one is the
        // snapshot's.
        unsafe {
            node.write_bytes(0, 1);
            (*node.as_ptr()).figures.index = index;
            match self.last {
                Some(last) => (*last.as_ptr()).next = Some(node),
                None => self.first = Some(node),
            }
        }
        self.last = Some(node);
        self.table.set(index, node);
        Some(node)
    }

    /// A copy; none when memory is out.
    fn copy(&self) -> Option<Snapshot> {
        let mut copy = Snapshot::empty();
        (copy.totals, copy.epoch) = (self.totals, self.epoch);
        for figures in self.each() {
            let mut to = copy.record(figures.index)?;
            // SAFETY: the record is the copy's, which nobody else refers to; figures are plain
            // data.
            unsafe { core::ptr::copy_nonoverlapping(figures, &raw mut to.as_mut().figures, 1) };
        }
        Some(copy)
    }
}

/// The figures from a record of a list on.
///
/// # Safety
/// The records stay, and are not written, for as long as the caller says.
unsafe fn walk<'a>(mut at: Option<NonNull<Node>>) -> impl Iterator<Item = &'a ArenaFigures> {
    core::iter::from_fn(move || {
        // SAFETY: the caller's promise.
        let node = unsafe { at?.as_ref() };
        at = node.next;
        #[cfg(test)]
        super::tests::step();
        Some(&node.figures)
    })
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        while let Some(node) = self.first {
            // SAFETY: the record is the snapshot's, taken with this size, and out of the list now.
            unsafe {
                self.first = node.as_ref().next;
                meta::give(node.cast(), size_of::<Node>());
            }
        }
        self.table.give();
    }
}

/// Brings the process's snapshot up to date; false, and it is as it was, when memory is out.
pub fn refresh() -> bool {
    let mut snapshot = SNAPSHOT.lock();
    refreshed(&mut snapshot)
}

fn refreshed(snapshot: &mut Snapshot) -> bool {
    let room = snapshot.make_room().is_some();
    if room {
        gather::gather(snapshot);
        snapshot.totals.own_lock = SNAPSHOT.raw().reading();
        snapshot.epoch += 1;
    }
    room
}

/// Looks into the process's snapshot, which is taken if there was none yet; none when memory is
/// out. `f` must neither allocate nor free.
pub fn with<T>(f: impl FnOnce(&Snapshot) -> T) -> Option<T> {
    let mut snapshot = SNAPSHOT.lock();
    let there = snapshot.epoch > 0 || refreshed(&mut snapshot);
    there.then(|| f(&snapshot))
}

/// Refreshes the process's snapshot and copies it; none when memory is out.
pub fn take() -> Option<Snapshot> {
    let _inside = inside::enter_or_wait();
    let mut snapshot = SNAPSHOT.lock();
    refreshed(&mut snapshot).then(|| snapshot.copy()).flatten()
}

/// Keeps what an arena has done that was just destroyed, among that of all destroyed ones.
pub fn retire(arena: &Arena) {
    let mut snapshot = SNAPSHOT.lock();
    // Without memory for it, it is lost.
    if snapshot
        .record(ALL)
        .and(snapshot.record(DESTROYED))
        .is_some()
    {
        gather::retire(&mut snapshot, arena);
    }
}

/// Has all locks that the statistics tell of begin to count anew.
pub fn clear_readings() {
    gather::clear_readings();
    SNAPSHOT.raw().clear_reading();
}

/// The lock of the statistics, for `fork`.
pub fn lock() -> &'static RawLock {
    SNAPSHOT.raw()
}
