//! Returns blocks to their slabs and the page heap, past all transfer caches.
//!
//! Regions go to the bins of the arenas that own their slabs (`bin`, `slab`), many under one lock;
//! blocks of whole pages go to the page heap (`large`). The page map alone shows the owner of a
//! region; the block itself is never read.

use super::poison;
use crate::arena::small::slab::Slab;
use crate::arena::{large, record};
use crate::class::Class;
use crate::die;
use crate::sys::page::{LINE, PAGE};
use core::mem::MaybeUninit;
use core::ptr;

/// Frees blocks: regions into their slabs, with one lock per owning arena, runs into the page heap.
#[inline(never)]
pub(in crate::arena) fn give_back(class: Class, blocks: &mut [usize]) {
    if !class.is_slab() {
        large::free_many(blocks);
        return;
    }
    blocks.iter().copied().for_each(poison::free_block);
    let mut rest = &*blocks;
    while !rest.is_empty() {
        let (done, retired) = give_back_group(class, &rest[..rest.len().min(GROUP_BLOCKS)]);
        rest = &rest[done..];
        if let Some(slab) = retired {
            // SAFETY: empty, in no list of a bin, and out of their bins, as are the slabs linked to
            // it; every block of them was in this group or returned before, so nothing refers to
            // them.
            unsafe { slab.unmake_series() };
        }
    }
}

/// Blocks handled together: all their slab records are looked up first, so that the processor has
/// many of these loads in flight. Limited, because the notes are on the stack of a program thread.
const GROUP_BLOCKS: usize = 128;

/// A group's blocks, split into stretches: neighbours that are regions of one slab, because blocks
/// freed together often lie together. Compact, because it is on the stack of a program thread.
struct Stretches {
    /// The address of the first stretch's slab record, and the distance from it to each stretch's
    /// record, in lines; a group ends before one that is too far.
    first: usize,
    slabs: [MaybeUninit<i32>; GROUP_BLOCKS],
    /// The start and length of each stretch in the group.
    parts: [MaybeUninit<(u8, u8)>; GROUP_BLOCKS],
}

const _: () = assert!(GROUP_BLOCKS <= u8::MAX as usize);

impl Stretches {
    /// The arrays start uninitialised: writing them would cost more than looking up a few blocks.
    #[inline(always)]
    fn room() -> Stretches {
        Stretches {
            first: 0,
            slabs: [const { MaybeUninit::uninit() }; GROUP_BLOCKS],
            parts: [const { MaybeUninit::uninit() }; GROUP_BLOCKS],
        }
    }

    /// The distance from the first slab's record to this one's, if it fits.
    #[inline(always)]
    fn distance(&self, slab: &Slab) -> Option<i32> {
        let bytes = ptr::from_ref(slab).addr().wrapping_sub(self.first) as isize;
        i32::try_from(bytes / LINE as isize).ok()
    }

    /// Splits blocks of a class, at most a group; returns the number of stretches and how many
    /// blocks they have.
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
            // After two on one page, there are probably more.
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

    /// One of the stretches.
    ///
    /// # Safety
    /// `n` is less than their number.
    #[inline(always)]
    unsafe fn get<'a>(&self, n: usize, blocks: &'a [usize]) -> (&'static Slab, &'a [usize]) {
        // SAFETY: the caller's promise; a part lies within the group.
        unsafe {
            let (begun, len) = self.parts.get_unchecked(n).assume_init();
            let part = begun as usize..begun as usize + len as usize;
            (self.slab(n), blocks.get_unchecked(part))
        }
    }

    /// The slab of one of the stretches.
    ///
    /// # Safety
    /// `n` is less than their number.
    #[inline(always)]
    unsafe fn slab(&self, n: usize) -> &'static Slab {
        // SAFETY: the caller's promise.
        let distance = unsafe { self.slabs.get_unchecked(n).assume_init() };
        Slab::at((self.first).wrapping_add_signed(distance as isize * LINE as isize))
    }
}

/// Frees a group of blocks, or its first ones, into their slabs. Returns how many, and the slabs to
/// unmake, which the caller does when this function's stack frame is gone.
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

/// Frees the stretches of the first one's arena into their slabs, under one lock. Moves the others
/// to the front and returns their number. Adds slabs to be unmade to `retired`.
#[inline(never)]
fn give_back_to_owner(
    class: Class,
    blocks: &[usize],
    stretches: &mut Stretches,
    count: usize,
    retired: &mut Option<&'static Slab>,
) -> usize {
    // SAFETY: `count` stretches were put, at least one.
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
            Err(wrong) => {
                drop(b);
                wrong.die();
            }
        }
    }
    if others > 0 {
        // Still under the lock: after it, another thread may unmake a slab that got regions back.
        keep_others(owner, stretches, count);
    }
    others
}

/// Moves the stretches that belong to other arenas to the front.
#[cold]
#[inline(never)]
fn keep_others(owner: u16, stretches: &mut Stretches, count: usize) {
    let mut n = 0;
    for i in 0..count {
        // SAFETY: `count` stretches were put.
        let slab = unsafe { stretches.slab(i) };
        if slab.arena() != owner {
            stretches.slabs[n] = stretches.slabs[i];
            stretches.parts[n] = stretches.parts[i];
            n += 1;
        }
    }
}
