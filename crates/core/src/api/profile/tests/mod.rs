//! The profiler as its users meet it: blocks, sums, frees.

mod counts;
mod in_place;
mod single;
mod stacks;
mod switching;

use crate::api::extended::{self, Flags};
use crate::api::{
    self, alloc, alloc_aligned, alloc_zeroed, dealloc, dealloc_sized, profile, usable_size,
};
use crate::class::Class;
use crate::prof::samples;
use crate::prof::{gap, sites};
use crate::prof::{is_sampled, is_thread_on, reset, set_max_a_second, set_thread_on, switch};
use crate::testing::own_process;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Switches sampling on with a mean of 2^`lg` bytes and a seed of its own.
fn start(lg: u32, seed: u64) {
    api::start();
    switch(false);
    reset(lg);
    gap::set_seed(seed);
    switch(true);
}

fn live() -> (u64, u64) {
    let (live, _) = sites::table().totals();
    (live.blocks(), live.bytes())
}

/// The ways to a block of `size` bytes.
#[derive(Clone, Copy, Debug)]
enum Way {
    Plain,
    Zeroed,
    Aligned(usize),
    Uncached,
    Grown,
}

impl Way {
    fn block(self, size: usize) -> *mut u8 {
        let p = match self {
            Way::Plain => alloc(size),
            Way::Zeroed => alloc_zeroed(size),
            Way::Aligned(align) => alloc_aligned(size, align),
            Way::Uncached => extended::alloc_with(size, Flags::NONE.no_cache()),
            Way::Grown => {
                let p = alloc(size / 3);
                // SAFETY: the block is new.
                unsafe { api::realloc(p, size) }
            }
        };
        assert!(!p.is_null());
        p
    }
}

/// Seeds that each sum is the mean of. More, up to the 200 with which a mean is within 1 % of the
/// truth, by the variable `MALLARD_PROF_SEEDS`: a few minutes.
fn seeds() -> u64 {
    let asked = std::env::var("MALLARD_PROF_SEEDS").ok();
    asked.and_then(|n| n.parse().ok()).unwrap_or(4)
}

/// The mean over seeds of the sums for a set of blocks that stays, against the truth.
fn expect_unbiased(way: Way, size: usize) {
    expect_unbiased_with(seeds(), way, size);
}

fn expect_unbiased_with(seeds: u64, way: Way, size: usize) {
    // Samples that one run expects.
    let expected = if seeds < 100 { 250 } else { 1000 };
    // The mean distance is some blocks, and at least what makes samples rare among small ones.
    let lg = (size * 8).max(256).next_power_of_two().ilog2();
    let blocks = (expected << lg) / (size + 1);
    let (mut count, mut bytes, mut truth) = (0.0, 0.0, 0.0);
    let mut held = Vec::with_capacity(blocks);
    for seed in 0..seeds {
        start(lg, seed + 1);
        held.extend((0..blocks).map(|_| way.block(size)));
        let (n, sum) = live();
        count += n as f64;
        bytes += sum as f64;
        // SAFETY: the blocks are in use.
        truth = held.iter().map(|&p| unsafe { usable_size(p) } as f64).sum();
        // Frees with a size take samples off as well.
        let is_sized = seed % 2 == 1 && !matches!(way, Way::Aligned(_));
        held.drain(..).for_each(|p| {
            if is_sized {
                // SAFETY: as above, and they are not used any more.
                unsafe { dealloc_sized(p, size) }
            } else {
                // SAFETY: as above.
                unsafe { dealloc(p) }
            }
        });
        assert_eq!(live(), (0, 0), "{way:?} {size}");
        assert_eq!(samples::count(), 0);
    }
    let seeds = seeds as f64;
    let x = (size as f64 + 1.0) / (1u64 << lg) as f64;
    let p = -(-x).exp_m1();
    // Blocks are sampled independently, each with a weight of 1/p.
    let sigma = ((1.0 - p) / (p * blocks as f64) / seeds).sqrt();
    for (what, ratio) in [
        ("blocks", count / seeds / blocks as f64),
        ("bytes", bytes / seeds / truth),
    ] {
        assert!(
            (ratio - 1.0).abs() < 4.0 * sigma + 1e-4,
            "{way:?} {size}: {what} {ratio}, σ {sigma}"
        );
        if sigma < 0.0025 {
            assert!((ratio - 1.0).abs() < 0.01, "{way:?} {size}: {what} {ratio}");
        }
    }
}

