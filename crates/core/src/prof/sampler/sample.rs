//! Takes a sample: the stack, the site, and the mark of the block.

use super::{files, threads};
use crate::arena::{self, large};
use crate::cache::{self, Numbers, inside};
use crate::class::Class;
use crate::prof::gap::{self, Weight};
use crate::prof::samples::{self, Sample};
use crate::prof::unwind::Registers;
use crate::prof::{by_class, capture, history, hooks, root, sites};
use crate::space::Segment;
use crate::sys::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sys::errno::KeepErrno;
use crate::sys::lock::Guard;
use crate::sys::{message, time};
use crate::upkeep::probes;

/// The most frames of a stack.
static FRAMES_MAX: AtomicUsize = AtomicUsize::new(128);
/// The most bytes for the records of sites.
static SITE_BYTES_MAX: AtomicUsize = AtomicUsize::new(64 << 20);
/// Samples that were due and could not be taken: memory was out.
static LOST: AtomicUsize = AtomicUsize::new(0);
/// Samples that share a site because there was no room for their stacks.
static MORE: AtomicUsize = AtomicUsize::new(0);

/// Whether tracers of the probes alone want samples: these need no stacks, because tracers take
/// them.
static WITHOUT_STACKS: AtomicBool = AtomicBool::new(false);

/// Applies the options: the most frames of a stack, and the most bytes for the records of sites.
pub fn configure(max_frames: usize, max_site_bytes: usize) {
    FRAMES_MAX.store(max_frames, Ordering::Relaxed);
    SITE_BYTES_MAX.store(max_site_bytes, Ordering::Relaxed);
}

/// Sets whether samples have no stacks.
pub fn set_without_stacks(without: bool) {
    WITHOUT_STACKS.store(without, Ordering::Relaxed);
}

/// Whether samples have no stacks.
#[cfg(test)]
pub fn is_without_stacks() -> bool {
    WITHOUT_STACKS.load(Ordering::Relaxed)
}

/// Samples that were due and could not be taken.
pub fn lost() -> usize {
    LOST.load(Ordering::Relaxed)
}

/// Samples that share a site because there was no room for their stacks.
pub fn more() -> usize {
    MORE.load(Ordering::Relaxed)
}

/// Sets the counts of lost samples and of samples without a site of their own to zero.
pub fn forget_lost() {
    LOST.store(0, Ordering::Relaxed);
    MORE.store(0, Ordering::Relaxed);
}

/// Counts a sample that shares a site, and prints a line for the first. Inlined into its only
/// caller, because the library is short of room.
#[inline(always)]
fn count_more() {
    if MORE.fetch_add(1, Ordering::Relaxed) == 0 {
        message::say(c"mallard: prof_max_memory is full: further call stacks count as (more)\n");
    }
}

/// The calling thread's stack, as far as samples have it; `None` when memory is out.
pub fn stack() -> Option<capture::Stack> {
    capture::Stack::take(&Registers::here(), FRAMES_MAX.load(Ordering::Relaxed))
}

/// Samples the block, which a request of `size` bytes got, where the mean distance between samples
/// is 2^`lg` bytes, for a frame that has these registers.
pub fn take(block: usize, size: usize, thread: Numbers, lg: u32, from: &Registers) {
    let _keep = KeepErrno::new();
    let mut taken = None;
    take_inside(block, size, thread, lg, from, &mut taken);
    if let Some((stack, usable)) = taken {
        hooks::sampled(block, size, stack.frames(), usable);
        let _inside = inside::enter_or_wait();
        drop(stack);
    }
}

/// The stack of a thread that is inside; the program's own function runs outside.
fn stack_of(inside: &mut Option<inside::Inside>, from: &Registers) -> Option<capture::Stack> {
    let max = FRAMES_MAX.load(Ordering::Relaxed);
    if WITHOUT_STACKS.load(Ordering::Relaxed) {
        return None;
    }
    if !hooks::takes_stacks() || cache::countdown().is_none() {
        return capture::Stack::take(from, max);
    }
    let mut stack = capture::Stack::new()?;
    *inside = None;
    stack.fill_by_hook(max);
    *inside = inside::enter();
    Some(stack)
}

