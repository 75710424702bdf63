//! `config.*`: build-time settings.
//!
//! The names are jemalloc's, the answers Mallard's: each says whether programs can rely on the
//! feature, whatever jemalloc's build option of that name would have changed.

use crate::conf;
use crate::ctl::access::Access;
use crate::ctl::node::{Leaf, See, name};

const fn is(on: bool) -> Leaf {
    if on {
        Leaf::Bool(Access::Read(|_| Ok(true)))
    } else {
        Leaf::Bool(Access::Read(|_| Ok(false)))
    }
}

pub(in crate::ctl) fn names(see: See<'_>) {
    see(&[
        name(
            "cache_oblivious",
            is(true),
            "`opt.cache_oblivious` is available.",
        ),
        name(
            "debug",
            is(cfg!(debug_assertions)),
            "Built with internal checks.",
        ),
        name("fill", is(true), "`opt.junk` and `opt.zero` are available."),
        name(
            "lazy_lock",
            is(false),
            "Locks are omitted until there is a second thread: never.",
        ),
        name(
            "malloc_conf",
            Leaf::Text(Access::Read(|_| Ok(conf::compiled_in()))),
            "The options that the library was built with.",
        ),
        name(
            "opt_safety_checks",
            is(false),
            "The fast path checks the sizes of sized frees.",
        ),
        name("prof", is(true), "There is a heap profiler."),
        name("prof_libgcc", is(false), "The profiler unwinds by libgcc."),
        name(
            "prof_libunwind",
            is(false),
            "The profiler unwinds with libunwind.",
        ),
        name(
            "prof_frameptr",
            is(false),
            "The profiler unwinds with frame pointers.",
        ),
        name("stats", is(true), "There are statistics."),
        name(
            "utrace",
            is(false),
            "`utrace(2)` is available: Linux has none.",
        ),
        name("xmalloc", is(true), "`opt.xmalloc` is available."),
    ]);
}
