//! Blocks on a tailored class's stack that are older than the class.
//!
//! A program that frees by the size it asked for leads to the class that a request of this size is of now. A block that
//! it got before that class was tailored is of the class that it was cut from, and may be handed out again
//! from where it lies, since it is larger. When it is given back it goes to the slab that it is of.

use crate::class::Class;
use crate::space::Region;

/// Gives back those of the blocks filed under a tailored class that are of the class which that was cut from, and tells
/// which are left.
#[cold]
#[inline(never)]
pub(super) fn give_back(filed: Class, blocks: &mut [usize]) -> &mut [usize] {
    let from = filed.cut_from();
    let is_older = |p| Region::find(p).is_some_and(|region| region.class_of(p) == from);
    let mut older = 0;
    for i in 0..blocks.len() {
        if is_older(blocks[i]) {
            blocks.swap(older, i);
            older += 1;
        }
    }
    let (older, own) = blocks.split_at_mut(older);
    if !older.is_empty() {
        super::give_back(from, older);
    }
    own
}