/// Like [`take`], but calls no function of the program: what those get is left in `taken`.
#[inline(never)]
fn take_inside(
    block: usize,
    size: usize,
    thread: Numbers,
    lg: u32,
    from: &Registers,
    taken: &mut Option<(capture::Stack, usize)>,
) {
    let Some(segment) = Segment::find(block) else {
        // A block of the fallback: a fork is under way.
        return;
    };
    let mut inside = inside::enter();
    if inside.is_none() {
        return;
    }
    let stack = stack_of(&mut inside, from);
    if inside.is_none() {
        return;
    }
    if threads::has_system_names() {
        threads::name_by_system(thread.own);
    }
    let Some(site) = site_of(stack.as_ref()) else {
        LOST.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let sample = sample_of(segment, block, size, thread, lg, site);
    if !mark(block, sample) {
        LOST.fetch_add(1, Ordering::Relaxed);
        return;
    }
    count(block, size, &sample);
    if hooks::want_samples() {
        *taken = stack.map(|stack| (stack, sample.usable));
    }
}

/// The sample of a block that was given out now.
#[inline(always)]
fn sample_of(
    segment: &Segment,
    block: usize,
    size: usize,
    thread: Numbers,
    lg: u32,
    site: &'static sites::Site,
) -> Sample {
    let (class, slab) = match segment.record_of(block).slab() {
        Some(slab) => (arena::class_of_slab(slab), slab),
        None => (Class::NONE, 0),
    };
    Sample {
        site,
        weight: weight_of(size, lg),
        requested: size,
        usable: match class {
            Class::NONE => large::bytes_of(block),
            class => class.size(),
        },
        slab,
        regions: class.shape().regions.into(),
        tid: thread.tid,
        born_ns: now_ns(),
        thread: thread.own,
        arena: arena::owner_of(block).unwrap_or(0),
        resets: samples::resets(),
    }
}

/// Enters a new sample in all figures.
#[inline(always)]
fn count(block: usize, size: usize, sample: &Sample) {
    if sample.site.is_of_more() {
        count_more();
    }
    let amount = sample.amount();
    if let Some(mut table) = table_with(sample) {
        table.add(sample.site, amount, sample.requested_bytes());
    }
    root::set_samples(samples::count());
    probes::alloc(block, size, sample.requested_bytes());
    by_class::count(sample, by_class::Change::Taken);
    if history::keeps() {
        history::sampled(block, sample);
    }
    files::count_interval(amount.bytes());
}

/// The site of a stack; `None` when memory is out.
pub fn site_of(stack: Option<&capture::Stack>) -> Option<&'static sites::Site> {
    let frames = stack.map_or(&[][..], capture::Stack::frames);
    sites::table().site(frames, SITE_BYTES_MAX.load(Ordering::Relaxed))
}

/// The figures of the sites, locked, if this sample is in them or may go there: no reset has
/// forgotten it. One that is under way waits for the lock, so that whatever is changed under it is
/// undone as a whole or not at all.
#[inline(never)]
pub fn table_with(sample: &Sample) -> Option<Guard<'static, sites::Table>> {
    let table = sites::table();
    (sample.resets == samples::resets()).then_some(table)
}

/// What a sample of a request stands for: itself alone without the option `prof_unbias`.
pub fn weight_of(size: usize, lg: u32) -> Weight {
    if gap::is_biased() {
        Weight::ONE
    } else {
        Weight::of(size, lg)
    }
}

/// Nanoseconds of the monotonic clock, as precisely as the option asks.
pub fn now_ns() -> u64 {
    if gap::is_precise() {
        time::now_ns()
    } else {
        time::now_coarse_ns()
    }
}

/// Marks a block as sampled. Returns false when memory is out.
#[inline(never)]
pub fn mark(block: usize, sample: Sample) -> bool {
    let entered = samples::enter(block, sample);
    if entered && sample.slab == 0 {
        large::set_sampled(block);
    }
    entered
}
