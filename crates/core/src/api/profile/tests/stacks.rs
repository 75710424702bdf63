//! The stacks of samples begin at the caller of the function that allocates, and are what a walk
//! through the profiler's own frames finds there.

use super::{Way, start};
use crate::api::dealloc;
use crate::prof::hooks::{self, Event};
use crate::prof::switch;
use crate::prof::unwind::{End, Registers, capture};
use crate::testing::own_process;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Stacks that were compared.
static COMPARED: AtomicUsize = AtomicUsize::new(0);
/// Frames that the samples left out.
static LEFT_OUT: AtomicUsize = AtomicUsize::new(0);

/// Walks from here, through the sampler, and compares the outer frames with those of the sample.
unsafe extern "C" fn sampled(_: *const u8, _: usize, frames: *const usize, len: u32, _: usize) {
    // SAFETY: the sample has this many frames.
    let sample = unsafe { std::slice::from_raw_parts(frames, len as usize) };
    let mut whole = [0; 256];
    let walk = capture(&Registers::here(), &mut whole, &mut [0; 2]);
    assert_eq!((walk.end, walk.omitted), (End::Complete, 0));
    let whole = &whole[..walk.frames];
    assert!(whole.ends_with(sample), "{whole:x?} {sample:x?}");
    COMPARED.fetch_add(1, Relaxed);
    LEFT_OUT.fetch_max(walk.frames - sample.len(), Relaxed);
}

#[test]
fn the_stack_of_a_sample_is_the_outer_part_of_a_whole_walk() {
    own_process!();
    start(0, 1);
    hooks::set(Event::Sample, sampled as *const () as usize);
    let ways = [
        Way::Plain,
        Way::Zeroed,
        Way::Aligned(256),
        Way::Uncached,
        Way::Grown,
    ];
    for way in ways {
        for size in [0, 100, 1500, 40_000, 300_000] {
            let p = way.block(size);
            // SAFETY: the block is in use, and not used again.
            unsafe { dealloc(p) };
        }
    }
    hooks::set(Event::Sample, 0);
    switch(false);
    // A block that grows is sampled twice, but not where it stays in place.
    assert!(COMPARED.load(Relaxed) >= 25, "{COMPARED:?}");
    // This function, the one that calls it, three of the sampler, and the entry that has saved the
    // registers: none of them is walked for a sample.
    assert!(LEFT_OUT.load(Relaxed) >= 4, "{LEFT_OUT:?}");
}
