//! Decides which blocks are sampled, and takes samples on and off.
//!
//! The paths that give out and take back blocks call these functions; those on which nothing is
//! sampled do so only behind a test of [`is_on`], or where the page map files a block under no
//! class.

use super::capture;
use super::dump::{self, Reason};
use super::gap::{self, Weight, lg_sample};
use super::history::{self, Moment};
use super::samples::{self, Sample};
use super::{by_class, hooks, root, sites};
use crate::arena::{self, large};
use crate::cache::{self, Countdown, current, deferred, inside, life, registry};
use crate::class::{Class, hidden};
use crate::heap::PAGE_HEAPS;
use crate::space::Segment;
use crate::space::segment::PageRecord;
use crate::sys::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sys::errno::KeepErrno;
use crate::sys::lock::RawLock;
use crate::sys::time;
use crate::upkeep::export::page::Page;
use crate::upkeep::probes;
use core::ffi::CStr;
pub use hidden::is_on;

/// Mean bytes between samples from which a sampled block keeps the block that the heap would have
/// given (base-2 logarithm). Below, that would double the heap.
pub const PROXY_LG: u32 = 17;

/// The number of times that distances became invalid, plus one: since another mean was set, samples
/// were forgotten, or sampling was switched on. Threads then draw anew.
static EPOCH: AtomicU32 = AtomicU32::new(1);
/// Whether threads are sampled that did not say.
static THREADS_ON: AtomicBool = AtomicBool::new(true);
/// The most frames of a stack.
static MOST_FRAMES: AtomicUsize = AtomicUsize::new(128);
/// The most bytes for the records of sites.
static MOST_SITE_BYTES: AtomicUsize = AtomicUsize::new(64 << 20);
/// Bytes of sampled blocks, as weighted, between two profiles written by themselves; 0 for none.
static INTERVAL: AtomicU64 = AtomicU64::new(0);
static SINCE_INTERVAL: AtomicU64 = AtomicU64::new(0);
/// Whether a thread that holds no lock is to write a profile.
static IS_DUE: AtomicBool = AtomicBool::new(false);
/// Whether each new maximum of memory in use writes a profile, the pages in use at the last one,
/// and its time in milliseconds.
static GROWS: AtomicBool = AtomicBool::new(false);
static MOST_PAGES: AtomicUsize = AtomicUsize::new(0);
static GREW_MS: AtomicU64 = AtomicU64::new(0);
/// Whether tracers of the probes alone want samples: these need no stacks, because tracers take
/// them.
static WITHOUT_STACKS: AtomicBool = AtomicBool::new(false);
/// Samples that were due and could not be taken: memory was out.
static LOST: AtomicUsize = AtomicUsize::new(0);
/// Whether the figures are those of the samples themselves, whether times of samples are exact, and
/// whether threads have the names that the system has.
static SYSTEM_NAMES: AtomicBool = AtomicBool::new(false);
/// The countdown of all threads that have no cache.
static SHARED_LEFT: AtomicU64 = AtomicU64::new(0);

/// How the profiler works, from the options.
pub struct Settings {
    pub lg_sample: u32,
    pub most_frames: usize,
    pub most_site_bytes: usize,
    pub threads_on: bool,
    /// Bytes between two profiles written by themselves (base-2 logarithm); negative for none.
    pub lg_interval: i64,
    /// Whether each new maximum of memory in use writes a profile.
    pub grows: bool,
    /// For repeatable distances.
    pub seed: Option<u64>,
    /// Whether the figures are those of the samples themselves.
    pub biased: bool,
    /// Whether times of samples are exact.
    pub precise: bool,
    /// Whether threads have the names that the system has.
    pub system_names: bool,
    /// How many recent samples are kept; negative for all.
    pub most_recent: i64,
    /// Whether samples are counted by class, and whether they are logged.
    pub counts_classes: bool,
    pub logs: bool,
}

