//! `opt.*`: the options in force, a name for each row of the option table.
//!
//! The values have jemalloc's C types for jemalloc's options: `leaf_of` lists the names whose type
//! does not follow from how Mallard stores them.

use super::access::{Access, At};
use super::node::{Leaf, See, name};
use super::{CtlResult, Error};
use crate::api;
use crate::arena;
use crate::conf::{
    self, BackgroundThread, ConfirmConf, Descriptor, LineBuffer, Plain, Shape, Source, TABLE,
};
use crate::sys::atomic::{AtomicU8, Ordering};
use core::ffi::CStr;

/// The position of an option among the names, which are sorted alphabetically.
pub(super) fn position(name: &[u8]) -> Option<usize> {
    if name == SOURCES.as_bytes() {
        return Some(AT_SOURCES);
    }
    ORDER
        .binary_search_by(|row| TABLE[*row as usize].name().as_bytes().cmp(name))
        .ok()
}

/// The leaf at this position.
pub(super) fn leaf(position: usize) -> Option<Leaf> {
    at_position(position).map(leaf_of)
}

/// The branch after the options, and its position among the names.
pub(super) const SOURCES: &str = "malloc_conf";
pub(super) const AT_SOURCES: usize = TABLE.len();

/// The sources of the options; a name exists if its source does.
pub(super) fn sources(see: See<'_>) {
    see(&[
        name(
            "symlink",
            Leaf::Text(Access::Read(|_| there(conf::kept(Source::Link)))),
            "The options that were read from the symbolic link `/etc/malloc.conf`; ENOENT where \
             there were none.",
        ),
        name(
            "env_var",
            Leaf::Text(Access::Read(|_| there(conf::kept(Source::MallocConf)))),
            "Those of the variable `MALLOC_CONF`; likewise.",
        ),
        name(
            "global_var",
            Leaf::Text(Access::Read(|_| {
                there(api::conf_symbols().and_then(|texts| texts()[0]))
            })),
            "Those of the program's symbol `malloc_conf`; likewise.",
        ),
        name(
            "global_var_2_conf_harder",
            Leaf::Text(Access::Read(|_| {
                there(api::conf_symbols().and_then(|texts| texts()[1]))
            })),
            "Those of the program's symbol `malloc_conf_2_conf_harder`; likewise.",
        ),
    ]);
}

fn there(text: Option<&'static CStr>) -> CtlResult<&'static CStr> {
    text.ok_or(Error::NotFound)
}

pub(super) use crate::conf::range;

/// The names, in order.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ORDER.iter().map(|row| TABLE[*row as usize].name())
}

/// The option at this position.
pub(super) fn at_position(position: usize) -> Option<&'static Descriptor> {
    Some(&TABLE[*ORDER.get(position)? as usize])
}

/// The rows of the table sorted by name, by insertion sort.
static ORDER: [u8; TABLE.len()] = {
    let mut order = [0; TABLE.len()];
    let mut sorted = 0;
    while sorted < order.len() {
        let mut at = sorted;
        while at > 0 && is_less(TABLE[sorted].name(), TABLE[order[at - 1] as usize].name()) {
            order[at] = order[at - 1];
            at -= 1;
        }
        order[at] = sorted as u8;
        sorted += 1;
    }
    order
};

const fn is_less(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i < b.len() && (i == a.len() || a[i] < b[i])
}

