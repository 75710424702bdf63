//! Blocks on their way back to where they came from, past all stores.
//!
//! Regions go to the bins of the arenas that own their slabs (`bin`, `slab`), many under one lock;
//! blocks of whole pages to the page heap (`large`). Whose a region is the page map alone says:
//! nothing is read of a block.

use super::slab::Slab;
use super::{large, older, record};
use crate::class::{Class, LINE, PAGE};
use crate::die;
use core::mem::MaybeUninit;
use core::ptr;

/// Gives blocks back to where they came from: regions to their slabs, with one lock for each arena
/// that owns some, runs to the page heap.
#[inline(never)]
pub(super) fn give_back(class: Class, blocks: &mut [usize]) {
    if !class.is_slab() {
        large::free_many(blocks);
        return;
    }
    let blocks = match class.is_tailored() {
        true => older::give_back(class, blocks),
        false => blocks,
    };
    let mut rest = &*blocks;
    while !rest.is_empty() {
        let (done, retired) = give_back_group(class, &rest[..rest.len().min(GROUP)]);
        rest = &rest[done..];
        if let Some(slab) = retired {
            // SAFETY: empty, in no list of a bin, and out of its bin, as those that it leads to;
            // every block of them was in this group or given before, so nobody refers to them.
            unsafe { slab.unmake_row() };
        }
    }
}

/// Blocks handled together: all their slab records are looked up first, so that the processor has
/// many of these loads under way at once. What is noted of them is on the stack of the program's
/// thread.
const GROUP: usize = 128;

/// A group's blocks, parted into stretches: neighbours that are regions of one slab. Blocks that
/// are freed together often lie together. It is kept short, because it is on the stack of the
/// program's thread.
struct Stretches {
    /// The record of the first one's slab, and how far behind it those of all are: a group ends
    /// before one that is too far.
    first: usize,
    slabs: [MaybeUninit<i32>; GROUP],
    /// Where in the group each begins, and how many blocks it has.
    parts: [MaybeUninit<(u8, u8)>; GROUP],
}

const _: () = assert!(GROUP <= u8::MAX as usize);

impl Stretches {
    /// What the arrays hold at first does not matter, and to write it all would cost more than to
    /// look up a few blocks.
    #[inline(always)]
    fn room() -> Stretches {
        Stretches {
            first: 0,
            slabs: [const { MaybeUninit::uninit() }; GROUP],
            parts: [const { MaybeUninit::uninit() }; GROUP],
        }
    }

    /// How far a slab's record is behind the first one's, if that is not too far.
    #[inline(always)]
    fn distance(&self, slab: &Slab) -> Option<i32> {
        let bytes = ptr::from_ref(slab).addr().wrapping_sub(self.first) as isize;
        i32::try_from(bytes / LINE as isize).ok()
    }

    /// Parts blocks of a class, a group at most and one at least; tells into how many stretches,
    /// and how many blocks they have.
    #[inline(always)]
    fn part(&mut self, class: Class, blocks: &[usize]) -> (usize, usize) {
        let [first, rest @ ..] = blocks else {
            return (0, 0);
        };
        let (mut page, mut slab) = (first, Slab::of(*first, class));
        let (mut n, mut begun, mut rest) = (0, 0, rest);
        let mut distance = 0;
        self.first = ptr::from_ref(slab).addr();
        while let [p, later @ ..] = rest {
            if p ^ page >= PAGE {
                page = p;
                let next = Slab::of(*p, class);
                if !ptr::eq(next, slab) {
                    let end = blocks.len() - rest.len();
                    self.put(n, distance, begun, end);
                    let Some(next_distance) = self.distance(next) else {
                        return (n + 1, end);
                    };
                    (n, begun, slab, distance) = (n + 1, end, next, next_distance);
                }
                rest = later;
                continue;
            }
            rest = later;
            // Where two are on a page, more of them may be.
            while let [a, b, c, d, later @ ..] = rest
                && (a ^ page) | (b ^ page) | (c ^ page) | (d ^ page) < PAGE
            {
                rest = later;
            }
        }
        self.put(n, distance, begun, blocks.len());
        (n + 1, blocks.len())
    }

    #[inline(always)]
    fn put(&mut self, n: usize, distance: i32, begun: usize, end: usize) {
        self.slabs[n].write(distance);
        self.parts[n].write((begun as u8, (end - begun) as u8));
    }

    /// One of those that were put.
    ///
    /// # Safety
    /// There are so many, and one more.
    #[inline(always)]
    unsafe fn get<'a>(&self, n: usize, blocks: &'a [usize]) -> (&'static Slab, &'a [usize]) {
        // SAFETY: the caller's promise; a part is one of the group's.
        unsafe {
            let (begun, len) = self.parts.get_unchecked(n).assume_init();
            let part = begun as usize..begun as usize + len as usize;
            (self.slab(n), blocks.get_unchecked(part))
        }
    }

    /// The slab of one of those that were put.
    ///
    /// # Safety
    /// There are so many, and one more.
    #[inline(always)]
    unsafe fn slab(&self, n: usize) -> &'static Slab {
        // SAFETY: the caller's promise.
        let distance = unsafe { self.slabs.get_unchecked(n).assume_init() };
        Slab::at((self.first).wrapping_add_signed(distance as isize * LINE as isize))
    }
}

/// Gives back a group or the first blocks of it; tells how many, and of the slabs that are to be
/// unmade, once what this took of the stack is free again.
#[inline(never)]
fn give_back_group(class: Class, blocks: &[usize]) -> (usize, Option<&'static Slab>) {
    let mut stretches = Stretches::room();
    let (mut left, done) = stretches.part(class, blocks);
    let mut retired = None;
    while left > 0 {
        left = give_back_to_owner(class, blocks, &mut stretches, left, &mut retired);
    }
    (done, retired)
}

/// Gives back those of the first stretches that are of the first one's arena, under one lock; moves
/// the others to the front and tells how many they are. Slabs that are to be unmade join a list.
#[inline(never)]
fn give_back_to_owner(
    class: Class,
    blocks: &[usize],
    stretches: &mut Stretches,
    count: usize,
    retired: &mut Option<&'static Slab>,
) -> usize {
    // SAFETY: so many were put, one at least.
    let get = |n| unsafe { stretches.get(n, blocks) };
    let owner = get(0).0.arena();
    let Some(bin) = record(owner as usize).and_then(|arena| arena.bin(class)) else {
        die!("slab of arena {owner}, which does not exist");
    };
    let shape = class.shape();
    let mut b = bin.0.lock();
    let mut others = 0;
    for (slab, blocks) in (0..count).map(get) {
        if slab.arena() != owner {
            others += 1;
            continue;
        }
        match b.give_regions(slab, shape, blocks) {
            Ok(None) => {}
            Ok(Some(empty)) => empty.next.set(retired.replace(empty)),
            Err(misuse) => {
                drop(b);
                misuse.die();
            }
        }
    }
    if others > 0 {
        // Under the lock still: once it is free, somebody may unmake a slab that was given back to.
        keep_others(owner, stretches, count);
    }
    others
}

/// Moves those of so many stretches that are not of an arena to the front.
#[cold]
#[inline(never)]
fn keep_others(owner: u16, stretches: &mut Stretches, count: usize) {
    let mut n = 0;
    for i in 0..count {
        // SAFETY: so many were put.
        let slab = unsafe { stretches.slab(i) };
        if slab.arena() != owner {
            stretches.slabs[n] = stretches.slabs[i];
            stretches.parts[n] = stretches.parts[i];
            n += 1;
        }
    }
}
