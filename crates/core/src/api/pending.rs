//! What a thread does after it got memory past the fast paths, when it holds no lock and no
//! operation is in progress: makes the background thread if wanted, makes the report that the
//! option `stats_interval` asks for, publishes the page of statistics, carries out what readers of
//! the page ask for, and follows the tracers that are attached to the probes. After it freed
//! memory, it does what concerns the page.

use super::start::{expect_profiler, guards, options};
use super::trim;
use crate::arena::interval;
use crate::background;
use crate::cache::inside;
use crate::guard;
use crate::prof::{self, dump};
use crate::stats;
use crate::sys::atomic::{AtomicPtr, AtomicU32, Ordering};
use crate::sys::errno::KeepErrno;
use crate::sys::pending::{self, PendingWork};
use crate::upkeep::export;
use crate::upkeep::export::page::StatsPage;
use crate::upkeep::probes;
use mallard_formats::page::{Request, RequestStatus};

/// The reporter, a `fn()`; null for none.
static REPORTER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// Starts the server again in the child of a fork, a `fn()`; null for none.
static RESTART: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// The process that is making a report, or 0: allocations of a report itself are not reported. The
/// child of a fork has another process number, so its parent's report does not block it.
static BUSY: AtomicU32 = AtomicU32::new(0);

/// Registers `restart` to be called in the child of a fork that had a server's sockets, by a thread
/// that holds no lock. It may allocate.
pub fn on_child(restart: fn()) {
    RESTART.store(restart as *mut (), Ordering::Release);
}

/// Registers `report` to be called from any thread each time that as many bytes were allocated as
/// the option `stats_interval` says. It may allocate.
pub fn on_interval(report: fn()) {
    REPORTER.store(report as *mut (), Ordering::Release);
}

/// Does the pending work. This may allocate.
#[inline]
pub(super) fn do_pending() {
    background::start_if_wanted();
    if pending::are_any() {
        run();
    }
}

/// What a thread does after it freed memory past its cache: where that was much, the figures may be
/// the last ones for a long time. Otherwise the page waits for a thread that gets memory, so that
/// its figures are not those between the free of a block and the request for the next one.
#[inline]
pub(super) fn do_pending_after_free() {
    if pending::is_pending(PendingWork::Page) && export::is_another_heap() {
        publish();
    }
}

/// What a thread does after it freed a sampled block: carries out what readers of the page ask for.
/// In a process whose caches serve all that it does, nothing else would look.
#[inline]
pub(super) fn look_for_requests() {
    if export::page().is_some_and(|page| page.request().is_some()) {
        pending::add(PendingWork::Page);
        publish();
    }
}

#[cold]
#[inline(never)]
fn publish() {
    // What a reader asks for may wait for a fork, which `malloc` must not.
    let Some(inside) = inside::enter() else {
        return;
    };
    if !pending::claim(PendingWork::Page) {
        return;
    }
    let _keep = KeepErrno::new();
    let profile = obey();
    stats::page::publish();
    // The program's function, which learns of each profile, runs outside.
    drop(inside);
    if let Some((page, request)) = profile {
        page.answer(request, written());
    }
}

#[cold]
#[inline(never)]
fn run() {
    publish();
    follow_tracers();
    if pending::claim(PendingWork::Guards) {
        let _keep = KeepErrno::new();
        guard::go_on();
    }
    if pending::claim(PendingWork::Server) {
        let restart = RESTART.load(Ordering::Acquire);
        if !restart.is_null() {
            // SAFETY: only `on_child` writes it, and only with a `fn()`.
            unsafe { core::mem::transmute::<*mut (), fn()>(restart)() };
        }
    }
    if pending::is_pending(PendingWork::Report) {
        report();
    }
}

/// Samples while tracers are attached to the probes, unless the options say otherwise.
#[cold]
#[inline(never)]
fn follow_tracers() {
    // The profiler may wait for a fork, which `malloc` must not.
    let Some(_inside) = inside::enter() else {
        return;
    };
    if !pending::claim(PendingWork::Probes) {
        return;
    }
    let _keep = KeepErrno::new();
    if options().prof_usdt {
        expect_profiler();
        prof::switch_for_tracers();
    } else {
        probes::follow();
    }
}

/// Carries out what a reader of the page asks for, or returns a request for a profile.
#[inline(always)]
fn obey() -> Option<(&'static StatsPage, u64)> {
    let page = export::page()?;
    // Another thread may have come first.
    let request = page.take_request()?;
    match carry_out(request) {
        Some(answer) => {
            page.answer(request, answer);
            None
        }
        None => Some((page, request)),
    }
}

