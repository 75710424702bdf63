//! The C library's functions, and the allocator's, once they are known.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::loader;

pub type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;
pub type Set = unsafe extern "C" fn(*mut c_void, c_int, usize) -> *mut c_void;
pub type Length = unsafe extern "C" fn(*const c_char) -> usize;
pub type Within = unsafe extern "C" fn(*const c_char, usize) -> usize;
pub type ObjectSize = unsafe extern "C" fn(*const c_void) -> usize;
pub type ObjectBase = unsafe extern "C" fn(*const c_void) -> *mut c_void;

/// The address of a function; 0 until it is known.
pub struct Real(AtomicUsize);

impl Real {
    const fn unknown() -> Real {
        Real(AtomicUsize::new(0))
    }

    /// The function, if it is known.
    ///
    /// # Safety
    /// `F` is the type of the function of this name.
    #[inline(always)]
    pub unsafe fn get<F>(&self) -> Option<F> {
        let at = self.0.load(Ordering::Relaxed);
        // SAFETY: the caller's promise.
        (at != 0).then(|| unsafe { loader::function(at) })
    }
}

pub static MEMCPY: Real = Real::unknown();
pub static MEMMOVE: Real = Real::unknown();
pub static MEMSET: Real = Real::unknown();
pub static STRLEN: Real = Real::unknown();
pub static STRNLEN: Real = Real::unknown();
/// Known only where the allocator is Mallard: set last, because what is checked needs the others.
pub static OBJECT_SIZE: Real = Real::unknown();
pub static OBJECT_BASE: Real = Real::unknown();

/// Where the allocator's code lies, and how long it is.
static ALLOCATOR: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Whether the allocator is what calls from this address.
#[inline(always)]
pub fn is_allocator(caller: usize) -> bool {
    let [at, bytes] = [0, 1].map(|i| ALLOCATOR[i].load(Ordering::Relaxed));
    caller.wrapping_sub(at) < bytes
}

/// Finds the functions. Runs as a constructor, when all objects that were loaded at the start are
/// relocated.
extern "C" fn find() {
    let after = [
        (&MEMCPY, c"memcpy"),
        (&MEMMOVE, c"memmove"),
        (&MEMSET, c"memset"),
        (&STRLEN, c"strlen"),
        (&STRNLEN, c"strnlen"),
    ];
    for (real, name) in after {
        let Some((_, address)) = loader::first(loader::after_us(), name) else {
            return;
        };
        real.0.store(address, Ordering::Relaxed);
    }
    for (real, name) in [
        (&OBJECT_BASE, c"malloc_object_base"),
        (&OBJECT_SIZE, c"malloc_object_size"),
    ] {
        let Some((object, address)) = loader::first(loader::all(), name) else {
            return;
        };
        let at = object.base;
        ALLOCATOR[0].store(at, Ordering::Relaxed);
        // SAFETY: the start of an object that the loader has mapped.
        ALLOCATOR[1].store(unsafe { mapped_bytes(at) }, Ordering::Relaxed);
        real.0.store(address, Ordering::Relaxed);
    }
}

/// The bytes of an object from its start to the end of its last segment.
///
/// # Safety
/// A shared object is mapped there, with its header.
unsafe fn mapped_bytes(at: usize) -> usize {
    // SAFETY: the caller's promise; the header says where the others are.
    unsafe {
        let header = &*(at as *const libc::Elf64_Ehdr);
        let first = (at + header.e_phoff as usize) as *const libc::Elf64_Phdr;
        let all = (0..header.e_phnum as usize).map(|i| &*first.add(i));
        let ends = all.filter(|segment| segment.p_type == libc::PT_LOAD);
        ends.map(|segment| (segment.p_vaddr + segment.p_memsz) as usize)
            .max()
            .unwrap_or(0)
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = find;
