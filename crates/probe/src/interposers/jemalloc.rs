//! jemalloc's functions with flags. Where the allocator has none of them, they are built from the
//! others, because a program may find these and use them.

use core::ffi::c_int;

use super::c::{begun, ended, resized};
use crate::allocator::loader::Pointer;
use crate::allocator::{self, call};
use crate::count::enter;
use mallard_formats::event::Kind;
use mallard_formats::probe::layout::State;

/// The flag that asks for zeros; the lowest six bits are the logarithm of the alignment.
const ZERO: c_int = 0x40;

fn plain(size: usize, flags: c_int) -> Pointer {
    let align = 1_usize << (flags & 0x3f);
    let block = match align {
        ..=16 => allocator::malloc(size),
        _ => allocator::memalign(align, size),
    };
    if flags & ZERO != 0 && !block.is_null() {
        // SAFETY: the block has this many bytes.
        unsafe { block.cast::<u8>().write_bytes(0, size) };
    }
    block
}

#[unsafe(no_mangle)]
pub extern "C" fn mallocx(size: usize, flags: c_int) -> Pointer {
    begun(
        State::Malloc,
        size,
        1 << (flags & 0x3f),
        || call!(mallocx as fn(usize, c_int) -> Pointer, size, flags; else plain(size, flags)),
    )
}

/// # Safety
/// The block is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rallocx(block: Pointer, size: usize, flags: c_int) -> Pointer {
    resized(block, size, || {
        call!(rallocx as fn(Pointer, usize, c_int) -> Pointer, block, size, flags;
            else allocator::realloc(block, size))
    })
}

/// # Safety
/// The block is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xallocx(block: Pointer, size: usize, extra: usize, flags: c_int) -> usize {
    let resize = || {
        call!(xallocx as fn(Pointer, usize, usize, c_int) -> usize, block, size, extra, flags;
            else allocator::usable_size(block))
    };
    let Some(call) = enter(State::Realloc) else {
        return resize();
    };
    let old = call.before_resize(block);
    let usable = resize();
    call.resized(old, block, usable);
    call.leave();
    usable
}

/// # Safety
/// The block is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sallocx(block: Pointer, flags: c_int) -> usize {
    let ask = || call!(sallocx as fn(Pointer, c_int) -> usize, block, flags; else allocator::usable_size(block));
    let Some(call) = enter(State::Query) else {
        return ask();
    };
    let usable = ask();
    call.did(Kind::Query, block);
    call.leave();
    usable
}

/// # Safety
/// The block is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dallocx(block: Pointer, flags: c_int) {
    ended(State::Free, block, || {
        call!(dallocx as fn(Pointer, c_int), block, flags; else allocator::free(block));
    });
}

/// # Safety
/// The block is null or live, and was requested with this size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdallocx(block: Pointer, size: usize, flags: c_int) {
    ended(State::SizedFree, block, || {
        call!(sdallocx as fn(Pointer, usize, c_int), block, size, flags; else allocator::free(block));
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn nallocx(size: usize, flags: c_int) -> usize {
    let otherwise = || match size {
        0 => 0,
        size => size.checked_next_multiple_of(16).unwrap_or(0),
    };
    call!(nallocx as fn(usize, c_int) -> usize, size, flags; else otherwise())
}

/// The result of `smallocx`.
#[repr(C)]
pub struct Sized {
    block: Pointer,
    size: usize,
}

#[unsafe(no_mangle)]
pub extern "C" fn smallocx(size: usize, flags: c_int) -> Sized {
    let block = mallocx(size, flags);
    let size = if block.is_null() {
        0
    } else {
        nallocx(size, flags)
    };
    Sized { block, size }
}
