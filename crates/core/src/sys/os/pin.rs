//! Keeps the object that contains the allocator from being unloaded.
//!
//! Threads hold a key whose destructor is in the object, the background thread may run in it, and
//! the C library calls it around forks. If `dlclose` unmapped a plug-in that contains it, all of
//! these would be left dangling. So the object asks the loader, when it is loaded, to keep it. The
//! program itself always stays, and `libmallard.so` is linked so that it does: its linker script
//! leaves this out.

use crate::sys::arch;
use core::ffi::{c_char, c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr::null_mut;

/// The loader calls this with its lock held by the calling thread, so no other thread interferes
/// with the calls below.
#[used]
#[unsafe(link_section = ".init_array.mallard_stay")]
static AT_THE_START: extern "C" fn() = stay;

/// Makes the linker take this file out of an archive; emits no code.
#[inline(always)]
pub fn link() {
    arch::keep_in_link!(stay);
}

/// The loader's record of an object: the beginning of the C library's `struct link_map`.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
}

const RTLD_DL_LINKMAP: c_int = 2;

extern "C" fn stay() {
    // A static program has neither.
    let dladdr1 = crate::symbol_address!(weak "dladdr1");
    let dlopen = crate::symbol_address!(weak "dlopen");
    if dladdr1 == 0 || dlopen == 0 {
        return;
    }
    type Dladdr1 =
        unsafe extern "C" fn(usize, *mut libc::Dl_info, *mut *mut LinkMap, c_int) -> c_int;
    type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    // SAFETY: the functions have these types.
    let (dladdr1, dlopen) = unsafe {
        (
            transmute::<usize, Dladdr1>(dladdr1),
            transmute::<usize, Dlopen>(dlopen),
        )
    };
    let (mut info, mut map) = (MaybeUninit::uninit(), null_mut());
    let here = stay as *const () as usize;
    // SAFETY: both places may be written, and the loader's record of the object lives as long as
    // the object. The program's own name is empty in its record.
    unsafe {
        if dladdr1(here, info.as_mut_ptr(), &mut map, RTLD_DL_LINKMAP) != 0
            && let Some(map) = map.as_ref()
            && *map.name != 0
        {
            let mode = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            // The loader takes the namespace from the return address, so this must not become a
            // tail call.
            core::hint::black_box(dlopen(map.name, mode));
        }
    }
}
