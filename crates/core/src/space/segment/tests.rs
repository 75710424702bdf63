//! The layout of a reservation, the contents of the maps, and sets of chunks checked against arrays
//! of flags.

use super::layout::Layout;
use super::*;
use crate::sys::atomic::AtomicU16;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

#[test]
fn the_parts_of_a_reservation_of_any_size_fit_into_it_one_after_the_other() {
    assert!(Layout::of(0).is_none() && Layout::of(CHUNK).is_none());
    for shift in 22..=47 {
        for len in [1 << shift, (1 << shift) + 4096, 3 << (shift - 1)] {
            let Some(l) = Layout::of(len) else {
                assert!(len < 4 * CHUNK, "{len} bytes hold no chunk");
                continue;
            };
            let slices = l.chunks.div_ceil(SLICE_CHUNKS) * size_of::<Slice>();
            let pages = (l.heap - l.classes + l.chunks * CHUNK) / PAGE;
            assert!(
                l.chunks > 0 && l.classes + pages < l.heap,
                "{len}: a byte for every page"
            );
            assert!(slices <= l.tables);
            assert_eq!(l.tables % align_of::<GroupTable>(), 0);
            assert_eq!((l.tables - size_of::<Slice>()) / PAGE, l.tables / PAGE);
            assert!(l.tables + GroupTable::bytes(l.chunks) < l.classes);
            // Wherever the reservation begins, its heap begins at a chunk boundary.
            assert!(l.heap + l.chunks * CHUNK + CHUNK <= len, "{len}");
            assert!(
                (len - l.heap) / CHUNK <= l.chunks + 2,
                "{len}: chunks go unused"
            );
        }
    }
}

proptest! {
    #[test]
    fn a_page_record_is_read_as_it_was_written(
        at in (1usize..1 << 41).prop_map(|n| n * 64),
        pages in 1usize..1 << 39,
        arena in 0usize..1024,
        line in 0usize..64,
    ) {
        for record in [
            PageRecord::None,
            PageRecord::Slab(at),
            PageRecord::Watched { slab: at, sampled: Beginning::At(line * 64) },
            PageRecord::Watched { slab: at, sampled: Beginning::Count(arena % 513) },
            PageRecord::Large {
                pages,
                arena,
                line,
                state: [LargeState::Plain, LargeState::Sampled, LargeState::Kept][line % 3],
            },
        ] {
            prop_assert_eq!(PageRecord::unpack(record.pack()), record);
        }
    }

    #[test]
    fn a_set_of_chunks_behaves_like_an_array_of_flags(
        mine in prop::collection::vec(any::<bool>(), 1..6),
        resident: bool,
        changes in prop::collection::vec((any::<bool>(), any::<usize>(), 0usize..90), 0..20),
        want in 1usize..80,
        align in 1usize..9,
    ) {
        // The slices of other page heaps must not matter to this one.
        let heap = HeapId(9);
        let slices: Vec<Slice> = (mine.iter().enumerate()).rev()
            .map(|(i, mine)| Slice {
                vacant: AtomicU64::new(if *mine { 0 } else { u64::MAX }),
                resident: AtomicU64::new(if *mine { 0 } else { u64::MAX }),
                heap: AtomicU16::new(if *mine { heap.0 + 1 } else { i as u16 }),
                chunks: AtomicU16::new(SLICE_CHUNKS as u16),
                ..Slice::default()
            })
            .collect();
        let end = std::ptr::NonNull::from(&slices[..]).cast::<Slice>();
        // SAFETY: these are all the slices, last one first.
        let slices = unsafe { Slices::before(end.add(mine.len()), mine.len()) };
        let set = ChunkSet { slices, resident, heap };
        let len = mine.len() * SLICE_CHUNKS;
        let mut model = vec![false; len];
        for (insert, first, count) in changes {
            let first = first % len;
            for i in (first..len.min(first + count)).filter(|i| mine[i / SLICE_CHUNKS]) {
                model[i] = insert;
                if insert { set.insert(i) } else { set.remove(i) }
            }
        }
        let members: Vec<usize> = (0..len).filter(|&i| model[i]).collect();
        prop_assert!((0..len).all(|i| set.contains(i) == model[i]));
        prop_assert_eq!(set.first(), members.first().copied());
        prop_assert_eq!(set.descending().collect::<Vec<_>>(),
            members.iter().rev().copied().collect::<Vec<_>>());
        prop_assert_eq!(set.before(len), model.iter().rev().take_while(|m| **m).count());

        // The first maximal run that holds `want` chunks from an aligned chunk on.
        let mut at = 0;
        let fits = model.split_inclusive(|m| !m).find_map(|run| {
            let (start, length) = (at, run.iter().filter(|m| **m).count());
            at += run.len();
            let aligned = start.next_multiple_of(align);
            (aligned + want <= start + length).then_some(aligned)
        });
        prop_assert_eq!(set.first_fit(want, |i| i.next_multiple_of(align)), fits);
    }
}