/// The leaf of an option: its C type, and how to read it if that is not simply the stored value.
fn leaf_of(option: &Descriptor) -> Leaf {
    match option.name() {
        // `auto` allows a background thread.
        "background_thread" => Leaf::Bool(Access::Read(|_| {
            Ok(api::options().background_thread != BackgroundThread::False)
        })),
        // `short` is a form of it.
        "confirm_conf" => Leaf::Bool(Access::Read(|_| {
            Ok(api::options().confirm_conf != ConfirmConf::False)
        })),
        "narenas" => Leaf::Unsigned(Access::Read(|_| Ok(arena::automatic() as u32))),
        // The default is never.
        "calloc_madvise_threshold" => Leaf::Size(Access::Read(|_| {
            Ok(api::options()
                .calloc_madvise_threshold
                .unwrap_or(usize::MAX))
        })),
        "lg_tcache_max" => Leaf::Size(Access::Read(|_| {
            Ok(api::options().tcache_max.checked_ilog2().unwrap_or(0) as usize)
        })),
        "hpa_dirty_mult" => Leaf::U32(Access::Read(hpa_dirty_mult)),
        "stats_interval" | "mutex_max_spin" => Leaf::I64(Access::Read(number)),
        "lg_prof_interval" => Leaf::Ssize(Access::Read(number)),
        // jemalloc stores these in a size_t.
        "max_background_threads" | "lg_prof_sample" | "lg_extent_max_active_fit" => {
            Leaf::Size(Access::Read(number))
        }
        _ => match option.shape {
            Shape::Bool => Leaf::Bool(Access::Read(switch)),
            Shape::Unsigned => Leaf::Unsigned(Access::Read(number)),
            Shape::Size => Leaf::Size(Access::Read(number)),
            Shape::Ssize => Leaf::Ssize(Access::Read(number)),
            Shape::U64 => Leaf::U64(Access::Read(number)),
            Shape::Text => Leaf::Text(Access::Read(text)),
            Shape::Written => Leaf::Text(Access::Read(written)),
        },
    }
}

/// jemalloc's fixed-point number with 16 binary places; all ones mean none.
fn hpa_dirty_mult(_: &At<'_>) -> CtlResult<u32> {
    Ok(match api::options().hpa_dirty_mult {
        Some(millionths) => ((millionths << 16) / conf::MILLIONTHS_PER_ONE) as u32,
        None => u32::MAX,
    })
}

/// The option of `opt.<name>`.
fn option(at: &At<'_>) -> CtlResult<&'static Descriptor> {
    at_position(at.mib()[1]).ok_or(Error::NotFound)
}

#[inline(never)]
fn plain(at: &At<'_>) -> CtlResult<Plain<'static>> {
    Ok(option(at)?.plain(api::options()))
}

fn switch(at: &At<'_>) -> CtlResult<bool> {
    match plain(at)? {
        Plain::Switch(on) => Ok(on),
        _ => Err(Error::Fault),
    }
}

/// A number; 0 if the allocator chooses.
fn number<T: TryFrom<i128>>(at: &At<'_>) -> CtlResult<T> {
    let number = match plain(at)? {
        Plain::Number(number) => number,
        Plain::Unset => 0,
        _ => return Err(Error::Fault),
    };
    T::try_from(number).or(Err(Error::Fault))
}

fn text(at: &At<'_>) -> CtlResult<&'static CStr> {
    match plain(at)? {
        Plain::Text(text) => Ok(text),
        _ => Err(Error::Fault),
    }
}

/// The value of an option that has no plain C type, as written in an option string. It is formatted
/// at each call, always to the same text, because options do not change.
fn written(at: &At<'_>) -> CtlResult<&'static CStr> {
    const ROOM: usize = 32;
    static TEXTS: [[AtomicU8; ROOM]; WRITTEN] =
        [const { [const { AtomicU8::new(0) }; ROOM] }; WRITTEN];
    let option = option(at)?;
    let mut line = LineBuffer::new();
    option.show(api::options(), &mut line);
    let bytes = line.as_bytes();
    let mut before = TABLE.iter().take_while(|each| each.name() != option.name());
    let text = TEXTS.get(written_in(&mut before)).ok_or(Error::Fault)?;
    if bytes.len() >= ROOM {
        return Err(Error::Fault);
    }
    for (slot, &byte) in text.iter().zip(bytes) {
        slot.store(byte, Ordering::Relaxed);
    }
    // SAFETY: the buffer is longer than the text, was zero, is never freed, and only ever gets
    // these bytes.
    Ok(unsafe { CStr::from_ptr(text.as_ptr().cast()) })
}

/// How many of these options have only a text form.
fn written_in(options: &mut dyn Iterator<Item = &'static Descriptor>) -> usize {
    options
        .filter(|option| option.shape == Shape::Written)
        .count()
}

/// The number of these among all options.
const WRITTEN: usize = {
    let (mut n, mut i) = (0, 0);
    while i < TABLE.len() {
        n += matches!(TABLE[i].shape, Shape::Written) as usize;
        i += 1;
    }
    n
};
