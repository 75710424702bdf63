//! The first call: reads the options and configures all layers.
//!
//! Nothing here allocates: the first call may come from the loader, long before `main`.

use super::extras::{self, JUNK_ALLOC, JUNK_FREE, XMALLOC, ZERO};
use crate::cache::{self, inside};
use crate::class::{SLAB_MAX, tailored};
use crate::conf::{self, Options};
use crate::die;
use crate::guard;
use crate::hardened::{self, Mismatch};
use crate::heap::{self, Cap, PAGE_HEAPS, advice, huge_pages};
use crate::prof;
use crate::report;
use crate::space::meta::{self, HugePages};
use crate::space::zero_size;
use crate::sys::atomic::{AtomicBool, Ordering};
use crate::sys::errno::KeepErrno;
use crate::sys::lock::{self, RawLock};
use crate::sys::page::PAGE;
use crate::sys::published::Published;
use crate::sys::rank::Rank;
use crate::sys::{cpu, message, pin};
use crate::upkeep::{background_state, export};
use crate::{arena, fork};
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::mem::MaybeUninit;

/// The longest decay time in milliseconds: the limit of the options, which is jemalloc's.
pub(super) const DECAY_MS_MAX: i64 = conf::DECAY_MS_MAX;

static STARTED: AtomicBool = AtomicBool::new(false);
/// Whether the profiler has its options.
static PROFILER_READY: AtomicBool = AtomicBool::new(false);
static STARTING: RawLock = RawLock::named(Rank::Start);

/// The default options: most processes only read these and write nothing.
static DEFAULTS: Options = of_this_build(Options::DEFAULT);

// The page heaps of manual arenas begin with this, so that few processes write it.
const _: () = assert!(Options::DEFAULT.dirty_decay_ms == heap::DIRTY_DECAY_MS);

/// Removes what this build cannot do.
const fn of_this_build(mut options: Options) -> Options {
    if !cfg!(debug_assertions) {
        options.debug_double_free_max_scan = 0;
    }
    options
}

struct Settings(UnsafeCell<MaybeUninit<Options>>);

// SAFETY: written once under `STARTING` before `IN_FORCE` points to it, only read after that.
unsafe impl Sync for Settings {}

/// Holds the options that [`IN_FORCE`] leads to, once it is set.
static SET: Settings = Settings(UnsafeCell::new(MaybeUninit::uninit()));
/// The options that the process was given, if any were.
static IN_FORCE: Published<Options> = Published::none();

/// The options in force.
pub fn options() -> &'static Options {
    start();
    IN_FORCE.get().unwrap_or(&DEFAULTS)
}

/// The options in force; `None` before the first call.
pub fn options_if_started() -> Option<&'static Options> {
    STARTED.load(Ordering::Acquire).then(options)
}

/// Initialises the allocator. Every slow path calls this; afterwards it costs one load.
#[inline]
pub fn start() {
    if !STARTED.load(Ordering::Acquire) {
        first();
    }
}

/// The values of the program's symbols `malloc_conf` and `malloc_conf_2_conf_harder`, with or
/// without jemalloc's prefix, if the front end has those symbols and one of them is set.
pub fn conf_symbols() -> Option<conf::Symbols> {
    #[cfg(feature = "c-symbols")]
    {
        let [plain, je_plain] = conf_symbol();
        let [harder, je_harder] = harder_conf_symbol();
        (plain | je_plain | harder | je_harder != 0).then_some(told_by_symbols)
    }
    #[cfg(not(feature = "c-symbols"))]
    None
}

#[cfg(feature = "c-symbols")]
#[inline(always)]
fn conf_symbol() -> [usize; 2] {
    use crate::c_symbol;
    [c_symbol!("malloc_conf"), c_symbol!("je_malloc_conf")]
}

#[cfg(feature = "c-symbols")]
#[inline(always)]
fn harder_conf_symbol() -> [usize; 2] {
    use crate::c_symbol;
    [
        c_symbol!("malloc_conf_2_conf_harder"),
        c_symbol!("je_malloc_conf_2_conf_harder"),
    ]
}

#[cfg(feature = "c-symbols")]
#[cold]
#[inline(never)]
fn told_by_symbols() -> [Option<&'static CStr>; 2] {
    [conf_symbol(), harder_conf_symbol()].map(|[plain, prefixed]| {
        let at = if plain != 0 { plain } else { prefixed };
        // SAFETY: not null; by its documentation the symbol points to a constant string.
        (at != 0).then(|| unsafe { CStr::from_ptr(at as *const core::ffi::c_char) })
    })
}

