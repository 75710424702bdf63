//! `opt.*`: the options in force, a name for each row of the option table.
//!
//! The values' types in C are jemalloc's where it has the option: `shape` lists the names whose type
//! does not follow from how Mallard keeps them.

use super::node::{Access, At, Kind, Leaf, Node};
use super::{Answer, Error};
use crate::api;
use crate::arena;
use crate::conf::{BackgroundThread, Descriptor, Line, Plain, Shape, TABLE};
use crate::sys::atomic::{AtomicU8, Ordering};
use core::ffi::CStr;

pub(super) static NAMES: [Node; TABLE.len()] = nodes();

const fn nodes() -> [Node; TABLE.len()] {
    let mut nodes = [const {
        Node {
            name: "",
            kind: Kind::Names(&[]),
            #[cfg(test)]
            doc: "",
        }
    }; TABLE.len()];
    let mut i = 0;
    while i < nodes.len() {
        nodes[i] = super::name(TABLE[i].name, leaf(&TABLE[i]), TABLE[i].meaning);
        i += 1;
    }
    nodes
}

/// What an option answers: its type in C, and where that or the value is not simply the option's own,
/// how.
const fn leaf(option: &Descriptor) -> Leaf {
    const fn is(option: &Descriptor, name: &str) -> bool {
        let (a, b) = (option.name.as_bytes(), name.as_bytes());
        let mut i = 0;
        while i < a.len() && i < b.len() && a[i] == b[i] {
            i += 1;
        }
        i == a.len() && i == b.len()
    }
    if is(option, "background_thread") {
        // `auto` allows it.
        return Leaf::Bool(Access::Read(|_| {
            Ok(api::options().background_thread != BackgroundThread::False)
        }));
    }
    if is(option, "narenas") {
        return Leaf::Unsigned(Access::Read(|_| Ok(arena::automatic() as u32)));
    }
    if is(option, "lg_tcache_max") {
        return Leaf::Size(Access::Read(|_| {
            Ok(api::options().tcache_max.checked_ilog2().unwrap_or(0) as usize)
        }));
    }
    if is(option, "prof") {
        // There is no profiler yet, whatever was asked for.
        return Leaf::Bool(Access::Read(|_| Ok(false)));
    }
    if is(option, "hpa_dirty_mult") {
        return Leaf::U32(Access::Read(hpa_dirty_mult));
    }
    if is(option, "stats_interval") || is(option, "mutex_max_spin") {
        return Leaf::I64(Access::Read(number));
    }
    if is(option, "lg_prof_interval") {
        return Leaf::Ssize(Access::Read(number));
    }
    // jemalloc keeps these in a size_t.
    let wide = is(option, "max_background_threads")
        || is(option, "lg_prof_sample")
        || is(option, "lg_extent_max_active_fit");
    match option.shape {
        _ if wide => Leaf::Size(Access::Read(number)),
        Shape::Bool => Leaf::Bool(Access::Read(switch)),
        Shape::Unsigned => Leaf::Unsigned(Access::Read(number)),
        Shape::Size => Leaf::Size(Access::Read(number)),
        Shape::Ssize => Leaf::Ssize(Access::Read(number)),
        Shape::U64 => Leaf::U64(Access::Read(number)),
        Shape::Text => Leaf::Text(Access::Read(text)),
        Shape::Written => Leaf::Text(Access::Read(written)),
    }
}

/// jemalloc's fixed-point number with 16 binary places; all ones for none.
fn hpa_dirty_mult(_: &At<'_>) -> Answer<u32> {
    const ONE: u64 = 1_000_000;
    Ok(match api::options().hpa_dirty_mult {
        Some(millionths) => ((millionths << 16) / ONE) as u32,
        None => u32::MAX,
    })
}

/// The option of `opt.<name>`: the names stand in the table's order.
fn option(at: &At<'_>) -> Answer<&'static Descriptor> {
    TABLE.get(at.mib()[1]).ok_or(Error::NotFound)
}

fn plain(at: &At<'_>) -> Answer<Plain<'static>> {
    Ok(option(at)?.plain(api::options()))
}

fn switch(at: &At<'_>) -> Answer<bool> {
    match plain(at)? {
        Plain::Switch(on) => Ok(on),
        _ => Err(Error::Fault),
    }
}

/// A number; one that is left to the allocator is 0.
fn number<T: TryFrom<i128>>(at: &At<'_>) -> Answer<T> {
    let number = match plain(at)? {
        Plain::Number(number) => number,
        Plain::Unset => 0,
        _ => return Err(Error::Fault),
    };
    T::try_from(number).or(Err(Error::Fault))
}

fn text(at: &At<'_>) -> Answer<&'static CStr> {
    match plain(at)? {
        Plain::Text(text) => Ok(text),
        _ => Err(Error::Fault),
    }
}

/// The value of an option that only a text can tell, as it is written in an option string. It is put
/// together at each call, always to the same text, because options do not change.
fn written(at: &At<'_>) -> Answer<&'static CStr> {
    const ROOM: usize = 32;
    static TEXTS: [[AtomicU8; ROOM]; WRITTEN] =
        [const { [const { AtomicU8::new(0) }; ROOM] }; WRITTEN];
    let option = option(at)?;
    let mut line = Line::new();
    option.show(api::options(), &mut line);
    let bytes = line.as_bytes();
    let mut before = TABLE.iter().take_while(|each| each.name != option.name);
    let text = TEXTS.get(written_in(&mut before)).ok_or(Error::Fault)?;
    if bytes.len() >= ROOM {
        return Err(Error::Fault);
    }
    for (slot, &byte) in text.iter().zip(bytes) {
        slot.store(byte, Ordering::Relaxed);
    }
    // SAFETY: the room is longer than the text and was zero, lives for ever, and nobody writes any other
    // bytes to it.
    Ok(unsafe { CStr::from_ptr(text.as_ptr().cast()) })
}

/// How many of these options only a text can tell.
fn written_in(options: &mut dyn Iterator<Item = &'static Descriptor>) -> usize {
    options
        .filter(|option| option.shape == Shape::Written)
        .count()
}

/// How many of all.
const WRITTEN: usize = {
    let (mut n, mut i) = (0, 0);
    while i < TABLE.len() {
        n += matches!(TABLE[i].shape, Shape::Written) as usize;
        i += 1;
    }
    n
};
