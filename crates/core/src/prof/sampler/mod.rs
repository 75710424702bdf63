//! Decides which blocks are sampled, and takes samples on and off.
//!
//! The paths that give out and take back blocks call these functions; those on which nothing is
//! sampled do so only behind a test of [`is_on`], or where the page map files a block under no
//! class.
//!
//! - `countdown` says when a sample is due;
//! - `pace` thins out the samples of threads that would have very many;
//! - `sample` takes it, and `end` ends it when its block is freed or changes;
//! - `guards` lets some of the requests that are counted have a block between closed pages;
//! - `files` writes profiles by themselves, `threads` has numbers and names of threads.
//!
//! What is here concerns all threads: the options, the switch, a reset, the sums.

mod countdown;
mod end;
mod files;
pub mod guards;
mod pace;
mod sample;
mod threads;

use super::gap::{self, lg_sample};
use super::{by_class, capture, history, root, samples, sites};
use crate::cache::{deferred, inside, registry};
use crate::class::hidden;
use crate::sys::atomic::{AtomicU8, Ordering};
use crate::sys::lock::RawLock;
use crate::sys::time;
use crate::upkeep::export::page::StatsPage;
use crate::upkeep::probes;
use core::ffi::CStr;

pub use countdown::{
    due, is_thread_on, set_thread_on, set_threads_on, spend, spend_or_guard, threads_on,
};
#[cfg(test)]
pub use end::is_sampled;
pub use end::{
    Filed, Lifted, filed, forget_arena, grew, lifted, put_down, small_class, unsampled, will_free,
};
pub use files::{dumps_growth, interval, set_dumps_growth};
pub use hidden::is_on as is_counting;
#[cfg(test)]
pub use pace::configure as set_max_a_second;
#[cfg(test)]
pub use sample::{configure as set_room, is_without_stacks};
#[cfg(test)]
pub use threads::numbers as thread_numbers;
pub use threads::{has_system_names, set_thread_name, thread_name, thread_name_in_place};

/// What readers outside the process need to know of the records.
const RECORD_BYTES: root::RecordBytes = root::RecordBytes {
    site: size_of::<sites::Site>(),
    sample: size_of::<samples::Entry>(),
};

/// How the profiler works, from the options.
pub struct Settings {
    pub lg_sample: u32,
    pub max_frames: usize,
    pub max_site_bytes: usize,
    pub threads_on: bool,
    /// Bytes between two profiles written by themselves (base-2 logarithm); negative for none.
    pub lg_interval: i64,
    /// Whether each new maximum of memory in use writes a profile.
    pub grows: bool,
    /// The most samples of a thread in a second; 0 for no such limit.
    pub max_a_second: u32,
    /// For repeatable distances.
    pub seed: Option<u64>,
    /// Whether the figures are those of the samples themselves.
    pub biased: bool,
    /// Whether times of samples are exact.
    pub precise: bool,
    /// Whether threads have the names that the system has.
    pub system_names: bool,
    /// How many recent samples are kept; negative for all.
    pub recent_max: i64,
    /// Whether samples are counted by class, and whether they are logged.
    pub counts_classes: bool,
    pub logs: bool,
}

/// Applies the options, before the first sample.
pub fn configure(settings: &Settings) {
    gap::set_lg_sample(settings.lg_sample);
    sample::configure(settings.max_frames, settings.max_site_bytes);
    countdown::configure(settings.threads_on);
    pace::configure(settings.max_a_second);
    files::configure(settings.lg_interval, settings.grows);
    gap::set_manner(settings.biased, settings.precise);
    threads::configure(settings.system_names);
    set_recent_max(settings.recent_max);
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
    time::now_ns() ^ pid << 32 ^ (&raw const pid).addr() as u64
}

/// Whose wish it is that samples are taken: bits of these two. The lock of the places guards them.
static WISHES: AtomicU8 = AtomicU8::new(0);
/// The program, its options or a reader.
const OF_USERS: u8 = 1;
/// Tracers of the probes, which take stacks themselves.
const OF_TRACERS: u8 = 2;

/// Whether blocks are sampled.
pub fn is_on() -> bool {
    WISHES.load(Ordering::Relaxed) != 0
}