#[cfg(feature = "c-symbols")]
unsafe extern "C" {
    /// Separates the library's code that few programs run (`crates/mallard-c/src/seldom_code.rs`).
    safe fn mallard_set_apart();
}

/// Prints the messages of the option reader.
struct Messages;

impl conf::Sink for Messages {
    fn line(&mut self, line: &[u8]) {
        /// Longer than any line of the reader, including its end.
        const ROOM: usize = 2048;
        let mut text = [0; ROOM];
        let n = line.len().min(ROOM - 2);
        text[..n].copy_from_slice(&line[..n]);
        text[n] = b'\n';
        if let Ok(text) = CStr::from_bytes_until_nul(&text) {
            message::say(text);
        }
    }
}

#[cold]
fn first() {
    pin::link();
    STARTING.lock();
    if !STARTED.load(Ordering::Relaxed) {
        #[cfg(feature = "c-symbols")]
        mallard_set_apart();
        cpu::begin();
        // Two calls of `apply`, so that the compiler specialises one for the constant defaults.
        let abort = match conf::read(&DEFAULTS, conf_symbols(), &mut Messages) {
            None => {
                apply(&DEFAULTS);
                DEFAULTS.abort
            }
            Some(told) => apply_what_was_told(told),
        };
        fork::initialise(&STARTING);
        if !cache::life::initialise(expect_forks) && abort {
            cannot_report();
        }
        STARTED.store(true, Ordering::Release);
    }
    STARTING.unlock();
    let o = options();
    if o.prof {
        begin_to_profile(o.prof_active);
    }
    if o.hardened {
        begin_to_check(o.hardened_sites);
    }
    if !o.report_file.is_empty() {
        begin_to_report(o);
    }
    if o.guard_sample != 0 || !o.guard_sites.is_empty() {
        begin_to_guard();
    }
}

/// Registers the fork handlers once the process has a second thread. Not part of the first call,
/// which may come from the C library while it holds the lock of its list of handlers.
fn expect_forks() {
    if !fork::register() && options().abort {
        cannot_report();
    }
}

#[cold]
#[inline(never)]
fn cannot_report() -> ! {
    die!("the C library cannot report thread exits and forks, and the option abort is on");
}

/// Gives the profiler its options, once.
#[cold]
#[inline(never)]
pub(super) fn expect_profiler() {
    start();
    if PROFILER_READY.load(Ordering::Acquire) {
        return;
    }
    let _inside = inside::enter_or_wait();
    STARTING.lock_seldom();
    // Another thread may have come first, and the program may have changed what it set.
    if !PROFILER_READY.load(Ordering::Relaxed) {
        configure_profiler(options());
        PROFILER_READY.store(true, Ordering::Release);
    }
    STARTING.unlock();
}

#[inline(always)]
fn configure_profiler(o: &'static Options) {
    prof::configure(&prof::Settings {
        lg_sample: o.lg_prof_sample,
        max_frames: o.prof_bt_max as usize,
        max_site_bytes: o.prof_max_memory,
        threads_on: o.prof_thread_active_init,
        lg_interval: o.lg_prof_interval,
        grows: o.prof_gdump,
        max_a_second: o.prof_rate_max,
        seed: o.prof_seed,
        biased: !o.prof_unbias,
        precise: o.prof_time_resolution == conf::ProfTime::High,
        system_names: o.prof_sys_thread_name,
        recent_max: o.prof_recent_alloc_max,
        counts_classes: o.prof_stats,
        logs: o.prof_log,
    });
    prof::dump::configure(&prof::dump::Settings {
        prefix: o.prof_prefix.as_bytes(),
        accum: o.prof_accum,
        pprof: o.prof_format == conf::ProfFormat::Pprof,
        pid_namespace: o.prof_pid_namespace,
    });
}

/// Starts to profile, as the options ask from the start.
#[cold]
#[inline(never)]
fn begin_to_profile(active: bool) {
    let _keep = KeepErrno::new();
    expect_profiler();
    prof::switch(active);
}