/// Applies the options, before the first sample.
pub fn configure(settings: &Settings) {
    gap::set_lg_sample(settings.lg_sample);
    MOST_FRAMES.store(settings.most_frames, Ordering::Relaxed);
    MOST_SITE_BYTES.store(settings.most_site_bytes, Ordering::Relaxed);
    THREADS_ON.store(settings.threads_on, Ordering::Relaxed);
    let interval = u32::try_from(settings.lg_interval).map_or(0, |lg| 1u64 << lg.min(63));
    INTERVAL.store(interval, Ordering::Relaxed);
    GROWS.store(settings.grows, Ordering::Relaxed);
    gap::set_manner(settings.biased, settings.precise);
    SYSTEM_NAMES.store(settings.system_names, Ordering::Relaxed);
    set_most_recent(settings.most_recent);
    if settings.counts_classes {
        let _inside = inside::enter_or_wait();
        by_class::begin();
    }
    if settings.logs {
        begin_log(None);
    }
    gap::set_seed(settings.seed.unwrap_or_else(some_seed));
}

/// A seed that differs between processes and runs.
fn some_seed() -> u64 {
    // SAFETY: getpid has no preconditions.
    let pid = unsafe { libc::getpid() } as u64;
    time::now_ns() ^ pid << 32 ^ core::ptr::from_ref(&EPOCH).addr() as u64
}

/// Switches sampling on or off, for all threads at once.
#[cold]
#[inline(never)]
pub fn switch(on: bool) {
    let _inside = inside::enter_or_wait();
    WITHOUT_STACKS.store(false, Ordering::Relaxed);
    if on == is_on() {
        return;
    }
    if on {
        deferred::on_sampled(freed_after_fork);
        root::begin(lg_sample());
        capture::begin();
        begin_epoch();
        hidden::hide();
    } else {
        hidden::show();
    }
    root::set_on(on);
}

/// The same for tracers that came to the probes, or left them. Sampling that somebody else has
/// switched on is not changed.
pub fn switch_for_tracers(on: bool) {
    if on && !is_on() {
        switch(true);
        WITHOUT_STACKS.store(true, Ordering::Relaxed);
    } else if !on && WITHOUT_STACKS.load(Ordering::Relaxed) {
        switch(false);
    }
}

/// Leads readers outside the process to the page of statistics.
pub fn set_page(page: &'static Page) {
    root::begin(lg_sample());
    root::set_page(page);
}

/// Leads them to none.
pub fn forget_page() {
    root::set_page(core::ptr::null());
}

fn begin_epoch() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
    SHARED_LEFT.store(0, Ordering::Relaxed);
}

/// Whether threads are sampled that did not say.
pub fn threads_on() -> bool {
    THREADS_ON.load(Ordering::Relaxed)
}

/// Sets that, for all such threads.
pub fn set_threads_on(on: bool) {
    let _inside = inside::enter_or_wait();
    THREADS_ON.store(on, Ordering::Relaxed);
    begin_epoch();
    registry::end_countdowns();
}

/// Whether the calling thread is sampled while sampling is on.
pub fn is_thread_on() -> bool {
    let off = cache::countdown().and_then(Countdown::is_off);
    off.map_or_else(threads_on, |off| !off)
}

/// Sets that. Without effect on a thread that has no cache.
pub fn set_thread_on(on: bool) {
    life::current_or_new();
    if let Some(countdown) = cache::countdown() {
        countdown.set_off(!on);
    }
}

/// Forgets all samples, and sets the mean bytes between samples (base-2 logarithm).
#[cold]
#[inline(never)]
pub fn reset(lg_sample: u32) {
    let _inside = inside::enter_or_wait();
    let mut table = sites::table();
    samples::forget_all();
    gap::set_lg_sample(lg_sample.min(63));
    root::set_lg_sample(lg_sample.min(63));
    table.reset();
    drop(table);
    LOST.store(0, Ordering::Relaxed);
    begin_epoch();
    // Distances of another mean may be long.
    registry::end_countdowns();
}

/// Counts a request of `size` bytes, which got this block, and takes a sample if one is due.
/// Returns the block for the program. For paths that do not count by themselves, while sampling is
/// on.
#[cold]
#[inline(never)]
pub fn counted(block: usize, size: usize) -> usize {
    counted_part(block, size, size)
}

/// Counts a block that grew in place by a request of `more` bytes to `size` bytes. As unsampled
/// blocks may be sampled for the bytes that are added, a sample of a block that grew stands for
/// what a new one of its length would.
#[cold]
#[inline(never)]
pub fn grown(block: usize, more: usize, size: usize) {
    if samples::are_any_large() && large::is_sampled(block) {
        return;
    }
    // A large block stays where it is.
    counted_part(block, more, size);
}

fn counted_part(block: usize, part: usize, size: usize) -> usize {
    match cache::countdown() {
        Some(countdown) if countdown.spend(part) => block,
        Some(countdown) => due_part(countdown, block, part, size),
        None => counted_without_cache(block, part, size),
    }
}

