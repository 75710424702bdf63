//! The functions of C and of jemalloc again, under jemalloc's prefix `je_`, for programs built for
//! a jemalloc with that prefix.

use crate::{c, ctl, extended, extended::Sized, report, report::Write};
use core::ffi::{c_char, c_int, c_void};

/// `je_new = old(arguments) -> result`: each defines a function that calls `old`.
macro_rules! prefixed {
    ($($name:ident = $module:ident::$of:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => { $(
        /// # Safety
        /// As for the function without the prefix.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $result)? {
            #[allow(unused_unsafe, reason = "some of them are safe")]
            // SAFETY: the caller's promise.
            unsafe { $module::$of($($arg),*) }
        }
    )* };
}

type Block = *mut c_void;

prefixed! {
    je_malloc = c::malloc(size: usize) -> Block;
    je_calloc = c::calloc(count: usize, size: usize) -> Block;
    je_realloc = c::realloc(p: Block, size: usize) -> Block;
    je_reallocarray = c::reallocarray(p: Block, count: usize, size: usize) -> Block;
    je_free = c::free(p: Block);
    je_free_sized = c::free_sized(p: Block, size: usize);
    je_free_aligned_sized = c::free_aligned_sized(p: Block, align: usize, size: usize);
    je_posix_memalign = c::posix_memalign(out: *mut Block, align: usize, size: usize) -> c_int;
    je_aligned_alloc = c::aligned_alloc(align: usize, size: usize) -> Block;
    je_memalign = c::memalign(align: usize, size: usize) -> Block;
    je_valloc = c::valloc(size: usize) -> Block;
    je_pvalloc = c::pvalloc(size: usize) -> Block;
    je_malloc_usable_size = c::malloc_usable_size(p: Block) -> usize;
    je_mallocx = extended::mallocx(size: usize, flags: c_int) -> Block;
    je_rallocx = extended::rallocx(p: Block, size: usize, flags: c_int) -> Block;
    je_xallocx = extended::xallocx(p: Block, size: usize, extra: usize, flags: c_int) -> usize;
    je_sallocx = extended::sallocx(p: *const c_void, flags: c_int) -> usize;
    je_dallocx = extended::dallocx(p: Block, flags: c_int);
    je_sdallocx = extended::sdallocx(p: Block, size: usize, flags: c_int);
    je_nallocx = extended::nallocx(size: usize, flags: c_int) -> usize;
    je_mallctl = ctl::mallctl(
        name: *const c_char, oldp: Block, oldlenp: *mut usize, newp: Block, newlen: usize
    ) -> c_int;
    je_mallctlnametomib = ctl::mallctlnametomib(
        name: *const c_char, mibp: *mut usize, miblenp: *mut usize
    ) -> c_int;
    je_mallctlbymib = ctl::mallctlbymib(
        mib: *const usize, miblen: usize, oldp: Block, oldlenp: *mut usize, newp: Block, newlen: usize
    ) -> c_int;
    je_malloc_stats_print = report::malloc_stats_print(
        write: Option<Write>, opaque: Block, opts: *const c_char
    );
    je_smallocx = extended::smallocx(size: usize, flags: c_int) -> Sized;
}
