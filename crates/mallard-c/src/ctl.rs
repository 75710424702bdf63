//! `mallctl` and its two relatives.
//!
//! They return an error code and do not change `errno`. A null name or MIB, which jemalloc does not
//! check for, is `EINVAL`.

use core::ffi::{CStr, c_char, c_int, c_void};
use mallard_core::ctl::{self, CtlResult, Error, Request};

fn code(answer: CtlResult<()>) -> c_int {
    answer.map_or_else(Error::code, |()| 0)
}

/// # Safety
/// The name is a C string; the other arguments are as [`Request::new`] requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallctl(
    name: *const c_char,
    oldp: *mut c_void,
    oldlenp: *mut usize,
    newp: *mut c_void,
    newlen: usize,
) -> c_int {
    if name.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promises.
    let (name, mut request) = unsafe {
        (
            CStr::from_ptr(name),
            Request::new(oldp, oldlenp, newp, newlen),
        )
    };
    code(ctl::by_name(name.to_bytes(), &mut request))
}

/// # Safety
/// The name is a C string; `miblenp` is null or valid, and `mibp` has room for that many numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallctlnametomib(
    name: *const c_char,
    mibp: *mut usize,
    miblenp: *mut usize,
) -> c_int {
    if name.is_null() || mibp.is_null() || miblenp.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promises. No name has more components than `DEPTH`.
    let (name, mib) = unsafe {
        let room = (*miblenp).min(ctl::DEPTH);
        (
            CStr::from_ptr(name),
            core::slice::from_raw_parts_mut(mibp, room),
        )
    };
    code(ctl::name_to_mib(name.to_bytes(), mib).map(|depth| {
        // SAFETY: the caller's promise.
        unsafe { *miblenp = depth };
    }))
}

/// # Safety
/// The MIB has `miblen` numbers; the other arguments are as [`Request::new`] requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallctlbymib(
    mib: *const usize,
    miblen: usize,
    oldp: *mut c_void,
    oldlenp: *mut usize,
    newp: *mut c_void,
    newlen: usize,
) -> c_int {
    if mib.is_null() {
        return libc::EINVAL;
    }
    if miblen > ctl::DEPTH {
        return libc::ENOENT;
    }
    // SAFETY: the caller's promises.
    let (mib, mut request) = unsafe {
        (
            core::slice::from_raw_parts(mib, miblen),
            Request::new(oldp, oldlenp, newp, newlen),
        )
    };
    code(ctl::by_mib(mib, &mut request))
}
