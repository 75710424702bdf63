//! Blocks on a tailored class's stack that are older than the class.
//!
//! A program that frees by the requested size leads to the class that now serves requests of this
//! size. A block that it got before that class was tailored belongs to the class from which the
//! tailored one was cut. It is larger, so the cache may hand it out again. When flushed, it goes to
//! its own slab.

use crate::class::Class;
use crate::space::Region;

/// The class of a block filed under `filed`; `p` may be any address.
pub fn class_of(p: usize, filed: Class) -> Class {
    if !filed.is_tailored() {
        return filed;
    }
    let found = Region::find(p).map_or(filed, |region| region.class_of(p));
    if filed.has_older_of(found) {
        found
    } else {
        filed
    }
}