/// Gets reports of hardened blocks ready, and the call sites that they name.
#[cold]
#[inline(never)]
fn begin_to_check(with_sites: bool) {
    let _keep = KeepErrno::new();
    let _inside = inside::enter_or_wait();
    report::begin();
    if with_sites && prof::callers::begin(SITE_FRAMES) {
        hardened::note_sites();
    }
}

/// How many frames tell call sites apart.
const SITE_FRAMES: usize = 3;

/// Lets reports go to a file as well, as the option says.
#[cold]
#[inline(never)]
fn begin_to_report(o: &'static Options) {
    let _keep = KeepErrno::new();
    let _inside = inside::enter_or_wait();
    if report::begin() {
        report::append_to(o.report_file.as_c_str());
    }
}

/// Starts to guard blocks, as the options ask from the start.
#[cold]
#[inline(never)]
fn begin_to_guard() {
    let _keep = KeepErrno::new();
    guards(true);
}

/// Switches guards on as the options say how, or off; false when memory is out.
#[cold]
#[inline(never)]
pub(super) fn guards(on: bool) -> bool {
    if !on {
        guard::off();
        return true;
    }
    expect_profiler();
    let o = options();
    guard::on(&guard::Settings {
        bytes: o.guard_sample,
        max_a_second: o.guard_rate,
        goes_on: o.guard_action == conf::GuardAction::Report,
        side: match o.guard_align {
            conf::GuardAlign::Random => None,
            conf::GuardAlign::Left => Some(guard::Side::Left),
            conf::GuardAlign::Right => Some(guard::Side::Right),
            conf::GuardAlign::Tight => Some(guard::Side::Tight),
        },
        slots: o.guard_slots,
        sites: o.guard_sites.as_bytes(),
    })
}

/// Like [`apply`]; returns the option `abort`.
#[cold]
#[inline(never)]
fn apply_what_was_told(told: conf::ReadOptions) -> bool {
    let options = set(told);
    apply(options);
    options.abort
}

/// Stores the options that the process was given. The caller holds `STARTING`.
fn set(outcome: conf::ReadOptions) -> &'static Options {
    if outcome.must_abort {
        // SAFETY: abort has no preconditions; the reader has printed the reason.
        unsafe { libc::abort() };
    }
    let mut options = of_this_build(outcome.options);
    if options.percpu_arena != conf::PercpuArena::Disabled {
        expect_cpus(&mut options);
    }
    // SAFETY: under the lock, once, and not read before `IN_FORCE` is set.
    let kept: &'static Options = unsafe { (*SET.0.get()).write(options) };
    IN_FORCE.set(kept);
    kept
}

/// Disables per-CPU arenas if the system does not report which CPU a thread runs on.
#[cold]
#[inline(never)]
fn expect_cpus(o: &mut Options) {
    if cpu::current().is_none() {
        o.percpu_arena = conf::PercpuArena::Disabled;
        conf::Sink::line(
            &mut Messages,
            b"mallard: percpu_arena: the system does not report which CPU a thread runs on",
        );
    }
}

/// This many millionths of the number of CPUs, rounded to nearest.
#[cold]
#[inline(never)]
fn share_of_cpus(millionths: u64) -> usize {
    let all = cpu::allowed() as u64 * millionths;
    ((all + conf::MILLIONTHS_PER_ONE / 2) / conf::MILLIONTHS_PER_ONE) as usize
}

/// Configures every layer from the options.
#[inline(always)]
fn apply(o: &Options) {
    let mut extras = 0;
    extras |= if o.junk.on_alloc() { JUNK_ALLOC } else { 0 };
    extras |= if o.junk.on_free() { JUNK_FREE } else { 0 };
    extras |= if o.zero { ZERO } else { 0 };
    extras |= if o.xmalloc { XMALLOC } else { 0 };
    if o.hardened {
        // Free blocks are zero already.
        extras &= XMALLOC | ZERO;
        harden(o);
    }
    extras::set(extras);
    zero_size::configure(o.zero_size == conf::ZeroSize::Closed);
    lock::set_spins(o.mutex_max_spin);
    apply_to_memory(o);
    apply_to_arenas(o);
    apply_to_threads(o, extras & !XMALLOC != 0 && !o.hardened);
}

