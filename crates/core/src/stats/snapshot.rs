//! A snapshot: the figures of all arenas at one moment.
//!
//! It lives in metadata memory, with a record for every arena, so that neither taking nor reading
//! it allocates.

use super::figures::{ArenaFigures, Totals};
use crate::arena::{self, ALL, DESTROYED};
use crate::space::meta;
use core::ptr::NonNull;

/// A record in the snapshot's list. A table maps each arena's number to its record, because a
/// refresh looks one up for every block that caches hold.
struct Node {
    figures: ArenaFigures,
    next: Option<NonNull<Node>>,
}

pub struct Snapshot {
    pub totals: Totals,
    /// How often the process's snapshot had been refreshed.
    pub epoch: u64,
    /// Records: all arenas, destroyed ones, then each arena in the order first seen.
    first: Option<NonNull<Node>>,
    last: Option<NonNull<Node>>,
    table: Table,
}

/// The records, by [`Table::slot`].
struct Table {
    slots: Option<NonNull<Option<NonNull<Node>>>>,
    len: usize,
}

impl Table {
    const NONE: Table = Table {
        slots: None,
        len: 0,
    };
    /// Slots of the first table.
    const SLOTS_MIN: usize = 16;

    /// The table position of the record with this index.
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

    /// Makes room for a record; `None` when memory is out.
    fn reach(&mut self, index: usize) -> Option<()> {
        let slot = Table::slot(index);
        if slot < self.len {
            return Some(());
        }
        let len = (slot + 1).next_power_of_two().max(Table::SLOTS_MIN);
        let new = meta::take(Table::bytes(len))?.cast::<Option<NonNull<Node>>>();
        // SAFETY: the room is this long, and nothing else uses it; zeros are empty slots.
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
            // SAFETY: `reach` made room for it.
            unsafe { slots.add(Table::slot(index)).write(Some(node)) };
        }
    }

    fn give(&mut self) {
        if let Some(slots) = self.slots.take() {
            // SAFETY: taken with this size, and no longer used.
            unsafe { meta::give(slots.cast(), Table::bytes(self.len)) };
        }
        self.len = 0;
    }
}

// SAFETY: the snapshot owns its records.
unsafe impl Send for Snapshot {}

impl Snapshot {
    pub(super) const fn empty() -> Self {
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

    /// All live arenas.
    pub fn arenas(&self) -> impl Iterator<Item = &ArenaFigures> {
        self.each().filter(|a| a.index < ALL && a.exists)
    }

    /// All arenas together.
    pub fn merged(&self) -> Option<&ArenaFigures> {
        self.arena(ALL)
    }

    fn each(&self) -> impl Iterator<Item = &ArenaFigures> {
        // SAFETY: the snapshot owns the list's records, and they stay while it is borrowed.
        unsafe { walk(self.first) }
    }

    /// The merged record, and those of each live arena.
    pub(super) fn all_and_each(
        &mut self,
    ) -> Option<(&mut ArenaFigures, impl Iterator<Item = &ArenaFigures>)> {
        // SAFETY: as in `each`; the snapshot is borrowed mutably, and the first record, the merged
        // one, is not among those after it.
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
            // SAFETY: as in `each`; the snapshot is borrowed mutably, and each record comes once.
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

    /// Makes all records that a refresh needs; `None` when memory is out.
    pub(super) fn make_room(&mut self) -> Option<()> {
        // There is always a first arena, which owns what no other does.
        arena::any()?;
        self.record(ALL)?;
        self.record(DESTROYED)?;
        for arena in arena::made() {
            self.record(arena.index() as usize)?;
        }
        Some(())
    }

    /// Makes the records in which destroyed arenas leave their history.
    pub(super) fn make_room_for_destroyed(&mut self) -> Option<()> {
        self.record(ALL).and(self.record(DESTROYED)).map(|_| ())
    }

    /// The record with this index, added to the end of the list if needed.
    #[inline(never)]
    fn record(&mut self, index: usize) -> Option<NonNull<Node>> {
        if let Some(node) = self.table.get(index) {
            return Some(node);
        }
        self.table.reach(index)?;
        let node = meta::take(size_of::<Node>())?.cast::<Node>();
        // SAFETY: the record has the size and alignment of a node, and nothing else uses it. All
        // figures of a node are numbers, or options and flags for which zero is valid. The snapshot
        // owns the last one.
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

    /// Copies the snapshot; `None` when memory is out.
    pub(super) fn copy(&self) -> Option<Snapshot> {
        let mut copy = Snapshot::empty();
        (copy.totals, copy.epoch) = (self.totals, self.epoch);
        for figures in self.each() {
            let mut to = copy.record(figures.index)?;
            // SAFETY: the copy owns the record, and nothing else refers to it; figures are plain
            // data.
            unsafe { core::ptr::copy_nonoverlapping(figures, &raw mut to.as_mut().figures, 1) };
        }
        Some(copy)
    }
}

/// Iterates over the figures of a list, from this record on.
///
/// # Safety
/// The records stay, and are not written, during the lifetime `'a`.
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
            // SAFETY: the snapshot owns the record, took it with this size, and has removed it from
            // the list.
            unsafe {
                self.first = node.as_ref().next;
                meta::give(node.cast(), size_of::<Node>());
            }
        }
        self.table.give();
    }
}
