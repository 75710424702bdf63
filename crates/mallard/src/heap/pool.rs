//! Vacant chunks: found, made, and put together into long runs.
//!
//! Every region keeps the set of its chunks that hold no allocated page, and of those the ones that
//! hold memory. A single chunk is taken from the latter first (memory that is already there costs no
//! page fault), lowest address first; a row of chunks where it fits best. When there is none, the
//! last region's heap grows, or another region is made. Addresses stay committed when their memory
//! goes back, unless the option `retain` is off: then vacant chunks are given up whole, and committed
//! anew when they are needed. The functions here are called under the
//! page heap's lock.

use super::huge_pages;
use crate::space::chunk::{CHUNK, Chunk};
use crate::space::region::{self, Region};
use crate::sys::atomic::{AtomicUsize, Ordering};
use crate::sys::mem;

/// The heap is committed in steps of a quarter of what it is, within these bounds, in chunks.
const LEAST_STEP: usize = 2;
const LARGEST_STEP: usize = 256;

/// Neighbouring vacant chunks, now the caller's, the first at a multiple of `align` bytes.
pub fn take(n: usize, align: usize, reserve: usize) -> Option<&'static Chunk> {
    let first = find(n, align).or_else(|| grow(n, align, reserve))?;
    recommit(first, n).then_some(first)
}

/// Makes sure that neighbouring vacant chunks can be touched; false when the system has no memory.
pub fn recommit(first: &'static Chunk, n: usize) -> bool {
    let region = first.region();
    let i = region.index_of(first);
    (i..i + n)
        .map(|i| region.chunk(i))
        .filter(|c| !c.committed.get())
        .all(|c| {
            let done = mem::commit(c.addr(), CHUNK);
            if done && c.huge.get() {
                mem::want_huge_pages(c.addr(), CHUNK);
            } else if done && huge_pages::forbid_at_first() {
                mem::forbid_huge_pages(c.addr(), CHUNK);
            }
            c.committed.set(done);
            DECOMMITTED.fetch_sub(done as usize, Ordering::Relaxed);
            done
        })
}

/// Gives up the vacant chunks that hold no memory, down to their addresses' being usable.
pub fn decommit_vacant() {
    for region in Region::all() {
        let (vacant, resident) = (region.vacant(), region.resident());
        let idle = |i: usize| {
            vacant.contains(i) && !resident.contains(i) && region.chunk(i).committed.get()
        };
        let mut at = 0;
        while let Some(start) = (at..region.chunks()).find(|&i| idle(i)) {
            at = (start..region.chunks())
                .find(|&i| !idle(i))
                .unwrap_or(region.chunks());
            if mem::decommit(region.chunk(start).addr(), (at - start) * CHUNK) {
                (start..at).for_each(|i| region.chunk(i).committed.set(false));
                DECOMMITTED.fetch_add(at - start, Ordering::Relaxed);
            }
        }
    }
}

/// Vacant chunks that are given up.
static DECOMMITTED: AtomicUsize = AtomicUsize::new(0);

/// The number of vacant chunks that are given up.
pub fn decommitted() -> usize {
    DECOMMITTED.load(Ordering::Relaxed)
}

/// Files a chunk whose last page was freed.
pub fn file(chunk: &'static Chunk) {
    let region = chunk.region();
    let i = region.index_of(chunk);
    region.vacant().insert(i);
    chunk.broken.set(false);
    if !(chunk.dirty.is_empty() && chunk.muzzy.is_empty()) {
        region.resident().insert(i);
    }
}

/// Takes a chunk out of the sets, because a page of it is about to be allocated.
pub fn unfile(chunk: &'static Chunk) {
    let region = chunk.region();
    let i = region.index_of(chunk);
    region.vacant().remove(i);
    region.resident().remove(i);
}

fn find(n: usize, align: usize) -> Option<&'static Chunk> {
    if n == 1 && align <= CHUNK {
        let resident = || {
            Region::all()
                .iter()
                .find_map(|r| Some(r.chunk(r.resident().first()?)))
        };
        let any = || {
            Region::all()
                .iter()
                .find_map(|r| Some(r.chunk(r.vacant().first()?)))
        };
        return resident().or_else(any);
    }
    Region::all().iter().find_map(|r| {
        let start = r.vacant().best_fit(n, |i| aligned(r, i, align))?;
        Some(r.chunk(start))
    })
}

/// The first chunk index at or after `i` that stands at a multiple of `align`.
fn aligned(region: &Region, i: usize, align: usize) -> usize {
    if align <= CHUNK {
        return i;
    }
    let heap = region.heap();
    ((heap + i * CHUNK).next_multiple_of(align) - heap) / CHUNK
}

fn grow(n: usize, align: usize, reserve: usize) -> Option<&'static Chunk> {
    for region in Region::all().iter().rev() {
        if let Some(missing) = missing(region, n, align)
            && missing <= region.room()
        {
            // There is room: if the system has no memory for it, it has none elsewhere either.
            return grow_region(region, n, align);
        }
    }
    let size = region::preferred_size(reserve);
    let forbid = huge_pages::forbid_at_first();
    Region::make(size, n, align, forbid, |made| grow_region(made, n, align))
}

/// Where `n` chunks would begin at the region's end, using the vacant ones there.
fn start_at_end(region: &Region, align: usize) -> usize {
    aligned(region, region.chunks() - region.vacant().trailing(), align)
}

/// How many chunks are to be committed for that.
fn missing(region: &Region, n: usize, align: usize) -> Option<usize> {
    start_at_end(region, align)
        .checked_add(n)?
        .checked_sub(region.chunks())
}

fn grow_region(region: &'static Region, n: usize, align: usize) -> Option<&'static Chunk> {
    let start = start_at_end(region, align);
    commit(region, missing(region, n, align)?)?;
    Some(region.chunk(start))
}

/// Commits at least `least` chunks at the region's end; they are vacant and clean.
pub fn commit(region: &'static Region, least: usize) -> Option<()> {
    if region.room() < least {
        return None;
    }
    let step = (region.chunks() / 4)
        .clamp(LEAST_STEP, LARGEST_STEP)
        .max(least);
    let count = step.min(region.room());
    let (first, count) = match region.grow(count) {
        Some(first) => (first, count),
        None => (region.grow(least)?, least),
    };
    huge_pages::prepare((first..first + count).map(|i| region.chunk(i)));
    for i in first..first + count {
        region.vacant().insert(i);
    }
    Some(())
}
