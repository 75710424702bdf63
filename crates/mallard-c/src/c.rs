//! The functions of the C and POSIX standards, and a few old names.
//!
//! `malloc` and `free` are the core's fast paths and nothing else. A failed request returns null
//! and sets `errno` to `ENOMEM`; success and `free` do not change `errno`.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use mallard_core::api;
use mallard_core::conf::ZeroRealloc;
use mallard_core::die;
use mallard_core::stats;
use mallard_core::sys::errno;
use mallard_core::sys::mem::os_page;

#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    api::alloc(size).cast()
}

/// # Safety
/// `p` is null or a block of ours that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(p: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { api::dealloc(p.cast()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        Some(bytes) => api::alloc_zeroed(bytes).cast(),
        None => no_memory(),
    }
}

/// # Safety
/// `p` is null or a block of ours.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(p: *mut c_void, size: usize) -> *mut c_void {
    if p.is_null() {
        return api::alloc(size).cast();
    }
    if size == 0 {
        // SAFETY: the caller's promise.
        return unsafe { realloc_to_nothing(p) };
    }
    // SAFETY: the caller's promise.
    unsafe { api::realloc_some(p.cast(), size).cast() }
}

/// The C standard leaves the result of `realloc(p, 0)` open; here an option decides.
#[cold]
unsafe fn realloc_to_nothing(p: *mut c_void) -> *mut c_void {
    stats::count_zero_realloc();
    match api::options().zero_realloc {
        ZeroRealloc::Free => {
            // SAFETY: the caller's promise.
            unsafe { api::dealloc(p.cast()) };
            null_mut()
        }
        // The result is never the same block, because the thread counts both a free and a request.
        ZeroRealloc::Alloc => {
            let block = malloc(1);
            if !block.is_null() {
                // SAFETY: the caller's promise.
                unsafe { free(p) };
            }
            block
        }
        ZeroRealloc::Abort => die!("realloc({p:p}, 0), and the option zero_realloc is abort"),
    }
}

/// # Safety
/// `p` is null or a block of ours.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(p: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's promise.
        Some(bytes) => unsafe { realloc(p, bytes) },
        None => no_memory(),
    }
}

/// # Safety
/// `out` points to a pointer that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    let before = errno::get();
    let block = api::alloc_aligned(size, align);
    if block.is_null() {
        // This function reports failure only by its result.
        errno::set(before);
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { *out = block.cast() };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        errno::set(libc::EINVAL);
        return null_mut();
    }
    api::alloc_aligned(size, align).cast()
}

/// As in the GNU C library, an alignment that is not a power of two is rounded up to one.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => aligned_alloc(align, size),
        None => {
            errno::set(libc::EINVAL);
            null_mut()
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    aligned_alloc(os_page(), size)
}

/// Like `valloc`, with the size rounded up to whole pages.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(os_page()) {
        Some(size) => valloc(size.max(os_page())),
        None => no_memory(),
    }
}

/// # Safety
/// `p` is null or a block of ours.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(p: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    unsafe { api::usable_size(p.cast()) }
}

/// The bytes from `p` to the end of its block, `SIZE_MAX` if it lies in none.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_object_size(p: *const c_void) -> usize {
    match api::object_around(p.addr()) {
        Some(object) => (object.base + object.size).saturating_sub(p.addr()),
        None => usize::MAX,
    }
}

/// The start of the block that `p` lies in, null if in none.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_object_base(p: *const c_void) -> *mut c_void {
    match api::object_around(p.addr()) {
        Some(object) => object.base as *mut c_void,
        None => null_mut(),
    }
}

/// # Safety
/// `p` is null or a block of ours, requested with this size and no special alignment, and no longer
/// used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(p: *mut c_void, size: usize) {
    // SAFETY: the caller's promise.
    unsafe { api::dealloc_sized(p.cast(), size) }
}

/// # Safety
/// `p` is null or a block of ours, requested with this alignment and size, and no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(p: *mut c_void, _align: usize, _size: usize) {
    // SAFETY: the caller's promise.
    unsafe { free(p) }
}

/// # Safety
/// As for `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(p: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { free(p) }
}

#[cold]
fn no_memory() -> *mut c_void {
    errno::set(libc::ENOMEM);
    null_mut()
}
