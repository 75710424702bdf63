//! `thread.*`: the calling thread.

use crate::api::profile;
use crate::api::threads::{self, Counts};
use crate::ctl::{
    Access, At, CtlResult, Error, Leaf, Mode, Request, See, Special, branch, name, opt,
};
use core::ffi::{CStr, c_char};

pub(in crate::ctl) fn names(see: See<'_>) {
    see(&[
        name(
            "arena",
            Leaf::Unsigned(Access::ReadWrite(
                |_| Ok(threads::arena()?),
                |_, number| Ok(threads::set_arena(number)?),
            )),
            "The arena that the thread allocates from; writing moves the thread to another one, \
             automatic or explicit.",
        ),
        name(
            "allocated",
            Leaf::U64(Access::Read(|_| Ok(counts()?.allocated().0))),
            "Bytes that the thread has allocated since it first read one of these counts; exact \
             from then on, and its calls then take a little longer.",
        ),
        name(
            "allocatedp",
            Leaf::Counter(Access::Read(|_| Ok(counts()?.allocated().1))),
            "Where they are counted, for as long as the thread lives.",
        ),
        name(
            "deallocated",
            Leaf::U64(Access::Read(|_| Ok(counts()?.freed().0))),
            "Bytes that the thread has freed, counted like `thread.allocated`.",
        ),
        name(
            "deallocatedp",
            Leaf::Counter(Access::Read(|_| Ok(counts()?.freed().1))),
            "Where they are counted, for as long as the thread lives.",
        ),
        branch("peak", peak_names),
        branch("tcache", tcache_names),
        branch("prof", prof_names),
        name(
            "idle",
            Leaf::Action(|_| {
                threads::idle();
                Ok(())
            }),
            "Returns the blocks in the thread's cache, for a thread that will do nothing for a while.",
        ),
    ]);
}

/// Counting starts at the first read.
#[inline(never)]
fn counts() -> CtlResult<&'static Counts> {
    Ok(threads::counts()?)
}

fn peak_names(see: See<'_>) {
    see(&[
        name(
            "read",
            Leaf::U64(Access::Read(|_| Ok(counts()?.peak()))),
            "The maximum of allocated minus freed bytes of the thread, relative to the start of \
             the counts or the last `thread.peak.reset`; exact.",
        ),
        name(
            "reset",
            Leaf::Action(|_| {
                counts()?.forget_peak();
                Ok(())
            }),
            "Resets the peak: it starts at zero from now on.",
        ),
    ]);
}

fn tcache_names(see: See<'_>) {
    see(&[
        name(
            "enabled",
            Leaf::Bool(Access::ReadWrite(
                |_| Ok(threads::is_cache_enabled()?),
                |_, on| Ok(threads::enable_cache(on)?),
            )),
            "Whether the thread's cache may hold blocks. With `opt.zero` or `opt.junk` it holds \
             none in any case.",
        ),
        name(
            "max",
            Leaf::Size(Access::ReadWrite(
                |_| Ok(threads::cache_max()?),
                |_, size| Ok(threads::set_cache_max(size)?),
            )),
            "The size of the largest blocks that the thread's cache holds; a written value is \
             rounded up to a size class, 256 KiB at most.",
        ),
        branch("ncached_max", ncached_max_names),
        name(
            "flush",
            Leaf::Action(|_| Ok(threads::flush_cache()?)),
            "Returns the blocks in the thread's cache; EFAULT if the cache is not enabled.",
        ),
    ]);
}

fn ncached_max_names(see: See<'_>) {
    see(&[
        name(
            "read_sizeclass",
            Leaf::Special(Special {
                c_type: "size_t",
                mode: Mode::ReadWrite,
                serve: |_, request| {
                    let max = threads::max_cached(request.must_give()?)?;
                    request.answer(max)
                },
            }),
            "The maximum number of blocks that the thread's cache can hold in the class of the \
             written size, when fully grown.",
        ),
        name(
            "write",
            Leaf::Special(Special {
                c_type: "char *",
                mode: Mode::WriteOnly,
                serve: write_ncached_max,
            }),
            "Sets the maximum number of cached blocks for a range of sizes, `8-64:100`, or several \
             separated by bars. 0 for no blocks; 4095 at most, and never more than the default. \
             Returns the cached blocks of these sizes to the arena.",
        ),
    ]);
}

fn write_ncached_max(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    request.allow(Mode::WriteOnly)?;
    let Some(text) = request.given::<*const c_char>()? else {
        return Ok(());
    };
    if !threads::is_cache_enabled()? {
        return Err(Error::NotFound);
    }
    if text.is_null() {
        return Err(Error::Invalid);
    }
    // SAFETY: not null, so a string.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes();
    let items = || {
        text.split(|&byte| byte == b'|')
            .filter(|_| !text.is_empty())
    };
    if !items().all(|item| opt::range(item).is_some()) {
        return Err(Error::Invalid);
    }
    for [first, last, blocks] in items().filter_map(opt::range) {
        threads::set_max_cached(first, last, blocks)?;
    }
    Ok(())
}

fn prof_name(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    request.allow_one_of_both()?;
    if !request.is_write() {
        return request.answer(profile::thread_name_in_place());
    }
    let name = request.must_give::<*const c_char>()?;
    if name.is_null() {
        return Err(Error::Invalid);
    }
    // SAFETY: the value that the caller gives is what the name expects: a string.
    Ok(profile::set_thread_name(unsafe { CStr::from_ptr(name) })?)
}

fn prof_names(see: See<'_>) {
    see(&[
        name(
            "name",
            Leaf::Special(Special {
                c_type: "const char *",
                mode: Mode::ReadWrite,
                serve: prof_name,
            }),
            "The thread's name in heap profiles: printable characters, spaces and tabs, of which 15 are kept. Reading \
             and writing in one call is EPERM; ENOENT with `prof_sys_thread_name`.",
        ),
        name(
            "active",
            Leaf::Bool(Access::ReadWrite(
                |_| Ok(profile::thread_active()),
                |_, on| {
                    profile::set_thread_active(on);
                    Ok(())
                },
            )),
            "Whether the thread's allocations are sampled while `prof.active` is on.",
        ),
    ]);
}
