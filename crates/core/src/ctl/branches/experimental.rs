//! `experimental.*`: names that jemalloc's manual omits but programs use.
//!
//! Functions that see every call (`hooks.install`, `hooks.remove`) are missing, because no fast
//! path checks for them.

use crate::api::arenas as api_arenas;
use crate::api::extended::{self, Flags};
use crate::api::guards;
use crate::api::inspect::{self, Around};
use crate::api::profile::{self, hooks, hooks::Event};
use crate::api::threads;
use crate::ctl::access::{Access, At, Mode};
use crate::ctl::node::{Leaf, See, Special, branch, in_reference, indexed, name};
use crate::ctl::{CtlResult, Error, Request, index};
use core::ffi::{c_char, c_void};

const fn special(c_type: &'static str, mode: Mode, serve: Serve) -> Leaf {
    Leaf::Special(Special {
        c_type: in_reference(c_type),
        mode,
        serve,
    })
}

type Serve = fn(&At<'_>, &mut Request) -> CtlResult<()>;

pub(in crate::ctl) fn names(see: See<'_>) {
    see(&[
        branch("guard", guard_names),
        branch("hooks", hook_names),
        branch("prof_recent", prof_recent_names),
        branch("utilization", utilization_names),
        indexed("arenas", "i", index::is_arena, arena_names),
        name(
            "arenas_create_ext",
            special(
                "unsigned, struct { extent_hooks_t *; bool; }",
                Mode::ReadWrite,
                create,
            ),
            "Like `arenas.create`. The flag that records should come from the hooks too has no \
             effect: records lie apart from the program's memory.",
        ),
        name(
            "batch_alloc",
            special(
                "size_t, struct { void **; size_t; size_t; int; }",
                Mode::ReadWrite,
                batch_alloc,
            ),
            "Fills an array with a number of blocks of one size, with flags as for `mallocx`, and \
             returns how many it got.",
        ),
    ]);
}

fn guard_names(see: See<'_>) {
    see(&[
        name(
            "active",
            Leaf::Bool(Access::ReadWrite(
                |_| Ok(guards::are_active()),
                |_, on| guards::set_active(on).then_some(()).ok_or(Error::Again),
            )),
            "Whether some requests get guarded blocks (`opt.guard_sample`), in all threads at once. \
             May be set in any process; EAGAIN when memory is out.",
        ),
        name(
            "sample",
            Leaf::U64(Access::Read(|_| Ok(1 << guards::totals().lg_bytes))),
            "Mean allocated bytes between guarded blocks.",
        ),
        name(
            "blocks",
            Leaf::U64(Access::Read(|_| Ok(guards::totals().blocks))),
            "Guarded blocks so far.",
        ),
        name(
            "live",
            Leaf::Size(Access::Read(|_| Ok(guards::totals().live))),
            "Guarded blocks in use. They are in no other figure but `thread.allocated` and \
             `thread.deallocated`.",
        ),
        name(
            "open_bytes",
            Leaf::Size(Access::Read(|_| Ok(guards::totals().open_bytes))),
            "Bytes of their pages.",
        ),
        name(
            "findings",
            Leaf::Unsigned(Access::Read(|_| Ok(guards::totals().findings))),
            "Misuses that were reported, with `opt.guard_action` as `report`.",
        ),
    ]);
}

fn hook_names(see: See<'_>) {
    see(&[
        name(
            "safety_check_abort",
            special(
                "void (*)(const char *)",
                Mode::WriteOnly,
                safety_check_abort,
            ),
            "A function that receives the line about a misuse, or about a `new` without memory \
             (`opt.experimental_infallible_new`), instead of standard error. When it returns, the \
             process ends, or that `new` is null. NULL for none.",
        ),
        name(
            "thread_event",
            special(
                "struct { void (*)(bool, uint64_t, uint64_t); uint64_t; bool; }",
                Mode::WriteOnly,
                thread_event,
            ),
            "A function to call whenever a thread has allocated this many bytes more or, unless \
             the last field is true, freed them. Its arguments are the bytes that the thread has \
             allocated and freed. Four functions at most, and they stay forever; all threads then \
             count (see `thread.allocated`), running ones after a short while.",
        ),
    ]);
    see(&[
        name(
            "prof_backtrace",
            special(
                "void (*)(void **, unsigned *, unsigned)",
                Mode::ReadWrite,
                |_, request| prof_hook(request, Event::Backtrace),
            ),
            "A function that takes the call stacks of heap profiles: where the addresses go, where \
             their number goes, and how many fit. NULL is EINVAL.",
        ),
        name(
            "prof_dump",
            special("void (*)(const char *)", Mode::ReadWrite, |_, request| {
                prof_hook(request, Event::Dump)
            }),
            "A function to call with the file's name when a heap profile was written. NULL for none.",
        ),
        name(
            "prof_sample",
            special(
                "void (*)(const void *, size_t, void **, unsigned, size_t)",
                Mode::ReadWrite,
                |_, request| prof_hook(request, Event::Sample),
            ),
            "A function to call with each sampled block: its address, the requested bytes, the call \
             stack, its length, and the bytes of the block. What the function allocates is not sampled. \
             NULL for none.",
        ),
        name(
            "prof_sample_free",
            special(
                "void (*)(const void *, size_t)",
                Mode::ReadWrite,
                |_, request| prof_hook(request, Event::Free),
            ),
            "A function to call when a sampled block is about to be freed: its address and bytes. \
             NULL for none.",
        ),
    ]);
}

fn prof_hook(request: &mut Request, event: Event) -> CtlResult<()> {
    let new = request.given::<usize>()?;
    if matches!((new, event), (Some(0), Event::Backtrace)) {
        return Err(Error::Invalid);
    }
    request.answer(hooks::get(event))?;
    new.into_iter().for_each(|hook| hooks::set(event, hook));
    Ok(())
}

fn prof_recent_names(see: See<'_>) {
    see(&[
        name(
            "alloc_max",
            Leaf::Ssize(Access::ReadWrite(
                |_| Ok(profile::recent_max() as isize),
                |_, max| match max {
                    ..-1 => Err(Error::Invalid),
                    max => {
                        profile::set_recent_max(max as i64);
                        Ok(())
                    }
                },
            )),
            "How many of the last samples are kept, freed or not; -1 for all.",
        ),
        name(
            "alloc_dump",
            special(
                "struct { void (*)(void *, const char *); void *; }",
                Mode::WriteOnly,
                prof_recent_dump,
            ),
            "Passes those samples as JSON to a function, in pieces. Its first argument is the \
             written pointer.",
        ),
    ]);
}

fn prof_recent_dump(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    request.allow(Mode::WriteOnly)?;
    let [write, opaque] = request.must_give::<[usize; 2]>()?;
    if write == 0 {
        return Err(Error::Invalid);
    }
    type Write = unsafe extern "C" fn(*mut c_void, *const c_char);
    // SAFETY: not null; the program passes a function of this type.
    let write = unsafe { core::mem::transmute::<usize, Write>(write) };
    // SAFETY: the program vouches for its function.
    profile::recent(&mut |text| unsafe { write(opaque as *mut c_void, text.as_ptr()) });
    Ok(())
}

fn utilization_names(see: See<'_>) {
    see(&[
        name(
            "query",
            special(
                "struct { void *; size_t [5]; }, void *",
                Mode::ReadWrite,
                query,
            ),
            "About the slab of the written block: the slab that the next block of its class will \
             come from (NULL if all are full), its free regions, its regions, its bytes, and the \
             free regions and regions of all slabs of its class and arena. For a large block: \
             NULL, 0, 1, its bytes, 0 and 0. For anything else: zeros.",
        ),
        name(
            "batch_query",
            special("size_t [n][3], void *[n]", Mode::ReadWrite, batch_query),
            "For each of several blocks: the free regions, regions and bytes of its slab.",
        ),
    ]);
}

fn arena_names(see: See<'_>) {
    see(&[name(
        "pactivep",
        Leaf::Pointer(
            in_reference("size_t *"),
            Access::Read(|at| {
                let number = u32::try_from(at.index(0)).or(Err(Error::Fault))?;
                Ok(api_arenas::used_at(number)?.cast())
            }),
        ),
        "The address of the count of the arena's pages that hold blocks or slabs, valid as long as \
         the process lives. If arenas share pages, it counts those of all of them.",
    )]);
}

fn create(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    request.must_read::<u32>()?;
    let [hooks, _] = request.given::<[usize; 2]>()?.unwrap_or_default();
    // SAFETY: the program vouches for its hooks, as for `arenas.create`.
    request.answer(unsafe { api_arenas::create_with(hooks as *mut _) }?)
}

fn batch_alloc(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    request.must_read::<usize>()?;
    let [blocks, number, size, flags] = request.must_give::<[usize; 4]>()?;
    let flags = Flags::from_bits(flags as i32);
    let mut made = 0;
    while made < number {
        let block = extended::alloc_with(size, flags);
        if block.is_null() {
            break;
        }
        // SAFETY: the program passes an array for this many blocks.
        unsafe { (blocks as *mut *mut u8).add(made).write(block) };
        made += 1;
    }
    request.answer(made)
}

fn safety_check_abort(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    request.allow(Mode::WriteOnly)?;
    if let Some(function) = request.given::<*mut c_void>()? {
        // SAFETY: the program passes a function of this type, or null, which means none.
        inspect::on_misuse(unsafe { core::mem::transmute::<*mut c_void, Option<_>>(function) });
    }
    Ok(())
}

fn thread_event(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    let [function, every, alloc_only] = request.must_give::<[usize; 3]>()?;
    if every == 0 || function == 0 {
        return Err(Error::Invalid);
    }
    // SAFETY: not null; the program passes a function of this type.
    let function = unsafe { core::mem::transmute::<usize, threads::Callback>(function) };
    let of_frees = alloc_only as u8 == 0;
    Ok(threads::call_every(function, every as u64, of_frees)?)
}

fn query(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    request.old::<[usize; 6]>()?.ok_or(Error::Invalid)?;
    let a = inspect::around(request.must_give::<*mut c_void>()?.cast());
    request.answer([
        a.next_slab,
        a.free,
        a.regions,
        a.bytes,
        a.bin_free,
        a.bin_regions,
    ])
}

fn batch_query(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    request.each(|block: *mut c_void| {
        let Around {
            free,
            regions,
            bytes,
            ..
        } = inspect::around(block.cast());
        [free, regions, bytes]
    })
}
