//! jemalloc's functions with flags: the `mallocx` family. `mallard_core::api::extended` handles
//! their flags; `prefixed` has them again as `je_mallocx` and so on.

use core::ffi::{c_int, c_void};
use mallard_core::api::{self, extended, extended::Flags};

#[unsafe(no_mangle)]
pub extern "C" fn mallocx(size: usize, flags: c_int) -> *mut c_void {
    extended::alloc_with(size, Flags::from_bits(flags)).cast()
}

/// # Safety
/// `p` is a block of ours.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rallocx(p: *mut c_void, size: usize, flags: c_int) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { extended::realloc_with(p.cast(), size, Flags::from_bits(flags)).cast() }
}

/// # Safety
/// `p` is a block of ours, and bytes beyond the returned size are no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xallocx(p: *mut c_void, size: usize, extra: usize, flags: c_int) -> usize {
    // SAFETY: the caller's promise.
    unsafe { extended::resize_in_place(p.cast(), size, extra, Flags::from_bits(flags)) }
}

/// # Safety
/// `p` is a block of ours.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sallocx(p: *const c_void, _flags: c_int) -> usize {
    // SAFETY: the caller's promise.
    unsafe { api::usable_size(p.cast_mut().cast()) }
}

/// # Safety
/// `p` is null or a block of ours that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dallocx(p: *mut c_void, flags: c_int) {
    // SAFETY: the caller's promise.
    unsafe { extended::dealloc_with(p.cast(), Flags::from_bits(flags)) }
}

/// # Safety
/// As for [`dallocx`]; `size` is at least the requested size and at most the usable size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdallocx(p: *mut c_void, size: usize, flags: c_int) {
    // SAFETY: the caller's promise.
    unsafe { extended::dealloc_sized_with(p.cast(), size, Flags::from_bits(flags)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn nallocx(size: usize, flags: c_int) -> usize {
    extended::usable_size_for(size, Flags::from_bits(flags))
}

/// The result of `smallocx`: `smallocx_return_t`.
#[repr(C)]
pub struct Sized {
    ptr: *mut c_void,
    size: usize,
}

/// Like `mallocx`, with the usable size of the block; 0 with null.
#[unsafe(no_mangle)]
pub extern "C" fn smallocx(size: usize, flags: c_int) -> Sized {
    let ptr = mallocx(size, flags);
    let size = if ptr.is_null() {
        0
    } else {
        nallocx(size, flags)
    };
    Sized { ptr, size }
}
