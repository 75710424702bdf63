//! Guarded blocks: given out, taken back, asked about; and what is found meanwhile.

use super::finding::{Accessed, Finding, Kind};
use super::pool::{self, Side, SlotPlace};
use super::slots::{FRAMES_MAX, State};
use super::{rate, report};
use crate::arena;
use crate::cache::{self, counted, deferred, inside, life};
use crate::class::{Class, StackOffset, tailored};
use crate::hardened;
use crate::prof::capture::Stack;
use crate::prof::guards::{self, Request};
use crate::prof::unwind::{self, Registers};
use crate::prof::{callers, gap};
use crate::space::Segment;
use crate::sys::atomic::{AtomicU8, Ordering};
use crate::sys::errno::KeepErrno;

/// The side that all blocks lie on; 0 if each lies on one by chance.
static SIDE: AtomicU8 = AtomicU8::new(0);

pub fn set_side(side: Option<Side>) {
    SIDE.store(side.map_or(0, |side| side as u8), Ordering::Relaxed);
}

fn side() -> Side {
    match SIDE.load(Ordering::Relaxed) {
        side if side == Side::Left as u8 => Side::Left,
        side if side == Side::Right as u8 => Side::Right,
        side if side == Side::Tight as u8 => Side::Tight,
        _ if gap::random() >> 63 == 0 => Side::Left,
        _ => Side::Right,
    }
}

/// Gives a request a guarded block in place of the one that it has got, for the frame with these
/// registers. `None` if it cannot have one, if its site is not chosen, or if there was one a moment
/// ago.
pub fn replace(block: usize, request: Request, from: &Registers) -> Option<usize> {
    if rate::is_over() {
        return None;
    }
    let by_site = guards::is_by_site();
    if by_site && !callers::is_chosen(from) {
        return None;
    }
    let _keep = KeepErrno::new();
    // By the record: pages of hardened blocks are filed under no class.
    let class = arena::class_of_slab(Segment::find(block)?.record_of(block).slab()?);
    // A program that asked how long blocks are may use all of it.
    let size = if tailored::are_as_they_were() && !hardened::is_on() {
        class.size()
    } else {
        request.size
    };
    let may_take = by_site || rate::may_take() || request.is_first;
    let guarded = may_take
        .then(|| pool::take(size, request.align, side(), from))
        .flatten();
    if guarded.is_some() {
        give_back(block, class);
        counted::allocated(size);
        rate::count();
    }
    if !by_site {
        rate::pause();
    }
    guarded
}

/// Frees the block that a request does not get after all.
fn give_back(block: usize, class: Class) {
    if cache::stack_at(StackOffset::of(class)).push(block) {
        return;
    }
    match life::current_or_new() {
        Some(cache) => counted::put(cache, class, block),
        None => match inside::enter() {
            Some(_inside) => arena::give_to_owner(class, block),
            None => deferred::put_by(block),
        },
    }
}

/// The size of the guarded block at `p`; `None` if no guarded block was ever there. A block that
/// was freed, and an address inside a block, are findings.
#[inline(always)]
pub fn size_of(p: usize) -> Option<usize> {
    if pool::contains(p) {
        size_of_guarded(p)
    } else {
        None
    }
}

#[cold]
#[inline(never)]
fn size_of_guarded(p: usize) -> Option<usize> {
    let place = pool::slot_of(p)?;
    let (block, size) = place.slot.block();
    match place.slot.state() {
        State::Live | State::Opened if block == p => Some(size),
        State::Fresh => None,
        _ => {
            complain(wrong_free(place, p), &Registers::here());
            Some(0)
        }
    }
}

/// What is wrong with a free of this address of a slot.
fn wrong_free(place: SlotPlace, at: usize) -> Finding {
    let kind = if at == place.slot.block().0 {
        Kind::DoubleFree
    } else {
        Kind::InvalidFree
    };
    Finding {
        kind,
        accessed: Accessed::Unknown,
        at,
        place,
    }
}

/// Frees the guarded block at `p`; returns its size, or `None` if no guarded block was ever there.
#[cold]
#[inline(never)]
pub fn free(p: usize) -> Option<usize> {
    let place = pool::slot_of(p)?;
    let (block, size) = place.slot.block();
    let from = Registers::here();
    if place.slot.state() == State::Fresh {
        return None;
    }
    if block != p || place.slot.change(State::Live, State::Leaving).is_err() {
        if block == p && place.is_open_for_good() {
            // It was reported, and stays open.
            return Some(size);
        }
        complain(wrong_free(place, p), &from);
        return Some(0);
    }
    if let Some(at) = pool::damage(&place) {
        let kind = if at < block {
            Kind::Underflow
        } else {
            Kind::Overflow
        };
        let finding = Finding {
            kind,
            accessed: Accessed::Before,
            at,
            place,
        };
        complain(finding, &from);
    }
    pool::give(&place, &from);
    Some(size)
}

/// Reports what a thread that is in a call of ours did wrong, and ends the process unless it goes
/// on.
#[cold]
#[inline(never)]
fn complain(finding: Finding, from: &Registers) {
    let stack = Stack::take(from, FRAMES_MAX);
    report::print(&finding, stack.as_ref().map_or(&[][..], Stack::frames));
    drop(stack);
    if !report::goes_on() {
        // SAFETY: abort has no preconditions.
        unsafe { libc::abort() };
    }
}

/// Reports an access to a closed page, from a signal handler, and opens the page if the program
/// goes on.
pub fn fault(at: usize, context: usize, accessed: Accessed) {
    let Some((place, kind)) = report::judge(at) else {
        return;
    };
    let mut frames = [0; FRAMES_MAX];
    let len = unwind::capture_interrupted(context, &mut frames);
    let finding = Finding {
        kind,
        accessed,
        at,
        place,
    };
    report::print(&finding, frames.get(..len).unwrap_or(&[]));
    if report::goes_on() {
        place.open_for_good();
    }
}