/// Takes a sample of a request, if the bytes before it were not drawn in another epoch. Returns the
/// block for the program.
#[cold]
#[inline(never)]
pub fn due(size: usize, block: usize) -> *mut u8 {
    match cache::countdown() {
        Some(countdown) => due_part(countdown, block, size, size) as *mut u8,
        None => block as *mut u8,
    }
}

fn due_part(countdown: &Countdown, block: usize, part: usize, size: usize) -> usize {
    let epoch = EPOCH.load(Ordering::Relaxed);
    if !countdown.is_of(epoch) {
        countdown.enter(epoch, thread_number());
        countdown.set(gap::draw(lg_sample()));
        if is_thread_on() && countdown.spend(part) {
            return block;
        }
    }
    if !is_thread_on() {
        // Until it or all threads are told otherwise.
        countdown.set(i64::MAX);
        return block;
    }
    let Some(_sampling) = countdown.begin() else {
        return block;
    };
    countdown.set(gap::draw(lg_sample()));
    let sampled = sample(block, size, countdown.thread());
    if IS_DUE.load(Ordering::Relaxed) && IS_DUE.swap(false, Ordering::Relaxed) {
        dump::write_due(Reason::Interval);
    }
    if GROWS.load(Ordering::Relaxed) && has_grown() {
        dump::write_due(Reason::Growth);
    }
    sampled
}

/// Whether the memory in use has grown enough since its last maximum to write a profile: by a
/// tenth, a second ago or more. Tells one thread only.
#[cold]
#[inline(never)]
fn has_grown() -> bool {
    const GROWTH_PART: usize = 10;
    const LEAST_MS: u64 = 1000;
    let pages = PAGE_HEAPS.totals().used;
    let most = MOST_PAGES.load(Ordering::Relaxed);
    let (now, last) = (time::now_ms(), GREW_MS.load(Ordering::Relaxed));
    let is_soon = last != 0 && now < last + LEAST_MS;
    if pages < most + most / GROWTH_PART + 1 || is_soon {
        return false;
    }
    let is_first = GREW_MS.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
    if is_first.is_ok() {
        MOST_PAGES.store(pages, Ordering::Relaxed);
    }
    is_first.is_ok()
}

/// Whether each new maximum of memory in use writes a profile.
pub fn dumps_growth() -> bool {
    GROWS.load(Ordering::Relaxed)
}

/// Sets that.
pub fn set_dumps_growth(on: bool) {
    GROWS.store(on, Ordering::Relaxed);
}

/// Bytes allocated between two profiles that are written by themselves; 0 for none.
pub fn interval() -> u64 {
    INTERVAL.load(Ordering::Relaxed)
}

/// Like [`counted`], in a thread without a cache: such threads count down together.
#[cold]
#[inline(never)]
fn counted_without_cache(block: usize, part: usize, size: usize) -> usize {
    let left = SHARED_LEFT.fetch_sub(part as u64 + 1, Ordering::Relaxed) as i64;
    if left > part as i64 {
        return block;
    }
    let gap = gap::draw(lg_sample());
    SHARED_LEFT.store(gap as u64, Ordering::Relaxed);
    sample(block, size, thread_number())
}

