//! A copy of the samples in use, by groups of equal ones, for profiles that list them.

use super::{count, each};
use crate::arena::inspect;
use crate::prof::gap::{Weight, rounded};
use crate::prof::sites::Site;
use crate::prof::sort::by_key;
use crate::space::meta;
use core::ptr::NonNull;

/// A group of equal samples of one site.
#[derive(Clone, Copy)]
pub struct SampleGroup {
    pub site: &'static Site,
    pub weight: Weight,
    pub usable: usize,
    pub requested: usize,
    pub thread: u32,
    pub arena: u16,
    pub count: u32,
    /// The free bytes in pages that these blocks keep from being returned, in units of
    /// 2^-[`PINNED_BITS`].
    pinned: usize,
    /// The address of a block in a slab whose pinned bytes are not known yet; 0 for none.
    in_slab: usize,
}

/// Fraction bits of pinned bytes, which are shared out among the blocks of a slab.
const PINNED_BITS: u32 = 8;

/// What each of the blocks of a slab has of the bytes that they pin.
fn share((bytes, blocks): (usize, usize)) -> usize {
    (bytes << PINNED_BITS) / blocks.max(1)
}

impl SampleGroup {
    /// The free bytes in pages that the blocks of the group keep from being returned.
    pub fn pinned_bytes(&self) -> u64 {
        rounded(self.weight.times(self.pinned) >> PINNED_BITS)
    }
}

/// A copy of all samples, in metadata memory.
pub struct SampleGroups {
    first: NonNull<SampleGroup>,
    room: usize,
    len: usize,
}

/// The most samples that are copied: with more, a profile would be long and its making slow.
const COPIED_SAMPLES_MAX: usize = 200_000;

/// Copies all samples that were taken after this number of resets.
/// `None` if there are too many, or memory is out.
pub fn groups(resets: u16) -> Option<SampleGroups> {
    // Some more, for those that come meanwhile.
    let room = count() + count() / 8 + 64;
    if room > COPIED_SAMPLES_MAX {
        return None;
    }
    let first = meta::take(room * size_of::<SampleGroup>())?.cast();
    let mut groups = SampleGroups {
        first,
        room,
        len: 0,
    };
    each(&mut |block, sample| {
        if sample.resets == resets {
            groups.push(SampleGroup {
                site: sample.site,
                weight: sample.weight,
                usable: sample.usable,
                requested: sample.requested,
                thread: sample.thread,
                arena: sample.arena,
                count: 1,
                pinned: 0,
                in_slab: if sample.slab != 0 { block } else { 0 },
            });
        }
    });
    groups.look_at_slabs();
    Some(groups)
}

impl SampleGroups {
    /// Appends a group, or adds it to the last one if their samples are equal.
    fn push(&mut self, group: SampleGroup) {
        if let Some(last) = self.len.checked_sub(1) {
            // SAFETY: this many groups are written.
            let last = unsafe { self.first.add(last).as_mut() };
            let is_same = core::ptr::eq(last.site, group.site)
                && (last.weight, last.usable, last.requested)
                    == (group.weight, group.usable, group.requested)
                && (last.thread, last.arena) == (group.thread, group.arena)
                && (last.in_slab, group.in_slab) == (0, 0);
            if is_same {
                last.count += group.count;
                last.pinned += group.pinned;
                return;
            }
        }
        if self.len < self.room {
            // SAFETY: the record has room for this many groups.
            unsafe { self.first.add(self.len).write(group) };
            self.len += 1;
        }
    }

    /// Finds what blocks in slabs pin. Without the lock of samples, after which no other of the
    /// heap may be taken; a block that is freed meanwhile pins nothing, or what its slab's next one
    /// does.
    fn look_at_slabs(&mut self) {
        for i in 0..core::mem::take(&mut self.len) {
            // SAFETY: this many groups are written. Those before take no more room than they did.
            let mut group = unsafe { self.first.add(i).read() };
            match core::mem::take(&mut group.in_slab) {
                0 => {}
                block => group.pinned = share(inspect::pinned(block)),
            }
            self.push(group);
        }
    }

    pub fn get(&self) -> &[SampleGroup] {
        // SAFETY: this many groups are written.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }

    fn get_mut(&mut self) -> &mut [SampleGroup] {
        // SAFETY: as above, and nothing else uses them.
        unsafe { core::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }

    pub fn sort_by_thread(&mut self) {
        by_key(self.get_mut(), |group| (group.thread as usize, 0));
    }

    /// By site, and for each site by thread.
    pub fn sort_by_site(&mut self) {
        by_key(self.get_mut(), |group| {
            let site = core::ptr::from_ref(group.site).addr();
            (site, group.thread as usize)
        });
    }

    pub fn iter(&self) -> impl Iterator<Item = &SampleGroup> {
        self.get().iter()
    }
}

impl Drop for SampleGroups {
    fn drop(&mut self) {
        // SAFETY: taken with this size.
        unsafe { meta::give(self.first.cast(), self.room * size_of::<SampleGroup>()) };
    }
}
