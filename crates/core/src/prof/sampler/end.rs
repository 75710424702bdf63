//! Ends samples: blocks that are freed, change their length or place, or are discarded with their
//! arena.

use super::countdown::{is_thread_on, spend};
use super::hidden::is_on;
use super::sample::{mark, now_ns, site_of, stack, table_with};
use super::threads;
use crate::arena::{self, large};
use crate::class::Class;
use crate::prof::by_class::{self, Change};
use crate::prof::gap::Weight;
use crate::prof::history::{self, Moment};
use crate::prof::hooks;
use crate::prof::samples::{self, Sample};
use crate::space::Segment;
use crate::space::segment::{Beginning, LargeState, PageRecord};
use crate::sys::page::PAGE;
use crate::upkeep::probes;

/// Reports to the program, if it wants that, that a sampled block is about to be freed.
pub fn will_free(p: usize, usable: impl FnOnce() -> usize) {
    hooks::will_free(p, usable);
}

/// What a block is whose page was found filed under no class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filed {
    /// Sampled.
    Sampled,
    /// An ordinary block of this class, in a page with a sampled one.
    Beside(Class),
    /// No business of the profiler.
    Otherwise,
}

/// What the block at `p` is, whose page was found filed under no class.
#[inline]
pub fn filed(p: usize) -> Filed {
    if samples::were_any() {
        filed_by_record(p)
    } else {
        Filed::Otherwise
    }
}

#[cold]
#[inline(never)]
fn filed_by_record(p: usize) -> Filed {
    let record = Segment::find(p).map(|segment| segment.record_of(p));
    match record {
        Some(PageRecord::Large {
            state: LargeState::Sampled,
            ..
        }) => Filed::Sampled,
        Some(PageRecord::Watched { slab, sampled }) => match sampled {
            Beginning::At(offset) if offset == p % PAGE => Filed::Sampled,
            Beginning::Count(_) if samples::has(p) => Filed::Sampled,
            _ => Filed::Beside(arena::class_of_slab(slab)),
        },
        // The last sample of the page was freed since.
        Some(PageRecord::Slab(slab)) => Filed::Beside(arena::class_of_slab(slab)),
        _ => Filed::Otherwise,
    }
}

/// Whether the block at `p` is sampled.
#[cfg(test)]
pub fn is_sampled(p: usize) -> bool {
    filed(p) == Filed::Sampled
}

/// The class of a block of a slab whose page was found filed under no class; `None` for all other
/// blocks.
#[inline]
pub fn small_class(p: usize) -> Option<Class> {
    if samples::were_any() {
        small_class_by_record(p)
    } else {
        None
    }
}

#[cold]
#[inline(never)]
fn small_class_by_record(p: usize) -> Option<Class> {
    let slab = Segment::find(p)?.record_of(p).slab();
    slab.map(arena::class_of_slab)
}

/// Takes the sample off the block at `p`, if it has one, because the block is freed. It is then an
/// ordinary block, which the caller must free. For a thread that is inside.
#[cold]
#[inline(never)]
pub fn unsampled(p: usize) {
    if let Some(sample) = lift(p) {
        end(p, &sample);
    }
}

/// Frees a block that was put by while a fork was under way and whose page is filed under no class.
/// Returns false for a large block, which the caller must free.
pub fn freed_after_fork(p: usize) -> bool {
    unsampled(p);
    let class = small_class(p);
    if let Some(class) = class {
        arena::give_to_owner(class, p);
    }
    class.is_some()
}

/// Counts the sample of the block at `p` as freed, and notes when and where, if that is of
/// interest.
#[inline(never)]
fn end(p: usize, sample: &Sample) {
    by_class::count(sample, Change::Freed);
    if history::cares_for_frees() {
        let stack = stack();
        let moment = Moment {
            ns: now_ns(),
            site: site_of(stack.as_ref()),
            thread: threads::numbers().own,
        };
        history::freed(p, sample, moment);
    }
    forget(sample);
}

/// Counts a sample as freed.
#[inline(never)]
fn forget(sample: &Sample) {
    let amount = sample.amount();
    let Some(mut table) = table_with(sample) else {
        return;
    };
    table.remove(sample.site, amount, sample.requested_bytes());
    let age = now_ns().saturating_sub(sample.born_ns) / 1_000_000;
    table.lived(sample.site, amount, age);
}

/// The sample of a large block whose length or place is about to change.
pub struct Lifted(Sample, usize);

/// Counts the growth of a large block by a request of `size` bytes. The block had this sample
/// before.
///
/// The request counts as one for a new block, and so it does for a block without a sample: a block
/// of either kind is then sampled as often as its size says. What was asked for before is only
/// known of sampled blocks, so that no share of the growth could be counted truly. A sample that
/// was certain stays.
#[cold]
#[inline(never)]
pub fn grew(lifted: Option<Lifted>, p: *mut u8, size: usize) {
    let draws = is_on() && is_thread_on();
    if let Some(lifted) = lifted {
        if !draws || lifted.0.weight == Weight::ONE {
            return put_down(lifted, p.addr(), Some(size));
        }
        end(lifted.1, &lifted.0);
    }
    if draws {
        spend(p, size);
    }
}

/// Takes the sample off a block, if it has one.
#[inline(never)]
fn lift(p: usize) -> Option<Sample> {
    let sample = samples::leave(p)?;
    probes::free(p);
    if sample.slab == 0 {
        large::clear_sampled(p);
    }
    Some(sample)
}

/// Takes the sample off a large block whose length or place is about to change, if it has one.
/// [`put_down`] gives it back.
#[inline]
pub fn lifted(p: usize) -> Option<Lifted> {
    if samples::count() == 0 {
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
            requested: size,
            usable: large::bytes_of(p),
            ..old
        },
        None => old,
    };
    let entered = mark(p, new);
    if entered {
        probes::alloc(p, new.requested, new.requested_bytes());
        if size.is_none() {
            // The sample stays as it was, so no new one is counted.
            return;
        }
        by_class::count(&new, Change::Taken);
    }
    by_class::count(&old, Change::Freed);
    if from != p && history::cares_for_frees() {
        history::moved(from, p);
    }
    if let Some(mut table) = table_with(&old) {
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
    /// The most blocks that are found in one pass.
    const BATCH_BLOCKS: usize = 32;
    loop {
        let (mut found, mut n) = ([0; BATCH_BLOCKS], 0);
        samples::each(&mut |block, sample| {
            if sample.arena == arena
                && let Some(place) = found.get_mut(n)
            {
                *place = block;
                n += 1;
            }
        });
        for &block in found.iter().take(n) {
            unsampled(block);
        }
        if n < BATCH_BLOCKS {
            return;
        }
    }
}
