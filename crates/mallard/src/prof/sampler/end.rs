//! Ends samples: blocks that are freed, change their length or place, or are discarded with their
//! arena.

use super::take::{mark_large, now_ns, put_back, site_of, stack, weight_of};
use super::threads::thread_number;
use crate::arena::large;
use crate::class::Class;
use crate::prof::gap::lg_sample;
use crate::prof::history::{self, Moment};
use crate::prof::samples::{self, Sample};
use crate::prof::{by_class, hooks, sites};
use crate::space::Segment;
use crate::space::segment::PageRecord;
use crate::upkeep::probes;

/// Tells the program, if it asks, that a sampled block is about to be freed.
pub fn will_free(p: usize, usable: impl FnOnce() -> usize) {
    hooks::will_free(p, usable);
}

/// Whether `p`, which the page map files under no class, is a sampled block.
#[inline]
pub fn is_sampled(p: usize) -> bool {
    (samples::are_any_small() || samples::are_any_large()) && is_filed_as_sampled(p)
}

#[cold]
#[inline(never)]
fn is_filed_as_sampled(p: usize) -> bool {
    let record = Segment::find(p).map(|segment| segment.record_of(p));
    matches!(
        record,
        Some(PageRecord::Sampled(_) | PageRecord::Large { sampled: true, .. })
    )
}

/// The class of a small sampled block; `None` for all other blocks. Ends the process if `p` points
/// into a span and no block in use begins there.
#[inline]
pub fn small_class_of_sampled(p: usize) -> Option<Class> {
    match samples::are_any_small() {
        true => class_of(p),
        false => None,
    }
}

#[cold]
#[inline(never)]
fn class_of(p: usize) -> Option<Class> {
    Some(look_up(p)?.0)
}

/// The arena that a small sampled block counts in; `None` for all other blocks.
pub fn arena_of(p: usize) -> Option<u16> {
    Some(look_up(p)?.1.arena)
}

fn look_up(p: usize) -> Option<(Class, Sample)> {
    match Segment::find(p)?.record_of(p) {
        PageRecord::Sampled(record) => Some(samples::look_up(record, p)),
        _ => None,
    }
}

/// Takes the sample off the block at `p`, if it is one. A large block is then an ordinary one,
/// which the caller must free; a small one is freed. Returns whether it did that, and the bytes of
/// the block.
///
/// For a thread that is inside. Ends the process if `p` points into a span and no block in use
/// begins there.
#[cold]
#[inline(never)]
pub fn freed(p: usize) -> Freed {
    let record = Segment::find(p).map(|segment| segment.record_of(p));
    match record {
        Some(PageRecord::Sampled(record)) => {
            // First: another thread may get the block at once.
            probes::free(p);
            let sample = samples::free(record, p);
            end(p, &sample);
            if sample.proxy != 0 {
                let class = Segment::find(sample.proxy).map(|r| r.class_of(sample.proxy));
                put_back(class.unwrap_or(Class::NONE), sample.proxy);
            }
            Freed::Small(sample.usable)
        }
        Some(PageRecord::Large { sampled: true, .. }) => {
            if let Some(sample) = lift(p) {
                end(p, &sample);
            }
            Freed::Ordinary
        }
        _ => Freed::Ordinary,
    }
}

/// What [`freed`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freed {
    /// A small sampled block of so many bytes, which is free now.
    Small(usize),
    /// Another block, which is not sampled any more and which the caller must free.
    Ordinary,
}

/// Frees a sampled block that was put by while a fork was under way.
pub fn freed_after_fork(p: usize) -> bool {
    matches!(freed(p), Freed::Small(_))
}

/// Counts the sample of the block at `p` as freed, and notes when and where, if that is of interest.
#[inline(never)]
fn end(p: usize, sample: &Sample) {
    by_class::count(sample, false);
    if history::cares_for_frees() {
        let stack = stack();
        let moment = Moment {
            ns: now_ns(),
            site: site_of(stack.as_ref()),
            thread: thread_number(),
        };
        history::freed(p, sample, moment);
    }
    forget(sample);
}

/// Counts a sample as freed.
#[inline(never)]
fn forget(sample: &Sample) {
    if sample.resets != samples::resets() {
        return;
    }
    let amount = sample.amount();
    let mut table = sites::table();
    // Another thread may have reset the counts meanwhile.
    if sample.resets != samples::resets() {
        return;
    }
    table.remove(sample.site, amount, sample.requested_bytes());
    let age = now_ns().saturating_sub(sample.born_ns) / 1_000_000;
    table.lived(sample.site, amount, age);
}

/// The sample of a large block whose length or place is about to change.
pub struct Lifted(Sample, usize);

/// Takes the sample off a large block whose length or place is about to change, if it has one.
#[inline(never)]
fn lift(p: usize) -> Option<Sample> {
    let sample = samples::leave_large(p)?;
    probes::free(p);
    large::set_sampled(p, false);
    Some(sample)
}

/// Takes the sample off a large block whose length or place is about to change, if it has one.
/// [`put_down`] gives it back.
#[inline]
pub fn lifted(p: usize) -> Option<Lifted> {
    if !samples::are_any_large() {
        return None;
    }
    lifted_if_sampled(p)
}

#[cold]
#[inline(never)]
fn lifted_if_sampled(p: usize) -> Option<Lifted> {
    large::is_sampled(p).then(|| lift(p).map(|sample| Lifted(sample, p)))?
}

/// Gives a large block its sample back, after a request of `size` bytes changed it, or with `None`
/// did not.
#[cold]
#[inline(never)]
pub fn put_down(lifted: Lifted, p: usize, size: Option<usize>) {
    let Lifted(old, from) = lifted;
    let new = match size {
        Some(size) => Sample {
            weight: weight_of(size, lg_sample()).min(old.weight),
            requested: size,
            usable: large::bytes_of(p),
            ..old
        },
        None => old,
    };
    let is_known = old.resets == samples::resets();
    let entered = mark_large(p, new).is_some();
    if entered {
        probes::alloc(p, new.requested, new.requested_bytes());
    }
    if from != p && history::cares_for_frees() {
        history::moved(from, p);
    }
    let mut table = sites::table();
    if is_known {
        table.remove(old.site, old.amount(), old.requested_bytes());
        if entered {
            table.add(new.site, new.amount(), new.requested_bytes());
        }
    }
}

/// Forgets the samples of blocks of an arena whose blocks are all discarded.
#[cold]
#[inline(never)]
pub fn forget_arena(arena: u16) {
    /// Blocks that are found in one pass.
    const AT_ONCE: usize = 32;
    loop {
        let (mut found, mut n) = ([0; AT_ONCE], 0);
        samples::each(|block, sample| {
            if sample.arena == arena
                && let Some(place) = found.get_mut(n)
            {
                *place = block;
                n += 1;
            }
        });
        for &block in found.iter().take(n) {
            match Segment::find(block).map(|segment| segment.record_of(block)) {
                Some(PageRecord::Sampled(record)) => {
                    probes::free(block);
                    end(block, &samples::free(record, block));
                }
                _ => {
                    if let Some(sample) = lift(block) {
                        end(block, &sample);
                    }
                }
            }
        }
        if n < AT_ONCE {
            return;
        }
    }
}
