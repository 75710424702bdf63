//! The functions of the program's allocator: the next definition of each name after this library.
//!
//! All are looked up at once by the first call. Before the loader has bound the objects of the
//! process (functions that choose an implementation run so early), a static buffer serves requests
//! and is never freed.
//!
//! The operators of C++ come from the allocator itself or from the C++ runtime, whose operators
//! call malloc and free. In the second case the probe calls malloc and free itself, which is the
//! same with fewer steps. Operators of any other object (a program's pool) are left alone: their
//! calls of malloc are counted, they themselves are not.

pub mod loader;

use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

use loader::{Object, Pointer};

macro_rules! functions {
    ($($id:ident $name:literal)*) => {
        /// A function of the allocator.
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[allow(non_camel_case_types)]
        #[repr(usize)]
        pub enum Function { $($id),* }
        const NAMES: &[&CStr] = &[$($name),*];
    };
}

functions! {
    malloc c"malloc" calloc c"calloc" realloc c"realloc" free c"free"
    malloc_usable_size c"malloc_usable_size"
    posix_memalign c"posix_memalign" aligned_alloc c"aligned_alloc" memalign c"memalign"
    valloc c"valloc" pvalloc c"pvalloc"
    free_sized c"free_sized" free_aligned_sized c"free_aligned_sized" malloc_trim c"malloc_trim"
    mallocx c"mallocx" rallocx c"rallocx" xallocx c"xallocx" sallocx c"sallocx"
    dallocx c"dallocx" sdallocx c"sdallocx" nallocx c"nallocx"
    new c"_Znwm" new_array c"_Znam"
    new_nothrow c"_ZnwmRKSt9nothrow_t" new_array_nothrow c"_ZnamRKSt9nothrow_t"
    new_aligned c"_ZnwmSt11align_val_t" new_array_aligned c"_ZnamSt11align_val_t"
    new_aligned_nothrow c"_ZnwmSt11align_val_tRKSt9nothrow_t"
    new_array_aligned_nothrow c"_ZnamSt11align_val_tRKSt9nothrow_t"
    delete c"_ZdlPv" delete_array c"_ZdaPv"
    delete_sized c"_ZdlPvm" delete_array_sized c"_ZdaPvm"
    delete_nothrow c"_ZdlPvRKSt9nothrow_t" delete_array_nothrow c"_ZdaPvRKSt9nothrow_t"
    delete_aligned c"_ZdlPvSt11align_val_t" delete_array_aligned c"_ZdaPvSt11align_val_t"
    delete_aligned_nothrow c"_ZdlPvSt11align_val_tRKSt9nothrow_t"
    delete_array_aligned_nothrow c"_ZdaPvSt11align_val_tRKSt9nothrow_t"
    delete_sized_aligned c"_ZdlPvmSt11align_val_t"
    delete_array_sized_aligned c"_ZdaPvmSt11align_val_t"
}

static ADDRESSES: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// The object that serves malloc: the loader's description of it.
static SERVES: AtomicUsize = AtomicUsize::new(0);

/// Where the operators of C++ are defined. They may be loaded later than the first call.
static OPERATORS: AtomicUsize = AtomicUsize::new(Operators::Unknown as usize);

/// Where the operators of C++ come from.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Operators {
    Unknown = 0,
    /// The object that serves malloc.
    Allocator = 1,
    /// The C++ runtime, on top of malloc.
    Runtime = 2,
    /// Another object, with its own definitions of the functions.
    Other = 3,
}

/// The address of a function; 0 if the process has none.
#[inline(always)]
pub fn address(function: Function) -> usize {
    match ADDRESSES[function as usize].load(Ordering::Relaxed) {
        0 => look_up(function),
        address => address,
    }
}

#[cold]
fn look_up(function: Function) -> usize {
    if resolve() {
        let known = ADDRESSES[function as usize].load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        // The object may have been loaded since.
        if let Some((_, address)) = loader::first(loader::after_us(), NAMES[function as usize]) {
            ADDRESSES[function as usize].store(address, Ordering::Relaxed);
            return address;
        }
    }
    0
}

/// Finds all functions, once. False as long as the process is not complete. Two threads that do it
/// at once find the same.
#[cold]
pub fn resolve() -> bool {
    if SERVES.load(Ordering::Acquire) != 0 {
        return true;
    }
    if !loader::is_complete() {
        return false;
    }
    let Some((object, _)) = loader::first(loader::after_us(), c"malloc") else {
        return false;
    };
    for (name, address) in NAMES.iter().zip(&ADDRESSES) {
        if let Some((_, found)) = loader::first(loader::after_us(), name) {
            address.store(found, Ordering::Relaxed);
        }
    }
    SERVES.store((object as *const Object).addr(), Ordering::Release);
    true
}

/// The object that serves malloc, once [`resolve`] has found it.
pub fn serves() -> Option<&'static Object> {
    let object = core::ptr::with_exposed_provenance::<Object>(SERVES.load(Ordering::Acquire));
    // SAFETY: null, or an object of the loader's list, which stays as long as its malloc is used.
    unsafe { object.as_ref() }
}