/// A change of the wishes.
#[derive(Clone, Copy)]
enum Wish {
    Users(bool),
    /// The probes know whether there are tracers.
    Tracers,
}

/// Switches sampling on or off, for all threads at once. While tracers want samples, it goes on for
/// them.
pub fn switch(on: bool) {
    follow(Wish::Users(on));
}

/// The same for tracers, whether they came to the probes or left them.
pub fn switch_for_tracers() {
    follow(Wish::Tracers);
}

/// Switches sampling on if users or tracers want samples, without stacks if only tracers do. The
/// wish is read under the lock of the stack offsets, so that the last caller decides.
#[cold]
#[inline(never)]
fn follow(wish: Wish) {
    let _inside = inside::enter_or_wait();
    // This runs before the lock is taken, because it takes records and reads files.
    if !matches!(wish, Wish::Users(false)) && !is_on() {
        deferred::on_sampled(end::freed_after_fork);
        describe();
        capture::begin();
    }
    let was_on = is_on();
    hidden::set(hidden::User::Profiler, || {
        let (of, on) = match wish {
            Wish::Users(on) => (OF_USERS, on),
            Wish::Tracers => (OF_TRACERS, probes::follow()),
        };
        let others = WISHES.load(Ordering::Relaxed) & !of;
        let wishes = if on { others | of } else { others };
        sample::set_without_stacks(wishes == OF_TRACERS);
        let on = wishes != 0;
        if on && !is_on() {
            countdown::begin_epoch();
        }
        WISHES.store(wishes, Ordering::Relaxed);
        root::set_on(on);
        on
    });
    // Threads may be on their way to a guarded block, which is far.
    if guards::are_on() && is_on() != was_on {
        registry::end_countdowns();
    }
}

/// Switches guards on or off, as [`guards`] says.
pub fn switch_guards(lg_bytes: Option<u32>, replace: guards::Replace, changed: impl FnOnce()) {
    countdown::begin_epoch();
    guards::switch(lg_bytes, replace, changed);
    registry::end_countdowns();
}

/// Leads readers outside the process to the page of statistics.
pub fn set_page(page: &'static StatsPage) {
    describe();
    root::set_page(page);
}

/// Describes the profiler for readers outside the process.
fn describe() {
    // A reset changes the mean under this lock.
    let _table = sites::table();
    root::begin(lg_sample(), RECORD_BYTES);
}

/// Leads readers outside the process to no page.
pub fn forget_page() {
    root::set_page(core::ptr::null());
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
    sample::forget_lost();
    countdown::begin_epoch();
    // Distances of another mean may be long.
    registry::end_countdowns();
}

/// Sets how many recent samples are kept, negative for all; returns the number before.
pub fn set_recent_max(max: i64) -> i64 {
    let _inside = inside::enter_or_wait();
    history::set_recent_max(max)
}

/// Begins a log of samples that goes to the file with this name; false if there is one, or memory
/// is out.
pub fn begin_log(name: Option<&CStr>) -> bool {
    let _inside = inside::enter_or_wait();
    history::begin_log(time::now_ns(), name)
}

/// The profiler's locks, which forks take where their ranks say.
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
    countdown::begin_epoch();
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
    /// Samples that share a site because there was no room for their stacks.
    pub more: usize,
    /// What the samples stand for: bytes in use, bytes ever allocated, and the most in use.
    pub live_bytes: u64,
    pub ever_bytes: u64,
    pub peak_bytes: u64,
}

/// Reads the totals.
pub fn totals() -> Totals {
    let _inside = inside::enter_or_wait();
    let table = sites::table();
    let (live, ever) = table.totals();
    Totals {
        samples: samples::count(),
        sites: table.count(),
        site_bytes: table.bytes(),
        lost: sample::lost(),
        more: sample::more(),
        live_bytes: live.bytes(),
        ever_bytes: ever.bytes(),
        peak_bytes: table.peak_bytes(),
    }
}

/// Makes the present bytes in use the peak.
pub fn reset_peak() {
    let _inside = inside::enter_or_wait();
    sites::table().reset_peak();
}