/// The system's number of the calling thread. A plain system call: the C library's function is
/// newer than some libraries that we run on.
fn thread_number() -> u32 {
    // SAFETY: the call has no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Samples the block, which a request of `size` bytes got. Returns the block for the program.
fn sample(block: usize, size: usize, thread: u32) -> usize {
    let _keep = KeepErrno::new();
    let mut taken = None;
    let sampled = sample_inside(block, size, thread, &mut taken);
    if let Some((stack, usable)) = taken {
        hooks::sampled(sampled, size, stack.frames(), usable);
        let _inside = inside::enter_or_wait();
        drop(stack);
    }
    sampled
}

/// The stack of a thread that is inside; the program's own function runs outside.
fn stack_of(inside: &mut Option<inside::Inside>) -> Option<capture::Stack> {
    let most = MOST_FRAMES.load(Ordering::Relaxed);
    if WITHOUT_STACKS.load(Ordering::Relaxed) {
        return None;
    }
    if !hooks::takes_stacks() || cache::countdown().is_none() {
        return capture::Stack::take(most);
    }
    let mut stack = capture::Stack::new()?;
    *inside = None;
    stack.fill_by_hook(most);
    *inside = inside::enter();
    Some(stack)
}

/// Like [`sample`], but for functions of the program: what those are told is left in `taken`.
#[inline(never)]
fn sample_inside(
    block: usize,
    size: usize,
    thread: u32,
    taken: &mut Option<(capture::Stack, usize)>,
) -> usize {
    let Some(segment) = Segment::find(block) else {
        // A block of the fallback: a fork is under way.
        return block;
    };
    let lg = lg_sample();
    let mut inside = inside::enter();
    if inside.is_none() {
        return block;
    }
    let stack = stack_of(&mut inside);
    if inside.is_none() {
        return block;
    }
    if SYSTEM_NAMES.load(Ordering::Relaxed) {
        name_by_system(thread);
    }
    let Some(site) = site_of(stack.as_ref()) else {
        LOST.fetch_add(1, Ordering::Relaxed);
        return block;
    };
    let (class, slab) = match segment.record_of(block) {
        PageRecord::Slab(slab) => (segment.class_of(block), slab),
        _ => (Class::NONE, 0),
    };
    let keeps_shape = lg >= PROXY_LG;
    let sample = Sample {
        site,
        weight: weight_of(size, lg),
        requested: size,
        usable: match class {
            Class::NONE => large::bytes_of(block),
            class => class.size(),
        },
        proxy: if keeps_shape { block } else { 0 },
        slab: if keeps_shape { slab } else { 0 },
        born_ns: now_ns(),
        thread,
        arena: arena::owner_of(block).unwrap_or(0),
        resets: samples::resets(),
    };
    let sampled = match class {
        Class::NONE => mark_large(block, sample),
        class => exchange(block, class, sample),
    };
    let Some(sampled) = sampled else {
        LOST.fetch_add(1, Ordering::Relaxed);
        return block;
    };
    let amount = sample.amount();
    sites::table().add(site, amount, sample.requested_bytes());
    root::set_samples(samples::count());
    probes::alloc(sampled, size, sample.requested_bytes());
    by_class::count(&sample, true);
    if history::keeps() {
        history::sampled(sampled, &sample);
    }
    count_interval(amount.bytes());
    if hooks::want_samples() {
        *taken = stack.map(|stack| (stack, sample.usable));
    }
    sampled
}

/// The site of a stack; `None` when memory is out.
fn site_of(stack: Option<&capture::Stack>) -> Option<&'static sites::Site> {
    let frames = stack.map_or(&[][..], capture::Stack::frames);
    sites::table().site(frames, MOST_SITE_BYTES.load(Ordering::Relaxed))
}

/// What a sample of a request stands for: itself alone without the option `prof_unbias`.
fn weight_of(size: usize, lg: u32) -> Weight {
    match gap::is_biased() {
        true => Weight::ONE,
        false => Weight::of(size, lg),
    }
}

/// Nanoseconds of the monotonic clock, as precisely as the option asks.
fn now_ns() -> u64 {
    match gap::is_precise() {
        true => time::now_ns(),
        false => time::now_coarse_ns(),
    }
}

/// Names the calling thread as the system does.
#[cold]
#[inline(never)]
fn name_by_system(thread: u32) {
    let mut name = [0; history::NAME_MAX];
    // SAFETY: the kernel writes sixteen bytes at most.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    history::set_name(thread, &name);
}

/// Whether threads have the names that the system has.
pub fn has_system_names() -> bool {
    SYSTEM_NAMES.load(Ordering::Relaxed)
}

/// Names the calling thread; false when memory is out.
pub fn set_thread_name(name: &history::Name) -> bool {
    let _inside = inside::enter_or_wait();
    history::set_name(thread_number(), name)
}

/// The calling thread's name.
pub fn thread_name() -> &'static CStr {
    let _inside = inside::enter_or_wait();
    history::name_in_place(thread_number())
}

/// Sets how many recent samples are kept, negative for all; returns the number before.
pub fn set_most_recent(most: i64) -> i64 {
    let _inside = inside::enter_or_wait();
    history::set_most_recent(most)
}

/// Begins a log of samples that goes to the file with this name; false if there is one, or memory is
/// out.
pub fn begin_log(name: Option<&CStr>) -> bool {
    let _inside = inside::enter_or_wait();
    history::begin_log(time::now_ns(), name)
}

