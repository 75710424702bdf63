//! Current sums, for callers that need no details by arena or class: `mallinfo` and the like.
//! Nothing is kept, so this works when memory is out.

use crate::arena::{self, pages};
use crate::cache::{inside, registry};
use crate::class::Class;
use crate::heap::PAGE_HEAPS;
use crate::space::meta;
use crate::sys::page::PAGE;
use crate::upkeep::threads;

/// In bytes, except for counts.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    /// Blocks that the program holds, with the sizes of their classes; without those that the
    /// fallback served during a fork.
    pub allocated: usize,
    /// Blocks in thread caches and transfer caches.
    pub cached: usize,
    /// Pages that hold blocks or slabs.
    pub active: usize,
    /// Free pages whose memory has not been returned.
    pub dirty: usize,
    /// Free pages whose memory the system may take.
    pub muzzy: usize,
    /// Committed heap.
    pub mapped: usize,
    /// Memory mapped for our own records, and the part in use.
    pub metadata_mapped: usize,
    pub metadata: usize,
    pub arenas: usize,
    pub threads: usize,
    /// How often pages were returned, system calls for that, and pages returned.
    pub purges: u64,
    pub advices: u64,
    pub purged_pages: u64,
}

/// Returns the current figures.
pub fn now() -> Stats {
    let _inside = inside::enter_or_wait();
    let mut cached = 0;
    registry::each(|cache| {
        cached += Class::cachable()
            .map(|c| cache.len(c) * c.size())
            .sum::<usize>();
    });
    let mut regions = 0;
    for arena in arena::made() {
        for class in Class::cachable() {
            let (counts, stored) = arena.counts(class);
            cached += stored * class.size();
            // For the other classes, whose blocks are runs of pages, `large` keeps the sum.
            if class.is_slab() {
                regions += counts.taken.saturating_sub(counts.given) as usize * class.size();
            }
        }
    }
    let heap = PAGE_HEAPS.totals();
    let purged = heap.dirty_purged.plus(&heap.muzzy_purged);
    let meta = meta::totals();
    Stats {
        allocated: (regions + pages::large_bytes()).saturating_sub(cached),
        cached,
        active: heap.used * PAGE,
        dirty: heap.dirty * PAGE,
        muzzy: heap.muzzy * PAGE,
        mapped: heap.committed * PAGE,
        metadata_mapped: meta.mapped,
        metadata: meta.used,
        arenas: arena::made().count(),
        threads: threads::count() as usize,
        purges: purged.sweeps,
        advices: purged.advices,
        purged_pages: purged.pages,
    }
}
