//! The heap profiler: starts and stops sampling, and writes profiles.
//!
//! Sampling can be switched on in any process, whatever the option `prof` says; the other options
//! (`lg_prof_sample`, `prof_prefix`, …) say how. `docs/` has a chapter on its use. All functions may
//! be called from any thread.

use super::start::{options, start};
use crate::conf::{Options, ProfFormat};
use crate::prof;
use crate::prof::dump::{self, Reason};
use crate::sys::atomic::{AtomicBool, Ordering};
use crate::sys::errno::KeepErrno;
use core::ffi::CStr;

/// Whether the profiler has its options.
static CONFIGURED: AtomicBool = AtomicBool::new(false);
/// The longest start of names of files, in bytes, with its end.
pub const PREFIX_MAX: usize = dump::PREFIX_MAX;

/// Gives the profiler its options, once. Two threads may do so at once: they do the same.
#[cold]
#[inline(never)]
fn ready() {
    start();
    if CONFIGURED.load(Ordering::Acquire) {
        return;
    }
    let o = options();
    prof::configure(&prof::Settings {
        lg_sample: o.lg_prof_sample,
        most_frames: o.prof_bt_max as usize,
        most_site_bytes: o.prof_max_memory,
        threads_on: o.prof_thread_active_init,
        lg_interval: o.lg_prof_interval,
        grows: o.prof_gdump,
        seed: o.prof_seed,
    });
    let pprof = o.prof_format == ProfFormat::Pprof;
    dump::configure(o.prof_prefix.as_bytes(), o.prof_accum, pprof);
    CONFIGURED.store(true, Ordering::Release);
}

/// Starts sampling if the options ask for it from the start.
#[inline]
pub(super) fn begin(o: &Options) {
    if o.prof {
        begin_as_told(o);
    }
}

#[cold]
#[inline(never)]
fn begin_as_told(o: &Options) {
    let _keep = KeepErrno::new();
    ready();
    prof::switch(o.prof_active);
}

/// Whether allocations are sampled.
pub fn is_active() -> bool {
    prof::is_on()
}

/// Starts or stops sampling, for all threads at once.
pub fn set_active(on: bool) {
    let _keep = KeepErrno::new();
    ready();
    prof::switch(on);
}

/// Whether threads are sampled that did not say ([`set_thread_active`]).
pub fn threads_active() -> bool {
    ready();
    prof::threads_on()
}

/// Sets that, for running threads and for new ones.
pub fn set_threads_active(on: bool) {
    ready();
    prof::set_threads_on(on);
}

/// Whether the calling thread is sampled while sampling is on.
pub fn thread_active() -> bool {
    ready();
    prof::is_thread_on()
}

/// Sets that.
pub fn set_thread_active(on: bool) {
    ready();
    prof::set_thread_on(on);
}

/// The mean bytes between samples (base-2 logarithm).
pub fn lg_sample() -> u32 {
    ready();
    prof::lg_sample()
}

/// Forgets all samples, and sets the mean bytes between samples (base-2 logarithm). Returns false,
/// and does nothing, if that is over 63.
#[must_use]
pub fn reset(lg_sample: u32) -> bool {
    ready();
    if lg_sample > 63 {
        return false;
    }
    prof::reset(lg_sample);
    true
}

/// Makes the present the peak that profiles show.
pub fn reset_peak() {
    ready();
    prof::reset_peak();
}

/// Writes a profile to the file with this name; with `None`, to one whose name begins with the
/// option `prof_prefix`. Returns the system's error number on failure, after a line on standard
/// error that says what failed.
pub fn dump(name: Option<&CStr>) -> Result<(), i32> {
    ready();
    dump::write(Reason::Manual, name)
}

/// Sets the start of the names of files. Returns false, and changes nothing, if it is too long
/// ([`PREFIX_MAX`]).
#[must_use]
pub fn set_prefix(prefix: &CStr) -> bool {
    ready();
    dump::set_prefix(prefix.to_bytes())
}

/// Whether each new maximum of memory in use writes a profile, while sampling is on.
pub fn dumps_growth() -> bool {
    ready();
    prof::dumps_growth()
}

/// Sets that.
pub fn set_dumps_growth(on: bool) {
    ready();
    prof::set_dumps_growth(on);
}

/// Bytes allocated between two profiles that are written by themselves; 0 for none.
pub fn interval() -> u64 {
    ready();
    prof::interval()
}

/// The figures of the profiler itself.
pub fn totals() -> prof::Totals {
    ready();
    prof::totals()
}

/// Does what the options ask for at the end of the process: a last profile, and a report of leaks.
/// Returns whether the process is to end with status 1.
pub fn end() -> bool {
    let o = options();
    if !o.prof || !o.prof_final {
        return false;
    }
    let _keep = KeepErrno::new();
    ready();
    prof::switch(false);
    // Without a prefix there is no last profile, and still a report.
    let _ = (dump::has_prefix()).then(|| dump::write(Reason::Final, None));
    let leaks = (o.prof_leak || o.prof_leak_error) && dump::report_leaks();
    leaks && o.prof_leak_error
}
