//! Tells AddressSanitizer which memory is free (feature `poison`): a touch of it ends the process
//! with a report. Without the feature both functions are nothing.
//!
//! Free are blocks from the call that frees them until one hands them out, and the pages of slabs
//! and of large blocks that were freed. Pages that never were in a block or a slab are not marked.
//! `scripts/sanitizers.sh address` runs the tests with it.

#[cfg(feature = "poison")]
unsafe extern "C" {
    fn __asan_poison_memory_region(at: *const core::ffi::c_void, bytes: usize);
    fn __asan_unpoison_memory_region(at: *const core::ffi::c_void, bytes: usize);
}

/// Nobody may touch these bytes from now on.
#[inline(always)]
pub fn free(at: usize, bytes: usize) {
    #[cfg(feature = "poison")]
    // SAFETY: changes nothing but what the sanitizer knows.
    unsafe {
        __asan_poison_memory_region(at as *const _, bytes)
    };
    let _ = (at, bytes);
}

/// These bytes belong to somebody, or are no longer ours.
#[inline(always)]
pub fn used(at: usize, bytes: usize) {
    #[cfg(feature = "poison")]
    // SAFETY: changes nothing but what the sanitizer knows.
    unsafe {
        __asan_unpoison_memory_region(at as *const _, bytes)
    };
    let _ = (at, bytes);
}
