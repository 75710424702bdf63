//! Blocks on a tailored class's stack that are older than the class.
//!
//! A program that frees by the size it asked for leads to the class that a request of this size is
//! of now. A block that it got before that class was tailored is of the class that it was cut from,
//! and may be handed out again from where it lies, since it is larger. When it is given back it
//! goes to the slab that it is of.

use crate::class::Class;
use crate::space::Region;

/// The class that a block filed under `filed` is of, for a `p` that may have been anything.
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

/// Gives back those of the blocks filed under a tailored class that are of the class which that was
/// cut from, and tells which are left.
#[cold]
#[inline(never)]
pub(super) fn give_back(filed: Class, blocks: &mut [usize]) -> &mut [usize] {
    let (own, older) = super::part(blocks, |p| class_of(p, filed) == filed);
    if !older.is_empty() {
        super::give_back(filed.cut_from(), older);
    }
    own
}
