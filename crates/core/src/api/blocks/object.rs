//! The block around any address, without a lock.

use super::hardened as of_hardened;
use crate::arena::inspect::{self, Inside};

/// A block of this allocator, or a place for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    pub base: usize,
    /// Usable bytes: of a hardened block those that were requested, of one that is known to be free
    /// none.
    pub size: usize,
}

/// The block that `p`, which may be any address, lies in. `None` for all other memory, and for
/// blocks of 0 bytes and guarded ones, beside which nothing can be touched. A block that is free
/// counts as one, and its bytes as usable, unless it is hardened.
#[inline(never)]
pub fn object_around(p: usize) -> Option<Object> {
    let (base, size) = match inspect::block_around(p)? {
        Inside::Small {
            place,
            is_hardened: false,
        } => (place.at, place.bytes),
        Inside::Small { place, .. } => (place.at, of_hardened::bytes_in_use(place)),
        Inside::Large { at, bytes } => (at, of_hardened::large_bytes(at, bytes).unwrap_or(bytes)),
    };
    Some(Object { base, size })
}
