//! Blocks on their way back to where they came from, past all stores.
//!
//! Regions go to the bins of the arenas that own their slabs (`bin`, `slab`), many under one lock; blocks of whole
//! pages to the page heap (`large`). Whose a region is the page map alone says: nothing is read of a block.

use super::slab::Slab;
use super::{large, older, record};
use crate::class::{Class, PAGE};
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
    for group in blocks.chunks(GROUP) {
        give_back_group(class, group);
    }
}

/// Blocks handled together: all their slab records are looked up first, so that the processor has
/// many of these loads under way at once.
pub(super) const GROUP: usize = 128;

/// Neighbours in a group that are regions of one slab: blocks that are freed together often lie together.
#[derive(Clone, Copy)]
struct Stretch<'a> {
    slab: &'static Slab,
    blocks: &'a [usize],
}

/// Parts blocks of a class, a group at most, into stretches, which it writes into `room` from its start.
#[inline(always)]
fn stretches<'a, 'b>(
    class: Class,
    blocks: &'b [usize],
    room: &'a mut [MaybeUninit<Stretch<'b>>; GROUP],
) -> &'a mut [Stretch<'b>] {
    let [first, rest @ ..] = blocks else {
        return &mut [];
    };
    let (mut page, mut slab) = (first, Slab::of(*first, class));
    let (mut n, mut begun, mut rest) = (0, blocks, rest);
    while let [p, later @ ..] = rest {
        if p ^ page >= PAGE {
            page = p;
            let next = Slab::of(*p, class);
            if !ptr::eq(next, slab) {
                let blocks = &begun[..begun.len() - rest.len()];
                room[n].write(Stretch { slab, blocks });
                (n, begun, slab) = (n + 1, rest, next);
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
    room[n].write(Stretch {
        slab,
        blocks: begun,
    });
    // SAFETY: those up to the `n`th were written.
    unsafe { &mut *(ptr::from_mut(&mut room[..=n]) as *mut [Stretch]) }
}

fn give_back_group(class: Class, blocks: &[usize]) {
    // What the array holds at first does not matter, and to write it all would cost more than to look
    // up a few blocks.
    let mut room = [const { MaybeUninit::uninit() }; GROUP];
    let mut left = stretches(class, blocks, &mut room);
    let mut retired = None;
    while let Some(first) = left.first() {
        let owner = first.slab.arena();
        let others = give_back_to_owner(class, owner, left, &mut retired);
        left = &mut left[..others];
    }
    if let Some(slab) = retired {
        // SAFETY: empty, in no list of a bin, and out of its bin, as those that it leads to; every block of them
        // was in this group or given before, so nobody refers to them.
        unsafe { slab.unmake_row() };
    }
}

/// Gives back those stretches that are of one arena, under one lock; moves the others to the
/// front and tells how many they are. Slabs that are to be unmade join a list.
#[inline(never)]
fn give_back_to_owner(
    class: Class,
    owner: u16,
    stretches: &mut [Stretch],
    retired: &mut Option<&'static Slab>,
) -> usize {
    let Some(bin) = record(owner as usize).and_then(|arena| arena.bin(class)) else {
        die!("slab of arena {owner}, which does not exist");
    };
    let shape = class.shape();
    let mut b = bin.0.lock();
    let mut others = 0;
    for stretch in stretches.iter() {
        if stretch.slab.arena() != owner {
            others += 1;
            continue;
        }
        match b.give_regions(stretch.slab, shape, stretch.blocks) {
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
        keep_others(owner, stretches);
    }
    others
}

/// Moves the stretches that are not of an arena to the front.
#[cold]
#[inline(never)]
fn keep_others(owner: u16, stretches: &mut [Stretch]) {
    let mut n = 0;
    for i in 0..stretches.len() {
        if stretches[i].slab.arena() != owner {
            stretches[n] = stretches[i];
            n += 1;
        }
    }
}