#[test]
fn sums_are_unbiased_for_every_slab_class() {
    own_process!();
    for class in Class::slabs() {
        expect_unbiased(Way::Plain, class.size());
    }
    expect_unbiased(Way::Plain, 1);
}

#[test]
fn sums_are_unbiased_on_every_way_to_a_block() {
    own_process!();
    for way in [
        Way::Zeroed,
        Way::Uncached,
        Way::Aligned(64),
        Way::Aligned(4096),
    ] {
        for size in [24, 500, 3000, 10_000] {
            expect_unbiased(way, size);
        }
    }
    // Not zeroed: the blocks are gibibytes together, and stay untouched.
    for size in [1 << 20, 4 << 20] {
        expect_unbiased(Way::Plain, size);
    }
    for size in [20_000, 60_000, 200_000, 400_000] {
        for way in [Way::Plain, Way::Zeroed, Way::Aligned(4096), Way::Uncached] {
            expect_unbiased(way, size);
        }
    }
    // The last two grow in place, and are rounded up a lot.
    for size in [100, 5000, 100_000, 120_000] {
        expect_unbiased_with(seeds().max(32), Way::Grown, size);
    }
}

/// A program that repeats itself at the mean distance between samples is sampled fairly: of
/// two blocks that take turns each has its share.
#[test]
fn a_period_of_the_mean_distance_does_not_show() {
    own_process!();
    const LG: u32 = 12;
    // Together as many bytes as the mean distance, as the profiler counts them.
    let sizes = [1000, (1 << LG) - 1000 - 2];
    let (mut found, mut rounds) = ([0.0; 2], 0.0);
    for seed in 0..20 {
        start(LG, seed);
        let held: Vec<_> = (0..4000).map(|i| alloc(sizes[i % 2])).collect();
        samples::each(&mut |_, sample| {
            let which = sizes.iter().position(|&size| size == sample.requested);
            if let Some(which) = which {
                found[which] += 1.0;
            }
        });
        rounds += held.len() as f64 / 2.0;
        // SAFETY: the blocks are in use, and not used again.
        held.into_iter().for_each(|p| unsafe { dealloc(p) });
    }
    for (size, found) in sizes.into_iter().zip(found) {
        let p = -(-(size as f64 + 1.0) / f64::from(1 << LG)).exp_m1();
        let sigma = ((1.0 - p) / (p * rounds)).sqrt();
        let ratio: f64 = found / p / rounds;
        assert!((ratio - 1.0).abs() < 4.0 * sigma, "{size}: {ratio}");
    }
}

/// The number of samples in each stretch of memory varies as a Poisson process has it.
#[test]
fn samples_are_spread_as_by_chance() {
    own_process!();
    const LG: u32 = 10;
    const STRETCHES: usize = 4000;
    start(LG, 3);
    // Each stretch is 64 mean distances long.
    let mut counts = Vec::with_capacity(STRETCHES);
    let mut before = 0;
    for _ in 0..STRETCHES {
        let held: Vec<_> = (0..1024).map(|_| alloc(63)).collect();
        let (_, ever) = sites::table().totals();
        counts.push((ever.blocks() - before) as f64);
        before = ever.blocks();
        // SAFETY: the blocks are in use, and not used again.
        held.into_iter().for_each(|p| unsafe { dealloc(p) });
    }
    let n = STRETCHES as f64;
    let mean = counts.iter().sum::<f64>() / n;
    let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / n;
    // Of 1024 blocks each with the chance p, counted with the weight 1/p.
    let p = -(-64.0 / f64::from(1 << LG)).exp_m1();
    let expected = 1024.0 * (1.0 - p) / p;
    assert!(
        (0.9..1.1).contains(&(variance / expected)),
        "{variance} {expected}"
    );
    assert!((mean / 1024.0 - 1.0).abs() < 0.01, "{mean}");
}

