//! `prof.*`: the heap profiler.
//!
//! As in a jemalloc that was built with profiling, but that sampling can be switched on in any
//! process, whatever the option `prof` says.

use crate::api::profile::{self, Span};
use crate::class::{Class, LARGE_CLASSES, SLAB_CLASSES, slab_classes};
use crate::ctl::access::{Access, Mode};
use crate::ctl::node::{Leaf, See, Special, branch, in_reference, indexed, name};
use crate::ctl::{At, CtlResult, Error, Request};
use core::ffi::{CStr, c_char};

pub(in crate::ctl) fn names(see: See<'_>) {
    see(&[
        name(
            "thread_active_init",
            Leaf::Bool(Access::ReadWrite(
                |_| Ok(profile::threads_active()),
                |_, on| {
                    profile::set_threads_active(on);
                    Ok(())
                },
            )),
            "Whether threads are sampled that did not set `thread.prof.active`.",
        ),
        name(
            "active",
            Leaf::Bool(Access::ReadWrite(
                |_| Ok(profile::is_active()),
                |_, on| {
                    profile::set_active(on);
                    Ok(())
                },
            )),
            "Whether allocations are sampled, in all threads at once. May be set in any process.",
        ),
        name(
            "dump",
            Leaf::Special(Special {
                c_type: "const char *",
                mode: Mode::WriteOnly,
                serve: dump,
            }),
            "Writes a profile to the file of this name, or with a null pointer to one named by `prof.prefix`; \
         EFAULT, and a line on standard error, when that fails.",
        ),
        name(
            "gdump",
            Leaf::Bool(Access::ReadWrite(
                |_| Ok(profile::dumps_growth()),
                |_, on| {
                    profile::set_dumps_growth(on);
                    Ok(())
                },
            )),
            "Whether a profile is written when the memory in use has grown by a tenth over its last maximum.",
        ),
        name(
            "prefix",
            Leaf::Special(Special {
                c_type: "const char *",
                mode: Mode::WriteOnly,
                serve: set_prefix,
            }),
            "Sets the start of the names of profile files; EFAULT if it is too long.",
        ),
        name(
            "reset",
            Leaf::Special(Special {
                c_type: "size_t",
                mode: Mode::WriteOnly,
                serve: reset,
            }),
            "Forgets all samples, and sets the mean distance between samples (base-2 logarithm), if one is given.",
        ),
        name(
            "log_start",
            Leaf::Special(Special {
                c_type: "const char *",
                mode: Mode::WriteOnly,
                serve: log_start,
            }),
            "Begins to log the sampled blocks that are freed. The name is that of the file, or with a null pointer it \
             begins with `prof.prefix`; EFAULT if there is a log already.",
        ),
        name(
            "log_stop",
            Leaf::Action(|_| profile::stop_log().or(Err(Error::Fault))),
            "Ends that, and writes the log as JSON; EFAULT if there is none, or, with a line on standard error, when \
             writing fails.",
        ),
    ]);
    see(&[
        name(
            "interval",
            Leaf::U64(Access::Read(|_| Ok(profile::interval()))),
            "Mean bytes allocated between two profiles written by themselves; 0 for none.",
        ),
        name(
            "lg_sample",
            Leaf::Size(Access::Read(|_| Ok(profile::lg_sample() as usize))),
            "Mean bytes between samples (base-2 logarithm).",
        ),
        name(
            "samples",
            Leaf::Size(Access::Read(|_| Ok(profile::totals().samples))),
            "Sampled blocks that are in use.",
        ),
        name(
            "sites",
            Leaf::Size(Access::Read(|_| Ok(profile::totals().sites))),
            "Call stacks that samples came from.",
        ),
        name(
            "lost",
            Leaf::Size(Access::Read(|_| Ok(profile::totals().lost))),
            "Samples that were due and could not be taken, for want of memory.",
        ),
        branch("live", live_names),
        branch("stats", stats_names),
        branch("peak", peak_names),
    ]);
}

fn live_names(see: See<'_>) {
    see(&[name(
        "bytes",
        Leaf::U64(Access::Read(|_| Ok(profile::totals().live_bytes))),
        "Bytes in use, as estimated from the samples.",
    )]);
}

fn peak_names(see: See<'_>) {
    see(&[
        name(
            "bytes",
            Leaf::U64(Access::Read(|_| Ok(profile::totals().peak_bytes))),
            "The most bytes that were in use, as estimated from the samples.",
        ),
        name(
            "reset",
            Leaf::Action(|_| {
                profile::reset_peak();
                Ok(())
            }),
            "Makes the present the peak that profiles show.",
        ),
    ]);
}

fn stats_names(see: See<'_>) {
    see(&[
        indexed("bins", "i", |_, i| i < slab_classes(), sums_names),
        indexed("lextents", "i", |_, i| i < LARGE_CLASSES, sums_names),
    ]);
}

fn sums_names(see: See<'_>) {
    see(&[
        name(
            "live",
            sums(|at, request| serve_sums(at, request, Span::Live)),
            "Requested bytes and number of the samples of this class that are in use; ENOENT without `prof_stats`.",
        ),
        name(
            "accum",
            sums(|at, request| serve_sums(at, request, Span::Ever)),
            "The same of all samples so far.",
        ),
    ]);
}

const fn sums(serve: fn(&At<'_>, &mut Request) -> CtlResult<()>) -> Leaf {
    Leaf::Special(Special {
        c_type: in_reference("struct { uint64_t; uint64_t; }"),
        mode: Mode::ReadOnly,
        serve,
    })
}

fn serve_sums(at: &At<'_>, request: &mut Request, span: Span) -> CtlResult<()> {
    request.allow(Mode::ReadOnly)?;
    // `prof.stats.bins` is the first of both branches.
    let first = match at.mib().get(2) {
        Some(0) => 1,
        _ => SLAB_CLASSES + 1,
    };
    let class = Class((at.index(0) + first) as u8);
    let sums = profile::of_class(class, span).ok_or(Error::NotFound)?;
    request.answer(sums.map(|sum| sum as usize))
}

/// A string that the caller gives, if it is one.
fn given_text<'a>(request: &Request) -> CtlResult<Option<&'a CStr>> {
    let text = request
        .given::<*const c_char>()?
        .filter(|text| !text.is_null());
    // SAFETY: the value that the caller gives is what the name expects: null, or a string.
    Ok(text.map(|text| unsafe { CStr::from_ptr(text) }))
}

fn log_start(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    request.allow(Mode::WriteOnly)?;
    if profile::start_log(given_text(request)?) {
        Ok(())
    } else {
        Err(Error::Fault)
    }
}

fn dump(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    request.allow(Mode::WriteOnly)?;
    profile::dump(given_text(request)?).or(Err(Error::Fault))
}

fn set_prefix(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    request.allow(Mode::WriteOnly)?;
    match given_text(request)? {
        Some(prefix) if !profile::set_prefix(prefix) => Err(Error::Fault),
        _ => Ok(()),
    }
}

fn reset(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    request.allow(Mode::WriteOnly)?;
    let lg = match request.given::<usize>()? {
        Some(lg) => u32::try_from(lg).or(Err(Error::Invalid))?,
        None => profile::lg_sample(),
    };
    if profile::reset(lg) {
        Ok(())
    } else {
        Err(Error::Invalid)
    }
}