/// Where the operators of C++ come from.
#[inline(always)]
pub fn operators() -> Operators {
    match OPERATORS.load(Ordering::Relaxed) {
        1 => Operators::Allocator,
        2 => Operators::Runtime,
        3 => Operators::Other,
        _ => find_operators(),
    }
}

#[cold]
fn find_operators() -> Operators {
    if !resolve() {
        return Operators::Unknown;
    }
    let Some((object, _)) = loader::first(loader::after_us(), c"_Znwm") else {
        return Operators::Unknown;
    };
    let name = object.name().to_bytes();
    let runtime = [&b"libstdc++.so"[..], b"libc++.so", b"libc++abi.so"]
        .iter()
        .any(|part| name.windows(part.len()).any(|window| window == *part));
    let found = match serves() {
        Some(serves) if core::ptr::eq(serves, object) => Operators::Allocator,
        _ if runtime => Operators::Runtime,
        _ => Operators::Other,
    };
    OPERATORS.store(found as usize, Ordering::Relaxed);
    found
}

/// Calls a function of the allocator, if the process has it.
macro_rules! call {
    ($function:ident as fn($($type:ty),*) $(-> $result:ty)? , $($argument:expr),* ; else $otherwise:expr) => {{
        let address = $crate::allocator::address($crate::allocator::Function::$function);
        if address == 0 {
            $otherwise
        } else {
            // SAFETY: the functions with these names have these types; the arguments are the
            // caller's.
            unsafe {
                $crate::allocator::loader::function::<unsafe extern "C" fn($($type),*) $(-> $result)?>(address)(
                    $($argument),*
                )
            }
        }
    }};
}
pub(crate) use call;

#[inline(always)]
pub fn malloc(size: usize) -> Pointer {
    call!(malloc as fn(usize) -> Pointer, size; else early(size, 16))
}

#[inline(always)]
pub fn calloc(count: usize, size: usize) -> Pointer {
    let otherwise = || match count.checked_mul(size) {
        Some(bytes) => early(bytes, 16),
        None => null_mut(),
    };
    call!(calloc as fn(usize, usize) -> Pointer, count, size; else otherwise())
}

#[inline(always)]
pub fn free(block: Pointer) {
    if !is_early(block) {
        call!(free as fn(Pointer), block; else ());
    }
}

#[inline(always)]
pub fn realloc(block: Pointer, size: usize) -> Pointer {
    if is_early(block) {
        return move_early(block, size);
    }
    call!(realloc as fn(Pointer, usize) -> Pointer, block, size; else early(size, 16))
}

/// The usable size of a block of the allocator's; 0 for null and for early blocks.
#[inline(always)]
pub fn usable_size(block: Pointer) -> usize {
    if block.is_null() || is_early(block) {
        return 0;
    }
    call!(malloc_usable_size as fn(Pointer) -> usize, block; else 0)
}

#[inline(always)]
pub fn memalign(align: usize, size: usize) -> Pointer {
    call!(memalign as fn(usize, usize) -> Pointer, align, size; else early(size, align))
}

/// Bytes of the buffer for requests before the allocator can be called.
const EARLY_BYTES: usize = 64 << 10;

#[repr(C, align(4096))]
struct Early(core::cell::UnsafeCell<[u8; EARLY_BYTES]>);
// SAFETY: every byte is handed out once, to one caller.
unsafe impl Sync for Early {}

static EARLY: Early = Early(core::cell::UnsafeCell::new([0; EARLY_BYTES]));
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);

/// Whether a block is of the static buffer.
#[inline(always)]
pub fn is_early(block: Pointer) -> bool {
    block.addr().wrapping_sub(EARLY.0.get().addr()) < EARLY_BYTES
}

/// A block of zeros of the static buffer, with its size before it.
#[cold]
fn early(size: usize, align: usize) -> Pointer {
    let align = align.max(16);
    let Some(whole) = size
        .checked_add(align + 16)
        .filter(|whole| *whole <= EARLY_BYTES)
    else {
        return null_mut();
    };
    let begin = EARLY_USED.fetch_add(whole, Ordering::Relaxed);
    if begin.saturating_add(whole) > EARLY_BYTES || !align.is_power_of_two() {
        return null_mut();
    }
    let base = EARLY.0.get().cast::<u8>();
    let unaligned = base.addr() + begin + 16;
    let block = base.with_addr(unaligned.next_multiple_of(align));
    // SAFETY: the 16 bytes before the block lie in the part that was just taken.
    unsafe { block.sub(8).cast::<usize>().write(size) };
    block.cast()
}

#[cold]
fn move_early(block: Pointer, size: usize) -> Pointer {
    // SAFETY: `early` wrote the size before the block.
    let old = unsafe { block.cast::<u8>().sub(8).cast::<usize>().read() };
    let moved = malloc(size);
    if !moved.is_null() {
        // SAFETY: both blocks have this many bytes.
        unsafe {
            block
                .cast::<u8>()
                .copy_to_nonoverlapping(moved.cast(), old.min(size))
        };
    }
    moved
}