/// Makes all blocks hardened.
#[cold]
#[inline(never)]
fn harden(o: &Options) {
    hardened::begin(match o.family_mismatch {
        conf::FamilyMismatch::Off => Mismatch::Off,
        conf::FamilyMismatch::Warn => Mismatch::Warn,
        conf::FamilyMismatch::Abort => Mismatch::Abort,
    });
}

#[inline(always)]
fn apply_to_memory(o: &Options) {
    use conf::{DirtyMax, MetadataThp, Thp};
    huge_pages::set_policy(match o.thp {
        Thp::Auto => huge_pages::Policy::Auto,
        Thp::Default => huge_pages::Policy::Default,
        Thp::Always => huge_pages::Policy::Always,
        Thp::Never => huge_pages::Policy::Never,
    });
    meta::set_huge_pages(match o.metadata_thp {
        MetadataThp::Disabled => HugePages::Disabled,
        MetadataThp::Auto => HugePages::Auto,
        MetadataThp::Always => HugePages::Always,
    });
    extras::clear_by_kernel_from(o.calloc_madvise_threshold);
    advice::configure(o.trust_madvise, o.process_madvise_max_batch);
    arena::interval::configure(o.stats_interval);
    export::configure(match o.export_stats {
        conf::ExportStats::Auto => export::Mode::Auto,
        conf::ExportStats::True => export::Mode::Always,
        conf::ExportStats::False => export::Mode::Never,
    });
    PAGE_HEAPS.configure(
        o.dirty_decay_ms,
        o.muzzy_decay_ms,
        o.reserve.unwrap_or(0),
        o.retain,
    );
    if o.hardened {
        PAGE_HEAPS.fence();
    }
    // Heaps begin without a cap.
    if o.dirty_max != DirtyMax::None {
        set_cap(o.dirty_max);
    }
}

#[cold]
#[inline(never)]
fn set_cap(max: conf::DirtyMax) {
    PAGE_HEAPS.set_cap(match max {
        conf::DirtyMax::None => Cap::NONE,
        conf::DirtyMax::Bytes(bytes) => Cap {
            pages: bytes / PAGE,
            share: None,
        },
        conf::DirtyMax::Percent(share) => Cap {
            share: Some(share),
            ..Cap::NONE
        },
    });
}

#[inline(always)]
fn apply_to_arenas(o: &Options) {
    use arena::settings;
    use conf::{BackgroundThread, Dss, PercpuArena};
    let unattended = o.background_thread != BackgroundThread::True;
    arena::oversize::configure(o.oversize_threshold, unattended);
    arena::settings::set_first_dss(match o.dss {
        Dss::Disabled => settings::Dss::Disabled,
        Dss::Primary => settings::Dss::Primary,
        Dss::Secondary => settings::Dss::Secondary,
    });
    arena::large::configure(o.disable_large_size_classes, o.cache_oblivious);
    // Caches that do not keep all slab blocks would not keep those of tailored classes.
    // Nor would rings.
    tailored::allow(o.tailored_classes & (o.tcache_max >= SLAB_MAX) & !o.hardened);
    let narenas = match (o.narenas, o.narenas_ratio) {
        (Some(n), _) => Some(n as usize),
        (None, Some(millionths)) => Some(share_of_cpus(millionths)),
        (None, None) => None,
    };
    let of_cpus = arena::percpu::configure(match o.percpu_arena {
        PercpuArena::Disabled => None,
        PercpuArena::PerCpu => Some(arena::percpu::Each::Cpu),
        PercpuArena::PerPhysicalCpu => Some(arena::percpu::Each::Core),
    });
    arena::configure(match of_cpus.unwrap_or(0) {
        0 => narenas,
        n => Some(narenas.unwrap_or(0).max(n)),
    });
}

#[inline(always)]
fn apply_to_threads(o: &Options, without_caches: bool) {
    use conf::BackgroundThread;
    cache::configure(cache::CacheDefaults {
        max_size: o.tcache_max,
        is_enabled: o.tcache,
        may_hold: !without_caches,
    });
    #[cfg(debug_assertions)]
    cache::set_scan(o.debug_double_free_max_scan as usize);
    background_state::configure(match o.background_thread {
        // Threads without caches are not counted.
        _ if without_caches => background_state::Mode::Never,
        BackgroundThread::False => background_state::Mode::Never,
        BackgroundThread::Auto => background_state::Mode::Auto,
        BackgroundThread::True => background_state::Mode::Always,
    });
}

#[cfg(test)]
mod tests;