#[test]
fn a_mix_of_sizes_in_one_stack_is_told_truly() {
    own_process!();
    let sizes = [16, 48, 333, 1024, 5000, 14_000, 33_000, 300_000];
    let (mut ratio_blocks, mut ratio_bytes) = (0.0, 0.0);
    const SEEDS: u64 = 100;
    for seed in 0..SEEDS {
        start(14, seed);
        let mut held = Vec::new();
        for i in 0..20_000usize {
            // Many small ones and few large ones.
            let size = sizes[(i.trailing_zeros() as usize).min(sizes.len() - 1)];
            held.push(alloc(size));
        }
        // SAFETY: the blocks are in use.
        let truth: usize = held.iter().map(|&p| unsafe { usable_size(p) }).sum();
        let (blocks, bytes) = live();
        ratio_blocks += blocks as f64 / held.len() as f64;
        ratio_bytes += bytes as f64 / truth as f64;
        // SAFETY: as above, and they are not used any more.
        held.into_iter().for_each(|p| unsafe { dealloc(p) });
    }
    let of = |sum: f64| sum / SEEDS as f64;
    assert!((of(ratio_bytes) - 1.0).abs() < 0.01, "{}", of(ratio_bytes));
    assert!(
        (of(ratio_blocks) - 1.0).abs() < 0.02,
        "{}",
        of(ratio_blocks)
    );
}

/// A thread whose samples are thinned out has fewer of them, and they stand for as much.
#[test]
fn thinned_samples_stand_for_what_was_allocated() {
    own_process!();
    const SEEDS: u32 = 16;
    const BLOCKS: usize = 100_000;
    // The first call of the interface applies the options.
    profile::lg_sample();
    let ever = |max_a_second: u32| {
        let ratios = (0..SEEDS).map(|seed| {
            start(17, seed.into());
            set_max_a_second(max_a_second);
            for _ in 0..BLOCKS {
                // SAFETY: the block is in use, and not used again.
                unsafe { dealloc(alloc(16_000)) };
            }
            let (_, ever) = sites::table().totals();
            ever.blocks() as f64 / BLOCKS as f64
        });
        let ratios: Vec<f64> = ratios.collect();
        let mean = ratios.iter().sum::<f64>() / f64::from(SEEDS);
        let square = ratios
            .iter()
            .map(|ratio| (ratio - mean).powi(2))
            .sum::<f64>();
        (mean, (square / f64::from(SEEDS)).sqrt())
    };
    let (all, error) = ever(0);
    let (thinned, larger_error) = ever(100);
    assert!(larger_error > 2.0 * error, "{larger_error} {error}");
    for (mean, error) in [(all, error), (thinned, larger_error)] {
        let sigma = error / f64::from(SEEDS).sqrt();
        assert!((mean - 1.0).abs() < 4.0 * sigma, "{mean}, {sigma}");
    }
}

#[test]
fn a_sampled_block_is_like_any_other() {
    own_process!();
    // Every block is sampled.
    start(0, 1);
    for size in [
        1,
        8,
        100,
        1000,
        1025,
        9000,
        14_336,
        14_337,
        70_000,
        300_000,
        5 << 20,
    ] {
        let p = alloc_zeroed(size);
        assert!(is_sampled(p.addr()), "{size}");
        assert!(samples::count() > 0);
        // SAFETY: the block is in use.
        let usable = unsafe { usable_size(p) };
        assert!(usable >= size);
        // SAFETY: as above, and it has this many bytes.
        let bytes = unsafe { core::slice::from_raw_parts_mut(p, usable) };
        assert!(bytes.iter().all(|&byte| byte == 0), "{size}");
        bytes.fill(7);
        // SAFETY: the block is in use, and `p` is not used again.
        let q = unsafe { api::realloc(p, size + 1) };
        // SAFETY: the block is in use and has this many bytes.
        let kept = unsafe { core::slice::from_raw_parts(q, size) };
        assert!(kept.iter().all(|&byte| byte == 7));
        assert_eq!(
            samples::count(),
            1,
            "{size}: the old block's sample is gone"
        );
        // SAFETY: the block is in use, and not used again.
        unsafe { dealloc_sized(q, size + 1) };
        assert_eq!((samples::count(), live()), (0, (0, 0)), "{size}");
    }
    for align in [16, 64, 512, 4096, 1 << 16, 1 << 21] {
        for size in [1, 100, 5000, 100_000] {
            let p = alloc_aligned(size, align);
            assert!(
                is_sampled(p.addr()) && p.addr().is_multiple_of(align),
                "{size} {align}"
            );
            // SAFETY: the block is in use, and not used again.
            unsafe { dealloc(p) };
        }
    }
}

