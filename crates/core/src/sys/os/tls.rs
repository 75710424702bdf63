//! One pointer and one number per thread, each read with two instructions.
//!
//! Thread-local storage in the initial-exec model: the pointer's offset from the thread pointer is
//! a constant that the loader writes once, so reading it is a load of the offset and a load through
//! the segment register, with no call to `__tls_get_addr` (which may itself allocate). Stable Rust
//! has no `#[thread_local]`, hence the assembly. In every thread, before any of our code runs in
//! it, the pointer is the address of [`EMPTY`], so that readers need no null test. We take only
//! sixteen bytes of static TLS, so `dlopen` can load the library.

use crate::sys::arch;
use core::cell::UnsafeCell;

/// Bytes of the block that every thread's pointer starts at: all zero, never written.
pub const EMPTY_BYTES: usize = 4096;

/// A block of zeros that is only read, as whatever type the reader chooses.
#[repr(C, align(64))]
pub struct Zeros(UnsafeCell<[u8; EMPTY_BYTES]>);

// SAFETY: nothing ever writes the block (the cache's protocol: a stack whose marks are all equal is
// never pushed to or popped from), so threads may share it.
unsafe impl Sync for Zeros {}

/// Where the pointer of a thread without a cache points.
pub static EMPTY: Zeros = Zeros(UnsafeCell::new([0; EMPTY_BYTES]));
/// Where the pointer of a thread whose cache is gone for good points.
pub static ENDED: Zeros = Zeros(UnsafeCell::new([0; EMPTY_BYTES]));
/// Where the pointer points while the thread is inside an extent hook of the program: allocations
/// of the hook bypass the thread's cache.
pub static IN_HOOK: Zeros = Zeros(UnsafeCell::new([0; EMPTY_BYTES]));

core::arch::global_asm!(
    ".pushsection .tdata.mallard,\"awT\",@progbits",
    ".p2align 3",
    ".globl mallard_thread_slot",
    ".hidden mallard_thread_slot",
    ".type mallard_thread_slot, @object",
    ".size mallard_thread_slot, 16",
    "mallard_thread_slot:",
    ".quad {empty}",
    ".quad 0",
    ".popsection",
    empty = sym EMPTY,
);

/// The calling thread's pointer.
#[inline(always)]
pub fn get() -> usize {
    #[cfg(shuttle)]
    if let Some(pointer) = modelled(|pointer, _| *pointer) {
        return pointer;
    }
    arch::thread_word!("mallard_thread_slot" + 0)
}

/// Sets the calling thread's pointer.
#[inline]
pub fn set(value: usize) {
    #[cfg(shuttle)]
    if modelled(|pointer, _| *pointer = value).is_some() {
        return;
    }
    arch::set_thread_word!("mallard_thread_slot" + 0, value);
}

/// How often the calling thread is inside the allocator without a cache to mark: at first 0.
#[inline]
pub fn depth() -> usize {
    #[cfg(shuttle)]
    if let Some(depth) = modelled(|_, depth| *depth) {
        return depth;
    }
    arch::thread_word!("mallard_thread_slot" + 8)
}

/// Sets how often the calling thread is inside without a cache to mark.
#[inline]
pub fn set_depth(value: usize) {
    #[cfg(shuttle)]
    if modelled(|_, depth| *depth = value).is_some() {
        return;
    }
    arch::set_thread_word!("mallard_thread_slot" + 8, value);
}

/// A number that no other living thread has.
#[inline]
pub fn thread() -> usize {
    #[cfg(shuttle)]
    if let Some(thread) = crate::sys::steps::thread() {
        return thread;
    }
    arch::thread_pointer()
}

/// The address of a block of zeros.
pub fn address_of(zeros: &'static Zeros) -> usize {
    core::ptr::from_ref(zeros).addr()
}

/// The words of a thread of a model.
#[cfg(shuttle)]
fn modelled<R>(f: impl FnOnce(&mut usize, &mut usize) -> R) -> Option<R> {
    crate::sys::steps::with_words(address_of(&EMPTY), f)
}