/// Marks a large block as sampled.
#[inline(never)]
fn mark_large(block: usize, sample: Sample) -> Option<usize> {
    let sample = Sample {
        proxy: 0,
        slab: 0,
        ..sample
    };
    samples::enter_large(block, sample).then(|| {
        large::set_sampled(block, true);
        block
    })
}

/// Returns a block of a span for one of a slab, which becomes its proxy or is freed.
fn exchange(block: usize, class: Class, sample: Sample) -> Option<usize> {
    let sampled = samples::take(class, sample)?;
    if sample.proxy == 0 {
        put_back(class, block);
    }
    Some(sampled)
}

/// Frees a block that the program does not know.
fn put_back(class: Class, block: usize) {
    match current::cache() {
        Some(cache) => cache.put(class, block),
        None => arena::give_to_owner(class, block),
    }
}

fn count_interval(bytes: u64) {
    let interval = INTERVAL.load(Ordering::Relaxed);
    if interval == 0 {
        return;
    }
    let before = SINCE_INTERVAL.fetch_add(bytes, Ordering::Relaxed);
    if before / interval != before.wrapping_add(bytes) / interval {
        IS_DUE.store(true, Ordering::Relaxed);
    }
}

/// Tells the program, if it asks, that a sampled block is about to be freed.
pub fn will_free(p: usize, usable: impl FnOnce() -> usize) {
    hooks::will_free(p, usable);
}

/// Whether `p`, which the page map files under no class, is a sampled block.
#[inline]
pub fn is_sampled(p: usize) -> bool {
    (samples::are_any_small() || samples::are_any_large()) && is_filed_as_sampled(p)
}

#[cold]
#[inline(never)]
fn is_filed_as_sampled(p: usize) -> bool {
    let record = Segment::find(p).map(|segment| segment.record_of(p));
    matches!(
        record,
        Some(PageRecord::Sampled(_) | PageRecord::Large { sampled: true, .. })
    )
}

/// The class of a small sampled block; `None` for all other blocks. Ends the process if `p` points
/// into a span and no block in use begins there.
#[inline]
pub fn small_class_of_sampled(p: usize) -> Option<Class> {
    match samples::are_any_small() {
        true => class_of(p),
        false => None,
    }
}

#[cold]
#[inline(never)]
fn class_of(p: usize) -> Option<Class> {
    Some(look_up(p)?.0)
}

/// The arena that a small sampled block counts in; `None` for all other blocks.
pub fn arena_of(p: usize) -> Option<u16> {
    Some(look_up(p)?.1.arena)
}

fn look_up(p: usize) -> Option<(Class, Sample)> {
    match Segment::find(p)?.record_of(p) {
        PageRecord::Sampled(record) => Some(samples::look_up(record, p)),
        _ => None,
    }
}

/// Takes the sample off the block at `p`, if it is one. A large block is then an ordinary one,
/// which the caller must free; a small one is freed. Returns whether it did that, and the bytes of
/// the block.
///
/// For a thread that is inside. Ends the process if `p` points into a span and no block in use
/// begins there.
#[cold]
#[inline(never)]
pub fn freed(p: usize) -> Freed {
    let record = Segment::find(p).map(|segment| segment.record_of(p));
    match record {
        Some(PageRecord::Sampled(record)) => {
            // First: another thread may get the block at once.
            probes::free(p);
            let sample = samples::free(record, p);
            end(p, &sample);
            if sample.proxy != 0 {
                let class = Segment::find(sample.proxy).map(|r| r.class_of(sample.proxy));
                put_back(class.unwrap_or(Class::NONE), sample.proxy);
            }
            Freed::Small(sample.usable)
        }
        Some(PageRecord::Large { sampled: true, .. }) => {
            if let Some(sample) = lift(p) {
                end(p, &sample);
            }
            Freed::Ordinary
        }
        _ => Freed::Ordinary,
    }
}

/// What [`freed`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freed {
    /// A small sampled block of so many bytes, which is free now.
    Small(usize),
    /// Another block, which is not sampled any more and which the caller must free.
    Ordinary,
}

/// Frees a sampled block that was put by while a fork was under way.
fn freed_after_fork(p: usize) -> bool {
    matches!(freed(p), Freed::Small(_))
}