#[test]
fn a_block_that_grows_in_place_or_by_moving_pages_keeps_its_sample() {
    own_process!();
    start(0, 1);
    let mut p = alloc(400_000);
    for size in [500_000, 3 << 20, 9 << 20, 40 << 20, 2 << 20, 300_000] {
        // SAFETY: the block is in use, and the old address is not used again.
        p = unsafe { api::realloc(p, size) };
        assert!(!p.is_null() && is_sampled(p.addr()));
        // SAFETY: the block is in use.
        let usable = unsafe { usable_size(p) };
        assert_eq!(live(), (1, usable as u64), "{size}");
    }
    // SAFETY: the block is in use, and not used again.
    unsafe { dealloc(p) };
    assert_eq!(live(), (0, 0));
}

#[test]
fn blocks_outlive_the_sampling_and_its_resets() {
    own_process!();
    start(0, 1);
    let old: Vec<_> = (0..100).map(|i| alloc(i * 300)).collect();
    switch(false);
    let unsampled = alloc(100);
    assert!(!is_sampled(unsampled.addr()));
    reset(0);
    assert_eq!(live(), (0, 0));
    let told = samples::groups(samples::resets()).map_or(0, |groups| groups.iter().count());
    assert_eq!(told, 0, "profiles do not tell them either");
    switch(true);
    let new = alloc(100);
    // SAFETY: the blocks are in use, and not used again.
    old.into_iter().for_each(|p| unsafe { dealloc(p) });
    assert_eq!(live().0, 1, "frees of forgotten samples change nothing");
    // SAFETY: as above.
    unsafe {
        dealloc(new);
        dealloc(unsampled);
    }
    assert_eq!((live(), samples::count()), ((0, 0), 0));
}

#[test]
fn a_thread_that_is_off_is_not_sampled() {
    own_process!();
    start(0, 1);
    set_thread_on(false);
    let p = alloc(100);
    assert!(!is_sampled(p.addr()) && !is_thread_on());
    std::thread::spawn(|| {
        let p = alloc(100);
        assert!(is_sampled(p.addr()) && is_thread_on());
        // SAFETY: the block is in use, and not used again.
        unsafe { dealloc(p) };
    })
    .join()
    .unwrap();
    set_thread_on(true);
    let q = alloc(100);
    assert!(is_sampled(q.addr()));
    // SAFETY: the blocks are in use, and not used again.
    unsafe {
        dealloc(p);
        dealloc(q);
    }
}

/// Operations of one thread on its blocks, while others switch sampling on and off and reset it.
#[test]
fn every_block_is_served_and_freed_whatever_the_profiler_does() {
    own_process!();
    let stop = &std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut i = 0u32;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                i += 1;
                match i % 7 {
                    0 => reset(i % 20),
                    1 | 3 | 5 => switch(true),
                    _ => switch(false),
                }
                std::thread::yield_now();
            }
        });
        let threads: Vec<_> = (0..3)
            .map(|t| scope.spawn(move || random_operations(t)))
            .collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok));
    });
    switch(false);
    assert_eq!(samples::count(), 0, "all blocks were freed");
    reset(10);
}