/// How the request ended; `None` for one for a profile, which is not carried out.
fn carry_out(request: u64) -> Option<RequestStatus> {
    match Request::of(request) {
        None => return Some(RequestStatus::Unknown),
        Some(Request::Dump) => return None,
        Some(Request::Purge) => {
            trim();
        }
        Some(Request::Start(lg)) => {
            expect_profiler();
            // Samples of two distances would not go together in one profile.
            if let Some(lg) = lg.filter(|&lg| lg != prof::lg_sample()) {
                prof::reset(lg);
            }
            prof::switch(true);
        }
        Some(Request::Stop) => {
            expect_profiler();
            prof::switch(false);
        }
        Some(Request::Guard) if !guards(true) => return Some(RequestStatus::Failed),
        Some(Request::Guard) => {}
        Some(Request::Unguard) => {
            guards(false);
        }
    }
    Some(RequestStatus::Done)
}

/// Writes a profile for a reader.
#[inline(always)]
fn written() -> RequestStatus {
    expect_profiler();
    match dump::write_for_reader() {
        Ok(()) => RequestStatus::Done,
        Err(_) => RequestStatus::Failed,
    }
}

#[cold]
#[inline(never)]
fn report() {
    let reporter = REPORTER.load(Ordering::Acquire);
    // SAFETY: getpid has no preconditions.
    let me = unsafe { libc::getpid() } as u32;
    if reporter.is_null() || BUSY.swap(me, Ordering::Acquire) == me {
        return;
    }
    if interval::claim() {
        let _keep = KeepErrno::new();
        // SAFETY: only `on_interval` writes it, and only with a `fn()`.
        let reporter = unsafe { core::mem::transmute::<*mut (), fn()>(reporter) };
        reporter();
    }
    BUSY.store(0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api;
    use crate::stats::now;
    use crate::stats::page::{figure as word, publish};
    use crate::testing::{alone, own_process, skipped};
    use mallard_formats::page::{ABOUT, ARENAS, About, CLASSES, OfArena, OfClass, TOTALS, Total};
    use std::hint::black_box;
    use std::vec::Vec;

    fn total(which: Total) -> u64 {
        word(TOTALS, which as usize, 0)
    }

    #[test]
    fn the_page_agrees_with_the_other_figures_at_rest() {
        own_process!();
        let _alone = alone();
        let held: Vec<_> = (0..2000)
            .map(|i| api::alloc(100 + i * 37 % 40_000))
            .collect();
        let large = api::alloc(3 << 20);
        black_box((&held, large));
        // The first refresh and the first publication make records of their own.
        assert!(crate::stats::refresh());
        publish();
        let count = || word(ABOUT, About::Count as usize, 0);
        let before = count();
        publish();
        let now = now();
        assert_eq!(total(Total::Allocated), now.allocated as u64);
        assert_eq!(
            total(Total::ThreadCached) + total(Total::TransferCached),
            now.cached as u64
        );
        assert_eq!(total(Total::Active), now.active as u64);
        assert_eq!(total(Total::Dirty), now.dirty as u64);
        assert_eq!(total(Total::Purges), now.purges);
        assert!(total(Total::Peak) >= total(Total::Allocated));
        let ours = [Total::Metadata, Total::Resident, Total::Allocated].map(total);
        assert!(crate::stats::refresh());
        let others = crate::stats::with(|snapshot| {
            let totals = &snapshot.totals;
            [totals.metadata, totals.resident, totals.allocated].map(|n| n as u64)
        });
        assert_eq!(Some(ours), others);
        let of_classes: u64 = (0..CLASSES.rows)
            .map(|row| word(CLASSES, row, OfClass::Allocated as usize))
            .sum();
        assert_eq!(of_classes, total(Total::Allocated));
        assert_eq!(word(ARENAS, 0, OfArena::Number as usize), 1);
        // An old process may have published by itself before.
        assert_eq!(count(), before + 1);
    }

    #[test]
    fn the_page_has_the_huge_pages_that_are_asked_for() {
        if std::fs::metadata("/sys/kernel/mm/transparent_hugepage").is_err() {
            return skipped("the system has no huge pages");
        }
        own_process!();
        let _alone = alone();
        publish();
        assert_eq!(total(Total::HugePages), 0);
        black_box(api::alloc(64 << 20));
        publish();
        // 2 MiB each, as on every system with this processor.
        let max = total(Total::Mapped) >> 21;
        assert!((16..=max).contains(&total(Total::HugePages)));
    }

    #[test]
    fn a_program_that_did_nothing_is_told_from_one_that_did() {
        own_process!();
        let _alone = alone();
        publish();
        publish();
        assert!(!publish());
        black_box(api::alloc(1 << 20));
        assert!(publish());
        assert!(!publish());
    }

    /// Allocates until the page has been published, and then frees everything: the page must say
    /// so, although nothing is allocated any more.
    fn expect_page_after_free(size: usize, blocks: usize) {
        api::start();
        publish_now();
        let held: Vec<_> = (0..blocks).map(|_| api::alloc(size)).collect();
        black_box(&held);
        publish_now();
        let before = total(Total::Allocated);
        assert!(before >= (size * blocks) as u64);
        for &block in &held {
            // SAFETY: just allocated, freed once.
            unsafe { api::dealloc(block) };
        }
        let after = total(Total::Allocated);
        assert!(after < before / 4, "{size}: {before} before, {after} after");
    }

    /// Publishes, so that the next publication is not due for a while.
    fn publish_now() {
        pending::add(PendingWork::Page);
        super::publish();
    }

    #[test]
    fn the_page_knows_of_a_large_block_that_was_freed_before_it_was_due() {
        own_process!();
        let _alone = alone();
        expect_page_after_free(100 << 20, 1);
    }

    #[test]
    fn the_page_knows_of_small_blocks_that_were_freed_before_it_was_due() {
        own_process!();
        let _alone = alone();
        expect_page_after_free(1000, 100_000);
    }

    /// Passes the slow paths until a thread has followed the tracers.
    fn pass_slow_paths() {
        for _ in 0..100 {
            let block = api::alloc(1 << 20);
            // SAFETY: just allocated, freed once.
            unsafe { api::dealloc(black_box(block)) };
        }
    }

    #[test]
    fn sampling_follows_tracers_and_then_takes_no_stacks() {
        own_process!();
        let _alone = alone();
        pass_slow_paths();
        assert!(!prof::is_on(), "no tracer asked");
        probes::pretend(2);
        pass_slow_paths();
        assert!(prof::is_on());
        let held: Vec<_> = (0..200).map(|_| api::alloc(100_000)).collect();
        black_box(&held);
        let totals = prof::totals();
        assert!(totals.samples > 5, "{totals:?}");
        assert_eq!(totals.sites, 1, "one without a stack");
        probes::pretend(0);
        pass_slow_paths();
        assert!(!prof::is_on());

        // Sampling that is switched on for a profile takes stacks, and stays on.
        probes::pretend(1);
        pass_slow_paths();
        api::profile::set_active(true);
        let held: Vec<_> = (0..200).map(|_| api::alloc(100_000)).collect();
        black_box(&held);
        assert!(prof::totals().sites > 1);
        probes::pretend(0);
        pass_slow_paths();
        assert!(prof::is_on());
    }

    #[test]
    fn a_tracer_that_is_attached_gets_samples_after_a_stop() {
        own_process!();
        let _alone = alone();
        probes::pretend(1);
        pass_slow_paths();
        for stop in [
            || api::profile::set_active(false),
            || {
                carry_out(Request::Stop.word(2));
            },
        ] {
            api::profile::set_active(true);
            stop();
            assert!(prof::is_on(), "for the tracer");
            let before = prof::totals();
            let held: Vec<_> = (0..200).map(|_| api::alloc(100_000)).collect();
            black_box(&held);
            let after = prof::totals();
            assert!(after.samples > before.samples);
            assert!(after.sites <= before.sites + 1, "one without a stack");
        }
        probes::pretend(0);
        pass_slow_paths();
        assert!(!prof::is_on(), "no tracer wants samples any more");
    }

    /// Asks as a reader does, for `mallard profile --start` with a distance.
    fn ask_to_start(lg: u32) {
        let request = Request::Start(Some(lg)).word(1);
        assert_eq!(carry_out(request), Some(RequestStatus::Done));
    }

    #[test]
    fn sampling_that_is_on_takes_another_distance_and_forgets_its_samples() {
        own_process!();
        let _alone = alone();
        ask_to_start(10);
        assert_eq!((prof::is_on(), prof::lg_sample()), (true, 10));
        let held: Vec<_> = (0..100).map(|_| api::alloc(100_000)).collect();
        black_box(&held);
        let before = prof::totals();
        assert!(before.live_bytes > 0);
        ask_to_start(10);
        assert_eq!(prof::totals().live_bytes, before.live_bytes, "as it was");
        ask_to_start(16);
        assert_eq!((prof::is_on(), prof::lg_sample()), (true, 16));
        assert_eq!(prof::totals().live_bytes, 0);
        // Without a distance, and after a stop, the last one stays.
        assert_eq!(carry_out(Request::Stop.word(2)), Some(RequestStatus::Done));
        assert!(!prof::is_on());
        assert_eq!(
            carry_out(Request::Start(None).word(3)),
            Some(RequestStatus::Done)
        );
        assert_eq!((prof::is_on(), prof::lg_sample()), (true, 16));
    }

    #[test]
    fn a_request_is_taken_on_once() {
        own_process!();
        let _alone = alone();
        publish();
        let page = export::page().expect("a page");
        assert_eq!(page.take_request(), None);
        let request = Request::Purge.word(7);
        page.ask(request);
        assert_eq!(page.take_request(), Some(request));
        assert_eq!(page.take_request(), None);
        assert_eq!(
            (page.request(), Request::of(request)),
            (Some(request), Some(Request::Purge))
        );
        page.answer(request, RequestStatus::Done);
        assert_eq!(page.request(), None);
    }
}
