//! The heap profiler: starts and stops sampling, and writes profiles.
//!
//! Sampling can be switched on in any process, whatever the option `prof` says; the other options
//! (`lg_prof_sample`, `prof_prefix`, …) say how. `docs/` has a chapter on its use. All functions
//! may be called from any thread.

use super::start::{expect_profiler, options};
use crate::class::Class;
use crate::prof;
pub use crate::prof::by_class::Span;
use crate::prof::dump::{self, Reason};
pub use crate::prof::dump::{Shown, Sink, Snapshot};
use crate::prof::history;
pub(crate) use crate::prof::hooks;
use crate::sys::errno::KeepErrno;
use core::ffi::{CStr, c_char};

/// The longest start of names of files, in bytes, with its end.
pub const PREFIX_MAX: usize = dump::PREFIX_MAX;

/// Whether allocations are sampled.
pub fn is_active() -> bool {
    prof::is_on()
}

/// Starts or stops sampling, for all threads at once.
pub fn set_active(on: bool) {
    let _keep = KeepErrno::new();
    expect_profiler();
    prof::switch(on);
}

/// Starts sampling, for all threads at once.
///
/// ```no_run
/// use mallard_core::api::profile;
///
/// profile::start();
/// let kept: Vec<String> = (0..1_000_000).map(|n| n.to_string()).collect();
/// profile::stop();
/// // On failure, a line on standard error has said why.
/// profile::dump(Some(c"kept.heap")).expect("the profile is written");
/// drop(kept);
/// ```
pub fn start() {
    set_active(true);
}

/// Stops sampling. What was sampled stays in profiles for as long as it is in use.
pub fn stop() {
    set_active(false);
}

/// Whether threads without a choice of their own ([`set_thread_active`]) are sampled.
pub fn threads_active() -> bool {
    expect_profiler();
    prof::threads_on()
}

/// Sets whether threads without a choice of their own are sampled, running and new ones.
pub fn set_threads_active(on: bool) {
    expect_profiler();
    prof::set_threads_on(on);
}

/// Whether the calling thread is sampled while sampling is on.
pub fn thread_active() -> bool {
    expect_profiler();
    prof::is_thread_on()
}

/// Sets whether the calling thread is sampled while sampling is on.
pub fn set_thread_active(on: bool) {
    expect_profiler();
    prof::set_thread_on(on);
}

/// The mean bytes between samples (base-2 logarithm).
pub fn lg_sample() -> u32 {
    expect_profiler();
    prof::lg_sample()
}

/// Forgets all samples, and sets the mean bytes between samples (base-2 logarithm). Returns false,
/// and does nothing, if that is over 63.
#[must_use]
pub fn reset(lg_sample: u32) -> bool {
    expect_profiler();
    if lg_sample > 63 {
        return false;
    }
    prof::reset(lg_sample);
    true
}

/// Makes the present the peak that profiles show.
pub fn reset_peak() {
    expect_profiler();
    prof::reset_peak();
}

/// Writes a profile to the file with this name; with `None`, to one whose name begins with the
/// option `prof_prefix`. Returns the system's error number on failure, after a line on standard
/// error that says what failed.
pub fn dump(name: Option<&CStr>) -> Result<(), i32> {
    expect_profiler();
    dump::write(Reason::Manual, name)
}

/// Passes a profile to `out`, in pieces: pprof's, or else jemalloc's text. `ENOMEM` when memory is
/// out.
pub fn pass(pprof: bool, out: &mut dyn Sink) -> Result<(), i32> {
    expect_profiler();
    dump::pass(pprof, out)
}

/// The figures of all call stacks now, for [`pass_shown`]; `None` when memory is out.
pub fn snapshot() -> Option<Snapshot> {
    expect_profiler();
    Snapshot::take()
}

/// Passes a profile to `out` in pprof's form, in pieces, that shows these figures at first; with a
/// snapshot, what has changed since. `ENOMEM` when memory is out.
pub fn pass_shown(shown: Shown, since: Option<&Snapshot>, out: &mut dyn Sink) -> Result<(), i32> {
    expect_profiler();
    dump::pass_shown(shown, since, out)
}

/// Sets the start of the names of files. Returns false, and changes nothing, if it is too long
/// ([`PREFIX_MAX`]).
#[must_use]
pub fn set_prefix(prefix: &CStr) -> bool {
    expect_profiler();
    dump::set_prefix(prefix.to_bytes())
}

