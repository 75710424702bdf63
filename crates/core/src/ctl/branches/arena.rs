//! `arena.<i>.*`: one arena, or all.

use crate::api;
use crate::api::arenas::{self as api_arenas, Dss, NAME_BYTES};
use crate::conf;
use crate::ctl::access::{Access, At, Mode};
use crate::ctl::index::{ALL, DESTROYED, arenas};
use crate::ctl::node::{Leaf, See, Special, in_reference, name};
use crate::ctl::{CtlResult, Error, Request};
use core::ffi::{CStr, c_char};

pub(in crate::ctl) fn names(see: See<'_>) {
    see(&[
        name(
            "initialized",
            Leaf::Bool(Access::Read(|at| Ok(is_initialised(at)))),
            "Whether the arena has been used or created, and has not been destroyed.",
        ),
        name(
            "decay",
            Leaf::Action(|at| Ok(api_arenas::decay(number(at))?)),
            "Returns the memory that is due by the decay times.",
        ),
        name(
            "purge",
            Leaf::Action(|at| Ok(api_arenas::purge(number(at))?)),
            "Returns all free memory.",
        ),
        name(
            "reset",
            // SAFETY: by the manual, the program ensures that the blocks are no longer in use.
            Leaf::Action(|at| Ok(unsafe { api_arenas::reset(number(at)) }?)),
            "Discards all blocks of an arena from `arenas.create`.",
        ),
        name(
            "destroy",
            // SAFETY: as for `reset`.
            Leaf::Action(|at| Ok(unsafe { api_arenas::destroy(number(at)) }?)),
            "Discards all blocks of an arena from `arenas.create`, and the arena.",
        ),
        name(
            "dss",
            Leaf::Text(Access::ReadWrite(dss, set_dss)),
            "Stored and returned without effect; memory never comes from `sbrk`.",
        ),
        name(
            "dirty_decay_ms",
            Leaf::Ssize(Access::ReadWrite(
                |at| Ok(api_arenas::decay_times(number(at))?.0 as isize),
                |at, ms| set_decay(at, Some(ms), None),
            )),
            "Milliseconds over which dirty pages are returned; automatic arenas without hooks share it.",
        ),
        name(
            "muzzy_decay_ms",
            Leaf::Ssize(Access::ReadWrite(
                |at| Ok(api_arenas::decay_times(number(at))?.1 as isize),
                |at, ms| set_decay(at, None, Some(ms)),
            )),
            "Milliseconds over which muzzy pages are returned; automatic arenas without hooks share it.",
        ),
        name(
            "oversize_threshold",
            Leaf::Size(Access::ReadWrite(
                |at| Ok(api_arenas::oversize(number(at))?),
                |at, bytes| Ok(api_arenas::set_oversize(number(at), bytes)?),
            )),
            "Blocks of this size or more, if above 256 KiB, return their memory when they are \
             freed, unless decay is off; automatic arenas without hooks share it. A size that no \
             block has means none.",
        ),
        name(
            "retain_grow_limit",
            Leaf::Size(Access::ReadWrite(
                |at| {
                    if_retained()?;
                    Ok(api_arenas::retain_grow_limit(number(at))?)
                },
                |at, bytes| {
                    if_retained()?;
                    Ok(api_arenas::set_retain_grow_limit(number(at), bytes)?)
                },
            )),
            "The maximum number of bytes by which the arena grows at a time, unless more is needed.",
        ),
        name(
            "hardened",
            Leaf::Bool(Access::ReadWrite(
                |at| Ok(api_arenas::is_hardened(number(at))?),
                |at, on| Ok(api_arenas::set_hardened(number(at), on)?),
            )),
            "Whether the arena's blocks are hardened, as `opt.hardened` makes all blocks. It can be \
             set for an arena from `arenas.create` that has no memory and no threads yet.",
        ),
        name(
            "extent_hooks",
            Leaf::Pointer(
                in_reference("extent_hooks_t *"),
                Access::ReadWrite(
                    |at| Ok(api_arenas::hooks(number(at))?.cast()),
                    // SAFETY: by the manual, the program vouches for its hooks.
                    |at, hooks| match unsafe { api_arenas::set_hooks(number(at), hooks.cast()) } {
                        Ok(_) => Ok(()),
                        Err(code) => Err(code.into()),
                    },
                ),
            ),
            "The functions that provide the arena's memory; an automatic arena then gets its own page heap.",
        ),
        name(
            "name",
            Leaf::Special(Special {
                c_type: "char *",
                mode: Mode::ReadWrite,
                serve: serve_name,
            }),
            "The arena's name, copied to the pointer's target: 32 bytes at most, including the closing zero.",
        ),
    ]);
}

