//! malloc's family in C.

use core::ffi::c_int;
use core::ptr::null_mut;

use crate::allocator::loader::Pointer;
use crate::allocator::{self, call};
use crate::arch::page_bytes;
use crate::count::{end_kind, enter, enter_in, plain_kind};
use crate::record;
use crate::tls::{Thread, thread};
use mallard_formats::event::Kind;
use mallard_formats::probe::layout::State;

#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: usize) -> Pointer {
    begun(State::Malloc, size, 1, || allocator::malloc(size))
}

#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> Pointer {
    let bytes = count.wrapping_mul(size);
    begun(State::Calloc, bytes, 1, || allocator::calloc(count, size))
}

/// # Safety
/// The block is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: Pointer) {
    ended(State::Free, block, || allocator::free(block));
}

/// # Safety
/// The block is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(block: Pointer) {
    ended(State::Free, block, || allocator::free(block));
}

/// Notes the end of a block, which `free` brings about.
#[inline(always)]
pub fn ended(state: State, block: Pointer, free: impl FnOnce()) {
    let thread = thread();
    let Some(recorder) = record::enter(thread) else {
        return counted_end(thread, state, block, free);
    };
    if !block.is_null() {
        recorder.end(end_kind(state), block);
    }
    free();
    recorder.leave();
}

/// Apart, so that the recorder saves fewer registers.
#[inline(never)]
fn counted_end(thread: &'static Thread, state: State, block: Pointer, free: impl FnOnce()) {
    let Some(call) = enter_in(thread, state) else {
        return free();
    };
    if !block.is_null() {
        call.end(block);
    }
    free();
    call.leave();
}

/// Notes a block that `make` makes, with this alignment; 1 if none is asked for.
#[inline(always)]
pub fn begun(state: State, size: usize, align: usize, make: impl FnOnce() -> Pointer) -> Pointer {
    let thread = thread();
    let Some(recorder) = record::enter(thread) else {
        return counted_begin(thread, state, size, align, make);
    };
    let block = make();
    recorder.begin(plain_kind(state), align.max(1).ilog2(), block, size);
    recorder.leave();
    block
}

/// Apart, so that the recorder saves fewer registers.
#[inline(never)]
fn counted_begin(
    thread: &'static Thread,
    state: State,
    size: usize,
    align: usize,
    make: impl FnOnce() -> Pointer,
) -> Pointer {
    let Some(call) = enter_in(thread, state) else {
        return make();
    };
    let call = call.aligned(align);
    let block = make();
    call.begin(block, size);
    call.leave();
    block
}

/// Counts a block that `resize` resizes.
#[inline(always)]
pub fn resized(block: Pointer, size: usize, resize: impl FnOnce() -> Pointer) -> Pointer {
    let Some(call) = enter(State::Realloc) else {
        return resize();
    };
    if block.is_null() {
        let made = resize();
        call.begin(made, size);
        call.leave();
        return made;
    }
    let old = call.before_resize(block);
    let moved = resize();
    call.resized(old, moved, size);
    call.leave();
    moved
}

/// # Safety
/// The block is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: Pointer, size: usize) -> Pointer {
    resized(block, size, || allocator::realloc(block, size))
}

/// # Safety
/// The block is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(block: Pointer, count: usize, size: usize) -> Pointer {
    match count.checked_mul(size) {
        Some(bytes) => resized(block, bytes, || allocator::realloc(block, bytes)),
        None => {
            // SAFETY: sets the thread's error.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            null_mut()
        }
    }
}

/// # Safety
/// `result` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(result: *mut Pointer, align: usize, size: usize) -> c_int {
    let make = || {
        call!(posix_memalign as fn(*mut Pointer, usize, usize) -> c_int, result, align, size;
            else libc::ENOMEM)
    };
    let Some(call) = enter(State::Aligned) else {
        return make();
    };
    let call = call.aligned(align);
    let error = make();
    let block = if error == 0 {
        // SAFETY: the caller's promise; it was written.
        unsafe { *result }
    } else {
        null_mut()
    };
    call.begin(block, size);
    call.leave();
    error
}

#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> Pointer {
    begun(State::Aligned, size, align, || {
        call!(aligned_alloc as fn(usize, usize) -> Pointer, align, size;
            else allocator::memalign(align, size))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, size: usize) -> Pointer {
    begun(State::Aligned, size, align, || {
        allocator::memalign(align, size)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> Pointer {
    begun(
        State::Aligned,
        size,
        page_bytes(),
        || call!(valloc as fn(usize) -> Pointer, size; else allocator::memalign(page_bytes(), size)),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> Pointer {
    begun(State::Aligned, size, page_bytes(), || {
        let rounded = size
            .checked_next_multiple_of(page_bytes())
            .unwrap_or(usize::MAX);
        call!(pvalloc as fn(usize) -> Pointer, size; else allocator::memalign(page_bytes(), rounded))
    })
}

/// # Safety
/// The block is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: Pointer) -> usize {
    let Some(call) = enter(State::Query) else {
        return allocator::usable_size(block);
    };
    let usable = allocator::usable_size(block);
    call.did(Kind::Query, block);
    call.leave();
    usable
}

/// # Safety
/// The block is null or live, and was requested with this size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(block: Pointer, size: usize) {
    ended(State::SizedFree, block, || {
        if !allocator::is_early(block) {
            call!(free_sized as fn(Pointer, usize), block, size; else allocator::free(block));
        }
    });
}

/// # Safety
/// The block is null or live, and was requested with this alignment and size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(block: Pointer, align: usize, size: usize) {
    ended(State::SizedFree, block, || {
        call!(free_aligned_sized as fn(Pointer, usize, usize), block, align, size;
            else allocator::free(block));
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(keep: usize) -> c_int {
    let trim = || call!(malloc_trim as fn(usize) -> c_int, keep; else 0);
    let Some(call) = enter(State::Trim) else {
        return trim();
    };
    let done = trim();
    call.did(Kind::Trim, null_mut());
    call.leave();
    done
}
