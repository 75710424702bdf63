//! `arenas.*`: settings for all arenas, and the size classes.
//!
//! A bin is a slab class, an extent size (`lextent`) one of the larger classes, up to the largest
//! that a request can have.

use crate::api;
use crate::cache::ThreadCache;
use crate::class::{Class, SLAB_CLASSES, slab_classes};
use crate::ctl::access::{Access, At, Mode};
use crate::ctl::node::{Leaf, See, Special, in_reference, indexed, name};
use crate::ctl::{CtlResult, Error, Request, index};
use crate::sys::page::PAGE;
use crate::sys::thp;
use core::ffi::c_void;

/// The alignment of all blocks but the smallest.
const QUANTUM: usize = 16;
/// Classes above the slab classes whose size a request can have.
const LARGE_CLASSES: usize = {
    let last = Class::of(api::MAX);
    let last = if last.tabled_size() > api::MAX {
        last.index() - 1
    } else {
        last.index()
    };
    last - SLAB_CLASSES
};

/// Classes that thread caches keep.
fn kept_classes() -> usize {
    match ThreadCache::largest() {
        Class::NONE => 0,
        largest => largest.number() + 1,
    }
}

pub(in crate::ctl) fn names(see: See<'_>) {
    see(&[
        name(
            "narenas",
            Leaf::Unsigned(Access::Read(|_| Ok(index::arenas() as u32))),
            "The number of arenas, used or not.",
        ),
        name(
            "dirty_decay_ms",
            Leaf::Ssize(Access::ReadWrite(
                |_| Ok(api::default_decay().0 as isize),
                |_, ms| set_decay(Some(ms), None),
            )),
            "Milliseconds over which dirty pages are returned, for arenas created from now on.",
        ),
        name(
            "muzzy_decay_ms",
            Leaf::Ssize(Access::ReadWrite(
                |_| Ok(api::default_decay().1 as isize),
                |_, ms| set_decay(None, Some(ms)),
            )),
            "Milliseconds over which muzzy pages are returned, for arenas created from now on.",
        ),
        name(
            "quantum",
            Leaf::Size(Access::Read(|_| Ok(QUANTUM))),
            "Alignment of all blocks but the smallest.",
        ),
        name(
            "page",
            Leaf::Size(Access::Read(|_| Ok(PAGE))),
            "The unit of slabs and large blocks.",
        ),
        name(
            "hugepage",
            Leaf::Size(Access::Read(|_| Ok(thp::size()))),
            "Bytes of a huge page.",
        ),
        name(
            "tcache_max",
            Leaf::Size(Access::Read(|_| Ok(ThreadCache::largest().size()))),
            "The largest block that thread caches keep.",
        ),
        name(
            "nbins",
            Leaf::Unsigned(Access::Read(|_| Ok(slab_classes() as u32))),
            "The current number of classes that slabs serve: it grows as classes are tailored, \
             which get the last numbers.",
        ),
        name(
            "nhbins",
            Leaf::Unsigned(Access::Read(|_| Ok(kept_classes() as u32))),
            "The number of classes that thread caches keep.",
        ),
        indexed("bin", "i", |_, i| i < slab_classes(), bin_names),
        name(
            "nlextents",
            Leaf::Unsigned(Access::Read(|_| Ok(LARGE_CLASSES as u32))),
            "The number of classes above those of slabs.",
        ),
        indexed("lextent", "i", |_, i| i < LARGE_CLASSES, lextent_names),
        name(
            "create",
            Leaf::Special(Special {
                c_type: in_reference("unsigned, extent_hooks_t *"),
                mode: Mode::ReadWrite,
                serve: create,
            }),
            "Creates an arena, with the written extent hooks, if any, and returns its number.",
        ),
        name(
            "lookup",
            Leaf::Special(Special {
                c_type: in_reference("unsigned, void *"),
                mode: Mode::ReadWrite,
                serve: lookup,
            }),
            "The number of the arena of the written block.",
        ),
    ]);
}

fn create(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    request.must_read::<u32>()?;
    let hooks = request.given::<*mut c_void>()?;
    let hooks = hooks.unwrap_or(core::ptr::null_mut());
    // SAFETY: by the manual, the program vouches for its hooks.
    request.answer(unsafe { api::arenas::create_with(hooks.cast()) }?)
}

fn lookup(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    let block = request.must_give::<*mut c_void>()?;
    let arena = api::arenas::lookup(block.cast()).ok_or(Error::Invalid)?;
    request.answer(arena)
}

fn bin_names(see: See<'_>) {
    see(&[
        name(
            "size",
            Leaf::Size(Access::Read(|at| Ok(bin(at).size()))),
            "Bytes of a block of this class.",
        ),
        name(
            "nregs",
            Leaf::U32(Access::Read(|at| Ok(bin(at).shape().regions as u32))),
            "Blocks in a slab.",
        ),
        name(
            "slab_size",
            Leaf::Size(Access::Read(|at| Ok(bin(at).shape().pages as usize * PAGE))),
            "Bytes of a slab.",
        ),
        name(
            "nshards",
            Leaf::U32(Access::Read(|_| Ok(1))),
            "Bins of this class in an arena.",
        ),
    ]);
}

fn lextent_names(see: See<'_>) {
    see(&[name(
        "size",
        Leaf::Size(Access::Read(|at| {
            Ok(Class((at.index(0) + SLAB_CLASSES + 1) as u8).size())
        })),
        "Bytes of a block of this class.",
    )]);
}

/// The class of `arenas.bin.<i>`.
fn bin(at: &At<'_>) -> Class {
    Class(at.index(0) as u8 + 1)
}

/// Sets the given times.
fn set_decay(dirty: Option<isize>, muzzy: Option<isize>) -> CtlResult<()> {
    let done = api::set_default_decay(dirty.map(|ms| ms as i64), muzzy.map(|ms| ms as i64));
    done.then_some(()).ok_or(Error::Fault)
}