/// Counts the sample of the block at `p` as freed, and notes when and where, if that is of interest.
#[inline(never)]
fn end(p: usize, sample: &Sample) {
    by_class::count(sample, false);
    if history::cares_for_frees() {
        let stack = capture::Stack::take(MOST_FRAMES.load(Ordering::Relaxed));
        let moment = Moment {
            ns: now_ns(),
            site: site_of(stack.as_ref()),
            thread: thread_number(),
        };
        history::freed(p, sample, moment);
    }
    forget(sample);
}

/// Counts a sample as freed.
#[inline(never)]
fn forget(sample: &Sample) {
    if sample.resets != samples::resets() {
        return;
    }
    let amount = sample.amount();
    let mut table = sites::table();
    // Another thread may have reset the counts meanwhile.
    if sample.resets != samples::resets() {
        return;
    }
    table.remove(sample.site, amount, sample.requested_bytes());
    let age = now_ns().saturating_sub(sample.born_ns) / 1_000_000;
    table.lived(sample.site, amount, age);
}

/// The sample of a large block whose length or place is about to change.
pub struct Lifted(Sample, usize);

/// Takes the sample off a large block whose length or place is about to change, if it has one.
#[inline(never)]
fn lift(p: usize) -> Option<Sample> {
    let sample = samples::leave_large(p)?;
    probes::free(p);
    large::set_sampled(p, false);
    Some(sample)
}

/// Takes the sample off a large block whose length or place is about to change, if it has one.
/// [`put_down`] gives it back.
#[inline]
pub fn lifted(p: usize) -> Option<Lifted> {
    if !samples::are_any_large() {
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
            weight: weight_of(size, lg_sample()).min(old.weight),
            requested: size,
            usable: large::bytes_of(p),
            ..old
        },
        None => old,
    };
    let is_known = old.resets == samples::resets();
    let entered = mark_large(p, new).is_some();
    if entered {
        probes::alloc(p, new.requested, new.requested_bytes());
    }
    if from != p && history::cares_for_frees() {
        history::moved(from, p);
    }
    let mut table = sites::table();
    if is_known {
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
    /// Blocks that are found in one pass.
    const AT_ONCE: usize = 32;
    loop {
        let (mut found, mut n) = ([0; AT_ONCE], 0);
        samples::each(|block, sample| {
            if sample.arena == arena
                && let Some(place) = found.get_mut(n)
            {
                *place = block;
                n += 1;
            }
        });
        for &block in found.iter().take(n) {
            match Segment::find(block).map(|segment| segment.record_of(block)) {
                Some(PageRecord::Sampled(record)) => {
                    probes::free(block);
                    end(block, &samples::free(record, block));
                }
                _ => {
                    if let Some(sample) = lift(block) {
                        end(block, &sample);
                    }
                }
            }
        }
        if n < AT_ONCE {
            return;
        }
    }
}

/// The profiler's locks, in the order in which forks take them: the first two before all others,
/// the last two where their ranks say.
pub fn samples_lock() -> &'static RawLock {
    samples::lock()
}

pub fn history_lock() -> &'static RawLock {
    history::lock()
}

pub fn sites_lock() -> &'static RawLock {
    sites::lock()
}

/// For the child of a fork: its thread has another number.
pub fn after_fork() {
    begin_epoch();
}

/// Bytes of sampled blocks in use that no other statistic counts.
pub fn unseen_bytes() -> usize {
    samples::unseen_bytes()
}

/// What the profiler itself knows.
#[derive(Clone, Copy, Default, Debug)]
pub struct Totals {
    /// Sampled blocks in use.
    pub samples: usize,
    /// Call stacks, and the bytes of their records.
    pub sites: usize,
    pub site_bytes: usize,
    /// Samples that were due and could not be taken.
    pub lost: usize,
    /// What the samples stand for: bytes in use, bytes ever allocated, and the most in use.
    pub live_bytes: u64,
    pub ever_bytes: u64,
    pub peak_bytes: u64,
}

/// Reads them.
pub fn totals() -> Totals {
    let table = sites::table();
    let (live, ever) = table.totals();
    Totals {
        samples: samples::count(),
        sites: table.count(),
        site_bytes: table.bytes(),
        lost: LOST.load(Ordering::Relaxed),
        live_bytes: live.bytes(),
        ever_bytes: ever.bytes(),
        peak_bytes: table.peak_bytes(),
    }
}

/// Makes the present the peak.
pub fn reset_peak() {
    let _inside = inside::enter_or_wait();
    sites::table().reset_peak();
}