fn random_operations(seed: u8) {
    let size = prop_oneof![0usize..200, 0usize..20_000, 0usize..600_000];
    let step = (0usize..64, size, 0usize..8);
    let steps = prop::collection::vec(step, 400);
    let rng = proptest::test_runner::TestRng::from_seed(
        proptest::test_runner::RngAlgorithm::ChaCha,
        &[seed; 32],
    );
    let mut runner = TestRunner::new_with_rng(
        Config {
            failure_persistence: None,
            ..Config::with_cases(60)
        },
        rng,
    );
    let done = runner.run(&steps, |steps| {
        let mut blocks: Vec<Option<(*mut u8, usize)>> = vec![None; 64];
        let mark = |p: *mut u8, size: usize, tag: u8| {
            // SAFETY: the block is in use and has this many bytes.
            let bytes = unsafe { core::slice::from_raw_parts_mut(p, size) };
            if let [first, .., last] = bytes {
                (*first, *last) = (tag, !tag);
            }
        };
        let check = |p: *mut u8, size: usize, tag: u8| {
            // SAFETY: as above.
            match unsafe { core::slice::from_raw_parts(p, size) } {
                [first, .., last] => *first == tag && *last == !tag,
                _ => true,
            }
        };
        for (at, size, what) in steps {
            let tag = at as u8;
            blocks[at] = match (blocks[at].take(), what) {
                (None, 0..=4) => Some((alloc(size), size)),
                (None, 5) => Some((alloc_zeroed(size), size)),
                (None, _) => Some((alloc_aligned(size, 64), size)),
                (Some((p, old)), 0..=2) => {
                    prop_assert!(check(p, old, tag));
                    // SAFETY: the block is in use, and not used again.
                    unsafe { dealloc(p) };
                    None
                }
                (Some((p, old)), 3) => {
                    prop_assert!(check(p, old, tag));
                    // SAFETY: as above.
                    unsafe { dealloc_sized(p, old) };
                    None
                }
                (Some((p, old)), _) => {
                    prop_assert!(check(p, old, tag));
                    // SAFETY: as above.
                    let q = unsafe { api::realloc(p, size) };
                    let kept = old.min(size);
                    // SAFETY: the block is in use and has this many bytes.
                    let is_kept = kept < 2 || unsafe { *q } == tag;
                    prop_assert!(is_kept);
                    Some((q, size))
                }
            };
            if let Some((p, size)) = blocks[at] {
                prop_assert!(!p.is_null());
                // SAFETY: the block is in use.
                let usable = unsafe { usable_size(p) };
                prop_assert!(usable >= size);
                mark(p, size, tag);
            }
        }
        for (p, _) in blocks.into_iter().flatten() {
            // SAFETY: the block is in use, and not used again.
            unsafe { dealloc(p) };
        }
        Ok(())
    });
    done.unwrap();
}

#[test]
fn hooks_are_called_outside_and_may_allocate() {
    use crate::prof::hooks::{self, Event};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    own_process!();
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    static FREED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn sampled(_: *const u8, size: usize, _: *const usize, len: u32, _: usize) {
        assert!(len > 0);
        SEEN.fetch_add(size, Relaxed);
        // SAFETY: a block of its own.
        unsafe { dealloc(alloc(64)) };
    }
    unsafe extern "C" fn freed(_: *const u8, size: usize) {
        FREED.fetch_add(size, Relaxed);
        // SAFETY: a block of its own.
        unsafe { dealloc(alloc(64)) };
    }
    unsafe extern "C" fn backtrace(frames: *mut usize, len: *mut u32, _: u32) {
        // SAFETY: there is room for two.
        unsafe {
            dealloc(alloc(64));
            frames.write(0x1234);
            *len = 1;
        }
    }
    start(0, 1);
    hooks::set(Event::Sample, sampled as *const () as usize);
    hooks::set(Event::Free, freed as *const () as usize);
    hooks::set(Event::Backtrace, backtrace as *const () as usize);
    let p = alloc(1000);
    // SAFETY: the block is in use, and not used any more.
    unsafe { dealloc(p) };
    for event in [Event::Sample, Event::Free, Event::Backtrace] {
        hooks::set(event, 0);
    }
    switch(false);
    assert_eq!(
        (SEEN.load(Relaxed), FREED.load(Relaxed)),
        (1000, usable(1000))
    );
    let mut found = false;
    sites::each(&mut |site, _| found |= site.frames() == [0x1234]);
    assert!(found, "the program's stack is the site's");
}

/// The bytes of a block for a request.
fn usable(size: usize) -> usize {
    Class::for_request(size).size()
}