/// Whether each new maximum of memory in use writes a profile, while sampling is on.
pub fn dumps_growth() -> bool {
    expect_profiler();
    prof::dumps_growth()
}

/// Sets whether each new maximum of memory in use writes a profile.
pub fn set_dumps_growth(on: bool) {
    expect_profiler();
    prof::set_dumps_growth(on);
}

/// Bytes allocated between two profiles that are written by themselves; 0 for none.
pub fn interval() -> u64 {
    expect_profiler();
    prof::interval()
}

/// Bytes of the longest name of a thread in profiles, with its end.
pub const THREAD_NAME_MAX: usize = history::NAME_MAX;

/// The calling thread's name in profiles, and zeros behind it.
pub fn thread_name() -> [u8; THREAD_NAME_MAX] {
    expect_profiler();
    prof::thread_name()
}

/// Where it is kept; it changes if the thread is named anew.
pub(crate) fn thread_name_in_place() -> *const c_char {
    expect_profiler();
    prof::thread_name_in_place()
}

/// Names the calling thread in profiles; what is longer than [`THREAD_NAME_MAX`] is cut. `ENOENT`
/// if threads have the names that the system has, `EINVAL` for other than printable characters,
/// spaces and tabs, `EAGAIN` when memory is out.
pub fn set_thread_name(name: &CStr) -> Result<(), i32> {
    expect_profiler();
    if prof::has_system_names() {
        return Err(libc::ENOENT);
    }
    let is_allowed = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t');
    if !name.to_bytes().iter().all(is_allowed) {
        return Err(libc::EINVAL);
    }
    let mut kept = [0; THREAD_NAME_MAX];
    let (room, _) = kept.split_last_chunk_mut::<1>().ok_or(libc::EINVAL)?;
    let pairs = room.iter_mut().zip(name.to_bytes());
    pairs.for_each(|(to, &from)| *to = from);
    prof::set_thread_name(&kept)
        .then_some(())
        .ok_or(libc::EAGAIN)
}

/// Begins a log of the sampled blocks that are freed, which [`stop_log`] writes to the file with
/// this name; with `None`, to one whose name begins with the option `prof_prefix`. Returns false if
/// there is a log already, or memory is out.
#[must_use]
pub fn start_log(name: Option<&CStr>) -> bool {
    let _keep = KeepErrno::new();
    expect_profiler();
    prof::begin_log(name)
}

/// Ends the log and writes it as JSON. Returns the system's error number on failure, after a line
/// on standard error that says what failed; 0 if there is no log.
pub fn stop_log() -> Result<(), i32> {
    expect_profiler();
    dump::write_log()
}

/// How many recent samples are kept; negative for all.
pub fn recent_max() -> i64 {
    expect_profiler();
    history::recent_max()
}

/// Sets how many recent samples are kept; returns the number before.
pub fn set_recent_max(max: i64) -> i64 {
    expect_profiler();
    prof::set_recent_max(max)
}

/// Passes the recent samples to `out` as JSON, in pieces.
pub fn recent(out: &mut dyn FnMut(&CStr)) {
    let _keep = KeepErrno::new();
    expect_profiler();
    dump::recent(out);
}

/// The requested bytes and the number of the samples of a class. `None` without the option
/// `prof_stats`.
pub fn of_class(class: Class, span: Span) -> Option<[u64; 2]> {
    expect_profiler();
    prof::by_class::read(class, span)
}

/// The figures of the profiler itself.
pub fn totals() -> prof::Totals {
    expect_profiler();
    prof::totals()
}

/// Does what the options ask for at the end of the process: a last profile, and a report of leaks.
/// Returns whether the process should end with status 1.
#[cold]
#[inline(never)]
pub fn end() -> bool {
    let o = options();
    if history::logs() {
        let _ = dump::write_log();
    }
    if !o.prof || !o.prof_final {
        return false;
    }
    let _keep = KeepErrno::new();
    expect_profiler();
    prof::switch(false);
    // Without a prefix there is no last profile, and still a report.
    let _ = (dump::has_prefix()).then(|| dump::write(Reason::Final, None));
    let leaks = (o.prof_leak || o.prof_leak_error) && dump::report_leaks();
    leaks && o.prof_leak_error
}

#[cfg(test)]
mod tests;
