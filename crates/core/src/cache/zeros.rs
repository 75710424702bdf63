//! What lies behind the zeros of a thread that counts (`counted`): in a hardened process its rings
//! (`delay`), because every thread of such a process counts.

use super::Front;
use crate::hardened;
use crate::hardened::ring::Rings;

/// Bytes of a thread's zeros, with what lies behind them.
pub(super) fn bytes() -> usize {
    let rings = if hardened::is_on() {
        size_of::<Rings>()
    } else {
        0
    };
    size_of::<Front>() + rings
}

const _: () = assert!(size_of::<Front>().is_multiple_of(align_of::<Rings>()));

/// Sets the rings up behind new zeros.
pub(super) fn begin(zeros: *mut Front) {
    if !hardened::is_on() {
        return;
    }
    let rings = zeros.wrapping_add(1).cast::<Rings>();
    // SAFETY: behind the zeros is room for the rings, of which zero is a valid value; nothing else
    // uses it yet.
    unsafe { rings.write_bytes(0, 1) };
}
