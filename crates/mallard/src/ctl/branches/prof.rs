//! `prof.*`: the heap profiler.
//!
//! There is none yet, so every name answers as jemalloc does in a process that was started without
//! profiling: switches read as off and may be switched off, figures are zero, and the rest does not
//! exist.

use crate::ctl::node::{Access, Leaf, Mode, See, Special, name};
use crate::ctl::{Answer, At, Error, Request};

/// A switch that is off and can only be set to off.
const OFF: Leaf = Leaf::Special(Special {
    c_type: "bool",
    mode: Mode::ReadWrite,
    serve: off,
});

/// A switch that is off and cannot be written.
pub(in crate::ctl) const STUCK: Leaf = Leaf::Special(Special {
    c_type: "bool",
    mode: Mode::ReadWrite,
    serve: stuck,
});

pub(in crate::ctl) fn names(see: See<'_>) {
    see(&[
        name(
            "thread_active_init",
            STUCK,
            "Whether new threads are sampled.",
        ),
        name("active", OFF, "Whether allocations are sampled."),
        name(
            "dump",
            absent("const char *", Mode::WriteOnly),
            "Writes a profile to the file of this name, or to one named by `opt.prof_prefix`.",
        ),
        name(
            "gdump",
            STUCK,
            "Whether each new maximum of mapped memory writes a profile.",
        ),
        name(
            "prefix",
            absent("const char *", Mode::WriteOnly),
            "Sets the start of the names of profile files.",
        ),
        name(
            "reset",
            absent("size_t", Mode::WriteOnly),
            "Forgets all samples, and sets the mean distance between samples (base-2 logarithm).",
        ),
        name(
            "log_start",
            absent("const char *", Mode::WriteOnly),
            "Begins to log the sampled allocations and frees.",
        ),
        name(
            "log_stop",
            absent("", Mode::Neither),
            "Ends that, and writes the log.",
        ),
        name(
            "interval",
            Leaf::U64(Access::Read(|_| Ok(0))),
            "Mean bytes allocated between two profiles written by themselves; 0 for none.",
        ),
        name(
            "lg_sample",
            Leaf::Size(Access::Read(|_| Ok(0))),
            "Mean bytes between samples (base-2 logarithm).",
        ),
    ]);
}

/// A name that only exists with a profiler.
pub(in crate::ctl) const fn absent(c_type: &'static str, mode: Mode) -> Leaf {
    Leaf::Special(Special {
        c_type,
        mode,
        serve: |_, _| Err(Error::NotFound),
    })
}

fn off(_: &At<'_>, request: &mut Request) -> Answer<()> {
    match request.given::<bool>()? {
        Some(true) => Err(Error::NotFound),
        _ => request.answer(false),
    }
}

fn stuck(_: &At<'_>, request: &mut Request) -> Answer<()> {
    if request.is_write() {
        return Err(Error::NotFound);
    }
    request.answer(false)
}
