//! The functions that this library defines instead of the C library's. Each passes its caller's
//! address on as a fourth argument.

use core::ffi::{c_char, c_int, c_void};

use crate::arch::entry;
use crate::check::check;
use crate::real::{self, Copy, Length, Real, Set, Within};

/// Copies byte by byte, before the real function is known.
#[cold]
#[inline(never)]
unsafe fn copy_plainly(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void {
    let (to_bytes, from) = (to.cast::<u8>(), from.cast::<u8>());
    // SAFETY: the caller's promise.
    unsafe {
        if to_bytes.addr().wrapping_sub(from.addr()) >= bytes {
            (0..bytes).for_each(|i| to_bytes.add(i).write(from.add(i).read()));
        } else {
            let down = (0..bytes).rev();
            down.for_each(|i| to_bytes.add(i).write(from.add(i).read()));
        }
    }
    to
}

entry!(memcpy, memcpy_by);

unsafe extern "C" fn memcpy_by(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    caller: usize,
) -> *mut c_void {
    check(caller, c"memcpy", to, bytes);
    // SAFETY: the caller's promise.
    unsafe { copied(to, from, bytes) }
}

entry!(memmove, memmove_by);

unsafe extern "C" fn memmove_by(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    caller: usize,
) -> *mut c_void {
    check(caller, c"memmove", to, bytes);
    // SAFETY: the caller's promise.
    unsafe { copied_by(&real::MEMMOVE, to, from, bytes) }
}

entry!(mempcpy, mempcpy_by);

unsafe extern "C" fn mempcpy_by(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    caller: usize,
) -> *mut c_void {
    check(caller, c"mempcpy", to, bytes);
    // SAFETY: the caller's promise.
    unsafe { copied(to, from, bytes).byte_add(bytes) }
}

entry!(memset, memset_by);

unsafe extern "C" fn memset_by(
    to: *mut c_void,
    byte: c_int,
    bytes: usize,
    caller: usize,
) -> *mut c_void {
    check(caller, c"memset", to, bytes);
    // SAFETY: the caller's promise.
    unsafe { filled(to, byte, bytes) }
}

/// Copies what was checked.
unsafe fn copied(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { copied_by(&real::MEMCPY, to, from, bytes) }
}

/// Copies by `memcpy` or `memmove`.
#[inline(always)]
unsafe fn copied_by(
    real: &Real,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        match real.get::<Copy>() {
            Some(copy) => copy(to, from, bytes),
            None => copy_plainly(to, from, bytes),
        }
    }
}

/// Fills what was checked.
unsafe fn filled(to: *mut c_void, byte: c_int, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        match real::MEMSET.get::<Set>() {
            Some(memset) => memset(to, byte, bytes),
            None => {
                (0..bytes).for_each(|i| to.cast::<u8>().add(i).write(byte as u8));
                to
            }
        }
    }
}

unsafe fn length(text: *const c_char) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        match real::STRLEN.get::<Length>() {
            Some(strlen) => strlen(text),
            None => (0..).take_while(|&i| text.add(i).read() != 0).count(),
        }
    }
}

unsafe fn length_within(text: *const c_char, bytes: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        match real::STRNLEN.get::<Within>() {
            Some(strnlen) => strnlen(text, bytes),
            None => (0..bytes).take_while(|&i| text.add(i).read() != 0).count(),
        }
    }
}

entry!(strcpy, strcpy_by);

unsafe extern "C" fn strcpy_by(
    to: *mut c_char,
    from: *const c_char,
    _: usize,
    caller: usize,
) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe {
        let bytes = length(from) + 1;
        check(caller, c"strcpy", to.cast(), bytes);
        copied(to.cast(), from.cast(), bytes).cast()
    }
}

entry!(stpcpy, stpcpy_by);

unsafe extern "C" fn stpcpy_by(
    to: *mut c_char,
    from: *const c_char,
    _: usize,
    caller: usize,
) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe {
        let bytes = length(from) + 1;
        check(caller, c"stpcpy", to.cast(), bytes);
        copied(to.cast(), from.cast(), bytes)
            .cast::<c_char>()
            .add(bytes - 1)
    }
}

entry!(strncpy, strncpy_by);

unsafe extern "C" fn strncpy_by(
    to: *mut c_char,
    from: *const c_char,
    bytes: usize,
    caller: usize,
) -> *mut c_char {
    check(caller, c"strncpy", to.cast(), bytes);
    // SAFETY: the caller's promise.
    unsafe {
        let text = length_within(from, bytes);
        copied(to.cast(), from.cast(), text);
        filled(to.add(text).cast(), 0, bytes - text);
    }
    to
}

entry!(strcat, strcat_by);

unsafe extern "C" fn strcat_by(
    to: *mut c_char,
    from: *const c_char,
    _: usize,
    caller: usize,
) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe {
        let (before, bytes) = (length(to), length(from) + 1);
        check(caller, c"strcat", to.cast(), before + bytes);
        copied(to.add(before).cast(), from.cast(), bytes);
    }
    to
}

entry!(strncat, strncat_by);

unsafe extern "C" fn strncat_by(
    to: *mut c_char,
    from: *const c_char,
    bytes: usize,
    caller: usize,
) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe {
        let (before, text) = (length(to), length_within(from, bytes));
        check(caller, c"strncat", to.cast(), before + text + 1);
        copied(to.add(before).cast(), from.cast(), text);
        to.add(before + text).write(0);
    }
    to
}