/// The arena number for the layers below: `ALL` for each index that means all arenas.
#[inline(never)]
fn number(at: &At<'_>) -> u32 {
    match at.index(0) {
        i if i == ALL || i == arenas() => api_arenas::ALL,
        i => i as u32,
    }
}

fn is_initialised(at: &At<'_>) -> bool {
    match at.index(0) {
        DESTROYED => api_arenas::destroyed() > 0,
        _ if number(at) == api_arenas::ALL => true,
        _ => api_arenas::is_initialised(number(at)),
    }
}

fn set_decay(at: &At<'_>, dirty: Option<isize>, muzzy: Option<isize>) -> CtlResult<()> {
    let (dirty, muzzy) = (dirty.map(|ms| ms as i64), muzzy.map(|ms| ms as i64));
    Ok(api_arenas::set_decay_times(number(at), dirty, muzzy)?)
}

/// Growth has no limit to set where addresses are not retained.
fn if_retained() -> CtlResult<()> {
    api::options().retain.then_some(()).ok_or(Error::NotFound)
}

/// The values, with the words that the option has for them.
const DSS: [(Dss, &CStr); 3] = [
    (Dss::Disabled, conf::Dss::Disabled.word()),
    (Dss::Primary, conf::Dss::Primary.word()),
    (Dss::Secondary, conf::Dss::Secondary.word()),
];

fn dss(at: &At<'_>) -> CtlResult<&'static CStr> {
    Ok(word(api_arenas::dss(number(at))?))
}

pub(in crate::ctl) fn word(dss: Dss) -> &'static CStr {
    DSS[dss as usize].1
}

fn set_dss(at: &At<'_>, word: *const c_char) -> CtlResult<()> {
    if word.is_null() {
        return Ok(());
    }
    // SAFETY: the caller of a write passes a string.
    let word = unsafe { CStr::from_ptr(word) };
    let found = DSS.iter().find(|(_, name)| *name == word);
    let (dss, _) = found.ok_or(Error::Invalid)?;
    Ok(api_arenas::set_dss(number(at), *dss)?)
}

/// As in jemalloc, the old name goes to the buffer that the pointer in the old value's place points
/// to.
fn serve_name(at: &At<'_>, request: &mut Request) -> CtlResult<()> {
    let arena = number(at);
    if arena == api_arenas::ALL || at.index(0) == DESTROYED {
        return Err(Error::Invalid);
    }
    let new = request.given::<*const c_char>()?;
    if new.is_some_and(|name| name.is_null()) {
        return Err(Error::Invalid);
    }
    let name = api_arenas::name(arena)?;
    if let Some(to) = request.old::<*const c_char>()? {
        if to.is_null() {
            return Err(Error::Invalid);
        }
        // The length is hidden from the compiler, which would unroll the search.
        let bytes = core::hint::black_box(&name[..]);
        let len = bytes
            .iter()
            .position(|&b| b == 0)
            .map_or(NAME_BYTES, |n| n + 1);
        // SAFETY: the caller of a read passes a pointer to 32 bytes, or to enough for the name.
        unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), to.cast_mut().cast(), len) };
    }
    if let Some(new) = new {
        // SAFETY: not null, so a string.
        api_arenas::set_name(arena, unsafe { CStr::from_ptr(new) })?;
    }
    Ok(())
}
