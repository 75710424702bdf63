//! Samples of blocks that stay where they are, and the blocks beside them.

use super::{live, start, usable};
use crate::api::extended::{self, Flags};
use crate::api::{self, alloc, dealloc, dealloc_sized, usable_size};
use crate::class::Class;
use crate::prof::{is_sampled, samples};
use crate::space::Segment;
use crate::space::segment::PageRecord;
use crate::sys::page::PAGE;
use crate::testing::own_process;
use std::collections::{HashMap, HashSet};

/// Mean bytes between samples (base-2 logarithm), so that most pages of small blocks have none.
const LG: u32 = 17;

#[test]
fn sampled_blocks_stay_in_their_slabs_among_others() {
    own_process!();
    start(LG, 5);
    for size in [8, 64, 1000, 5000, 14_000] {
        let held: Vec<_> = (0..(40 << 20) / size).map(|_| alloc(size)).collect();
        let usable = usable(size);
        let mut sampled = std::vec::Vec::new();
        samples::each(&mut |block, sample| {
            assert_eq!((sample.usable, sample.slab != 0), (usable, true));
            sampled.push(block);
        });
        assert!(sampled.len() > 100);
        // All blocks of their pages are of their class, and the profiler tells them apart.
        let pages: HashSet<_> = sampled.iter().map(|block| block / PAGE).collect();
        let of_pages: Vec<_> = (held.iter().copied())
            .filter(|p| pages.contains(&(p.addr() / PAGE)))
            .collect();
        assert!(of_pages.len() >= sampled.len());
        sampled.sort_unstable();
        for &p in &of_pages {
            assert_eq!(
                is_sampled(p.addr()),
                sampled.binary_search(&p.addr()).is_ok()
            );
            // SAFETY: the block is in use.
            unsafe {
                assert_eq!(usable_size(p), usable);
                assert_eq!(api::realloc(p, size), p);
            }
        }
        // Freed in another order than allocated, with and without a size.
        for (i, &p) in held.iter().enumerate().rev() {
            match i % 2 {
                // SAFETY: the block is in use, and not used again.
                0 => unsafe { dealloc(p) },
                // SAFETY: as above.
                _ => unsafe { dealloc_sized(p, size) },
            }
        }
        assert_eq!((samples::count(), live()), (0, (0, 0)), "{size}");
        for p in of_pages {
            let (class, record) = filed_as(p.addr());
            let is_usual = class.is_some() && matches!(record, PageRecord::Slab(_));
            assert!(is_usual || record == PageRecord::None, "{record:?}");
        }
    }
}

/// Several samples in one page, and neighbours that are reallocated and freed past all caches.
#[test]
fn a_page_may_have_several_samples() {
    own_process!();
    start(LG, 9);
    // Half of a page's pair is sampled: the chance that both are is large.
    let held: Vec<_> = (0..60_000).map(|_| alloc(2048)).collect();
    let mut in_pages: HashMap<usize, std::vec::Vec<usize>> = HashMap::new();
    samples::each(&mut |block, _| in_pages.entry(block / PAGE).or_default().push(block));
    let pairs: Vec<_> = in_pages
        .values()
        .filter(|blocks| blocks.len() > 1)
        .collect();
    assert!(!pairs.is_empty());
    for blocks in pairs {
        let sampled = |block: &usize| is_sampled(*block);
        assert!(blocks.iter().all(sampled));
        let (one, other) = (blocks[0], blocks[1]);
        // SAFETY: the block is in use; the old address is only compared.
        let moved = unsafe { api::realloc(one as *mut u8, 5000) };
        assert!(!is_sampled(one) && is_sampled(other));
        // SAFETY: the block is in use, and not used again.
        unsafe { extended::dealloc_with(moved, Flags::NONE.no_cache()) };
        // SAFETY: as above.
        unsafe { extended::dealloc_with(other as *mut u8, Flags::NONE.no_cache()) };
        assert!(!is_sampled(other));
    }
    let gone: HashSet<usize> = in_pages
        .into_values()
        .filter(|b| b.len() > 1)
        .flatten()
        .collect();
    for p in held.into_iter().filter(|p| !gone.contains(&p.addr())) {
        // SAFETY: the block is in use, and not used again.
        unsafe { dealloc(p) };
    }
    assert_eq!((samples::count(), live()), (0, (0, 0)));
}

/// The class and the record that the page map has for an address.
fn filed_as(p: usize) -> (Option<Class>, PageRecord) {
    let segment = Segment::find(p).expect("memory of the heap");
    let class = segment.class_of(p);
    (
        Some(class).filter(|&class| class != Class::NONE),
        segment.record_of(p),
    )
}
