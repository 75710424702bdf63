//! Tests allocation with flags against a model of what the flags promise.
//!
//! Random histories of calls with random flags run against the allocator and a list of the live
//! blocks, each filled with bytes of its own up to its usable size. The test checks alignment,
//! zeros, predicted sizes, kept contents, counted bytes, and that nothing remains at the end.

#[path = "model/pattern.rs"]
mod pattern;

use mallard_core::api::{self, extended, extended::Flags, threads};
use mallard_core::stats;
use pattern::{assert_all, assert_kept, fill};
use proptest::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The statistics are per process, so only one test runs at a time.
struct Alone(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

fn alone() -> Alone {
    static ALONE: Mutex<()> = Mutex::new(());
    Alone(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Drop for Alone {
    /// The thread of this test may end beside the next test: the statistics count a cache that is
    /// being flushed as allocated.
    fn drop(&mut self) {
        // A thread without a cache has nothing to flush.
        let _ = threads::flush_cache();
    }
}

#[derive(Clone, Debug)]
enum Op {
    Alloc {
        size: usize,
        flags: Flags,
    },
    Realloc {
        which: usize,
        size: usize,
        flags: Flags,
    },
    Resize {
        which: usize,
        size: usize,
        extra: usize,
        flags: Flags,
    },
    Free {
        which: usize,
        flags: Flags,
    },
    FreeSized {
        which: usize,
    },
}

struct Block {
    p: *mut u8,
    /// The requested size and flags.
    size: usize,
    flags: Flags,
    usable: usize,
    id: u64,
}

fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 1usize..2000,
        3 => 2000usize..70_000,
        2 => 70_000usize..600_000,
        1 => 1_000_000usize..10_000_000,
    ]
}

/// An alignment, and the flags that may accompany it.
fn flags() -> impl Strategy<Value = Flags> {
    let align = prop_oneof![
        4 => Just(None),
        6 => (0u32..13).prop_map(Some),
        1 => (13u32..23).prop_map(Some),
    ];
    (align, any::<bool>(), 0..6u8).prop_map(|(align, zero, source)| {
        let mut flags = Flags::NONE;
        if let Some(shift) = align {
            flags = flags.align(1 << shift);
        }
        if zero {
            flags = flags.zero();
        }
        match source {
            0 => flags.no_cache(),
            1 => flags.arena(0),
            2 => flags.cache(0),
            3 => flags.cache(1).arena(0),
            _ => flags,
        }
    })
}

fn op() -> impl Strategy<Value = Op> {
    let which = any::<usize>;
    prop_oneof![
        4 => (sizes(), flags()).prop_map(|(size, flags)| Op::Alloc { size, flags }),
        3 => (which(), sizes(), flags())
            .prop_map(|(which, size, flags)| Op::Realloc { which, size, flags }),
        2 => (which(), sizes(), prop_oneof![Just(0), sizes()], flags())
            .prop_map(|(which, size, extra, flags)| Op::Resize { which, size, extra, flags }),
        2 => (which(), flags()).prop_map(|(which, flags)| Op::Free { which, flags }),
        1 => which().prop_map(|which| Op::FreeSized { which }),
    ]
}

fn alignment(flags: Flags) -> usize {
    (0..64)
        .map(|shift| 1usize << shift)
        .find(|&align| flags.align(align) == flags)
        .expect("every flag has an alignment")
}

fn zeroes(flags: Flags) -> bool {
    flags.zero() == flags
}

/// Checks what holds for every returned block. The first `kept` bytes are the old block's.
fn check_new(p: *mut u8, size: usize, flags: Flags, kept: usize) -> usize {
    assert!(!p.is_null(), "{size} bytes with {flags:?}");
    assert!(
        p.addr().is_multiple_of(alignment(flags)),
        "{p:p} with {flags:?}"
    );
    // SAFETY: a live block.
    let usable = unsafe { api::usable_size(p) };
    let told = extended::usable_size_for(size, flags);
    assert!(
        usable >= size && usable == told,
        "{size} bytes with {flags:?}: {usable}, not {told}"
    );
    if zeroes(flags) {
        // SAFETY: a live block of this usable size.
        unsafe { assert_all(p, kept, usable, 0, "cleared bytes") };
    }
    usable
}

fn run(history: &[Op]) {
    // The caches that flags name. This thread counts, and its balance is the live bytes.
    let caches = [0, 1].map(|_| threads::create_cache());
    assert_eq!(caches, [Ok(0), Ok(1)]);
    let counts = threads::counts().expect("there is memory");
    let ahead = || counts.allocated().0.wrapping_sub(counts.freed().0) as usize;
    let before = ahead();
    let mut blocks: Vec<Block> = Vec::new();
    for (id, op) in (1u64..).zip(history) {
        match *op {
            Op::Alloc { size, flags } => {
                let p = extended::alloc_with(size, flags);
                let usable = check_new(p, size, flags, 0);
                // SAFETY: the block is ours and this long.
                unsafe { fill(p, usable, id) };
                blocks.push(Block {
                    p,
                    size,
                    flags,
                    usable,
                    id,
                });
            }
            Op::Realloc { which, size, flags } if !blocks.is_empty() => {
                let n = which % blocks.len();
                let b = &mut blocks[n];
                // SAFETY: a live block, whose old address is not used again.
                let p = unsafe { extended::realloc_with(b.p, size, flags) };
                let usable = check_new(p, size, flags, b.usable);
                // SAFETY: as above.
                unsafe {
                    assert_kept(p, b.usable, b.usable.min(usable), b.id);
                    fill(p, usable, id);
                }
                *b = Block {
                    p,
                    size,
                    flags,
                    usable,
                    id,
                };
            }
            Op::Resize {
                which,
                size,
                extra,
                flags,
            } if !blocks.is_empty() => {
                let n = which % blocks.len();
                let b = &mut blocks[n];
                // SAFETY: a live block.
                let usable = unsafe { extended::resize_in_place(b.p, size, extra, flags) };
                // SAFETY: as above.
                assert_eq!(usable, unsafe { api::usable_size(b.p) });
                let max = extended::usable_size_for(size + extra, Flags::NONE);
                assert!(
                    usable == b.usable || usable <= max,
                    "{usable} of {size} and {extra}"
                );
                assert!(
                    usable >= b.usable.min(size),
                    "shrunk below what was asked for"
                );
                // SAFETY: as above.
                unsafe {
                    assert_kept(b.p, b.usable, b.usable.min(usable), b.id);
                    if zeroes(flags) {
                        assert_all(b.p, b.usable, usable, 0, "cleared bytes");
                    }
                    fill(b.p, usable, id);
                }
                let align = Flags::NONE.align(alignment(b.flags));
                let size = if usable == b.usable { b.size } else { usable };
                *b = Block {
                    p: b.p,
                    size,
                    flags: align,
                    usable,
                    id,
                };
            }
            Op::Free { which, flags } if !blocks.is_empty() => {
                let b = blocks.swap_remove(which % blocks.len());
                // SAFETY: a live block, removed from the model.
                unsafe {
                    assert_kept(b.p, b.usable, b.usable, b.id);
                    extended::dealloc_with(b.p, flags);
                }
            }
            Op::FreeSized { which } if !blocks.is_empty() => {
                let b = blocks.swap_remove(which % blocks.len());
                let size = if which % 2 == 0 { b.size } else { b.usable };
                // SAFETY: a live block, asked for with this size and these flags.
                unsafe { extended::dealloc_sized_with(b.p, size, b.flags) };
            }
            _ => {}
        }
        let live: usize = blocks.iter().map(|b| b.usable).sum();
        assert_eq!(ahead().wrapping_sub(before), live, "counted after {op:?}");
    }
    for b in blocks {
        // SAFETY: a live block, removed from the model.
        unsafe {
            assert_kept(b.p, b.usable, b.usable, b.id);
            extended::dealloc_with(b.p, Flags::NONE);
        }
    }
    assert_eq!(ahead(), before);
    for number in [0, 1] {
        assert_eq!(threads::destroy_cache(number), Ok(()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_are_what_their_flags_promise_and_nothing_stays_behind(
        history in proptest::collection::vec(op(), 1..120)
    ) {
        let _alone = alone();
        let before = stats::now().allocated;
        run(&history);
        api::trim();
        prop_assert_eq!(stats::now().allocated, before);
    }
}
