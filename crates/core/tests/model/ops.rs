//! Random operations on an allocator.

use std::thread;

use mallard_core::api;
use proptest::prelude::*;
use proptest::sample::select;

use super::blocks::{Blocks, Way};

#[derive(Clone, Debug)]
pub enum Op {
    Alloc(usize),
    AllocZeroed(usize),
    AllocAligned {
        size: usize,
        align: usize,
    },
    /// Through Rust's allocator interface.
    AllocFront {
        size: usize,
        align: usize,
        zeroed: bool,
    },
    /// Several of one size, so that slabs and caches fill.
    AllocMany {
        size: usize,
        count: usize,
    },
    Free(usize, Way),
    FreeMany {
        pick: usize,
        count: usize,
    },
    Resize(usize, usize),
    /// A request that must fail.
    Impossible(usize, usize),
    /// A new thread does these and ends; its blocks stay.
    InAnotherThread(Vec<Op>),
    Trim,
    SetDecay(i64, i64),
}

const MIB: usize = 1 << 20;

/// Sizes: mostly small ones, with one below, at and above every class; some that only the page heap
/// serves; rarely huge ones.
pub fn size() -> impl Strategy<Value = usize> {
    let near_a_class = (5u32..22, 0usize..4, -1isize..=1).prop_map(|(doubling, quarter, off)| {
        let class = (1usize << doubling) + (quarter << (doubling - 2));
        class.saturating_add_signed(off)
    });
    prop_oneof![
        300 => 0usize..=1024,
        200 => near_a_class,
        100 => 1024usize..=16 * 1024,
        60 => 16 * 1024usize..=300 * 1024,
        30 => 300 * 1024..=5 * MIB,
        2 => 5 * MIB..=64 * MIB,
    ]
}

fn align() -> impl Strategy<Value = usize> {
    prop_oneof![
        40 => (0u32..=6).prop_map(|shift| 1 << shift),
        20 => (7u32..=13).prop_map(|shift| 1 << shift),
        4 => (14u32..=23).prop_map(|shift| 1 << shift),
    ]
}

fn way() -> impl Strategy<Value = Way> {
    select(vec![Way::Free, Way::Sized])
}

/// Impossible sizes: too large as they are, or too large once they are rounded up.
fn impossible() -> impl Strategy<Value = usize> {
    prop_oneof![
        Just(isize::MAX as usize),
        Just(isize::MAX as usize + 1),
        (0usize..10_000).prop_map(|n| usize::MAX - n),
        (0usize..10_000).prop_map(|n| isize::MAX as usize - n),
        // Within the type's range, but beyond the address space.
        Just(1 << 50),
    ]
}

/// The operations of a single thread.
fn simple() -> BoxedStrategy<Op> {
    prop_oneof![
        30 => size().prop_map(Op::Alloc),
        12 => size().prop_map(Op::AllocZeroed),
        10 => (size(), align()).prop_map(|(size, align)| Op::AllocAligned { size, align }),
        12 => (size(), align(), any::<bool>())
            .prop_map(|(size, align, zeroed)| Op::AllocFront { size, align, zeroed }),
        6 => (0usize..600, 2usize..200).prop_map(|(size, count)| Op::AllocMany { size, count }),
        2 => (600usize..40_000, 2usize..40).prop_map(|(size, count)| Op::AllocMany { size, count }),
        45 => (any::<usize>(), way()).prop_map(|(pick, way)| Op::Free(pick, way)),
        6 => (any::<usize>(), 2usize..300).prop_map(|(pick, count)| Op::FreeMany { pick, count }),
        30 => (any::<usize>(), size()).prop_map(|(pick, size)| Op::Resize(pick, size)),
        2 => (any::<usize>(), impossible()).prop_map(|(pick, size)| Op::Impossible(pick, size)),
        2 => Just(Op::Trim),
        3 => (select(vec![-1, 0, 1, 10, 10_000]), select(vec![-1, 0, 1, 10]))
            .prop_map(|(dirty, muzzy)| Op::SetDecay(dirty, muzzy)),
    ]
    .boxed()
}

pub fn ops(count: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(simple(), 1..count)
}

/// Like [`ops`], with threads that start and end.
pub fn ops_with_threads(count: usize) -> impl Strategy<Value = Vec<Op>> {
    let thread = prop::collection::vec(simple(), 1..20).prop_map(Op::InAnotherThread);
    prop::collection::vec(prop_oneof![20 => simple(), 1 => thread], 1..count)
}

impl Op {
    pub fn run(&self, blocks: &mut Blocks) {
        match *self {
            Op::Alloc(size) => blocks.alloc(size),
            Op::AllocZeroed(size) => blocks.alloc_zeroed(size),
            Op::AllocAligned { size, align } => blocks.alloc_aligned(size, align),
            Op::AllocFront {
                size,
                align,
                zeroed,
            } => blocks.alloc_front(size, align, zeroed),
            Op::AllocMany { size, count } => (0..count).for_each(|_| blocks.alloc(size)),
            Op::Free(pick, way) => blocks.free(pick, way),
            Op::FreeMany { pick, count } => {
                (0..count).for_each(|i| blocks.free(pick.wrapping_add(i * 7), Way::Sized));
            }
            Op::Resize(pick, size) => blocks.resize(pick, size),
            Op::Impossible(pick, size) => blocks.ask_the_impossible(pick, size),
            Op::InAnotherThread(ref ops) => thread::scope(|s| {
                let thread = s.spawn(|| ops.iter().for_each(|op| op.run(blocks)));
                if let Err(panic) = thread.join() {
                    std::panic::resume_unwind(panic);
                }
            }),
            Op::Trim => {
                api::trim();
            }
            Op::SetDecay(dirty, muzzy) => api::set_decay(dirty, muzzy),
        }
    }
}
