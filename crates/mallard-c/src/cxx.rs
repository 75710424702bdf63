//! The operators `new` and `delete` of C++, every replaceable form.
//!
//! A failed request calls the program's new-handler and tries again, until there is no handler:
//! then the throwing forms throw `std::bad_alloc`, and the others return null, even when the
//! handler itself throws. Exceptions cross code unknown to Rust: a few lines of assembly with their
//! own unwinding tables. The C++ runtime is not linked: its few functions are looked up in the
//! running program (by weak references, else by the loader), so that the library can be preloaded
//! into programs without it.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use mallard_core::api::{self, Family, Missed};
use mallard_core::die;
use mallard_core::symbol_address;
use mallard_core::sys::fault;

use crate::arch::cxx::{new_failed, new_failed_nothrow, throw_bad_alloc};

/// Requested without a special alignment.
const PLAIN: usize = 0;

macro_rules! throwing {
    ($($name:ident: $family:ident)*) => { $(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(size: usize) -> *mut c_void {
            match api::alloc_cached(size) {
                Ok(block) => block.cast(),
                Err(missed) => $family::new_slow(size, missed),
            }
        }
    )* };
}

macro_rules! throwing_aligned {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(size: usize, align: usize) -> *mut c_void {
            let block = api::alloc_aligned(size, align);
            if block.is_null() { new_failed(size, align) } else { block.cast() }
        }
    )* };
}

macro_rules! nothrow {
    ($($name:ident: $family:ident)*) => { $(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(size: usize, _nothrow: *const c_void) -> *mut c_void {
            match api::alloc_cached(size) {
                Ok(block) => block.cast(),
                Err(missed) => $family::nothrow_slow(size, missed),
            }
        }
    )* };
}

macro_rules! nothrow_aligned {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(size: usize, align: usize, _nothrow: *const c_void) -> *mut c_void {
            let block = api::alloc_aligned(size, align);
            if block.is_null() { new_failed_nothrow(size, align) } else { block.cast() }
        }
    )* };
}

macro_rules! delete {
    ($($name:ident($($arg:ident: $type:ty),*): $array:literal;)*) => { $(
        /// # Safety
        /// The block is null or ours, and no longer used.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(p: *mut c_void $(, $arg: $type)*) {
            // SAFETY: the caller's promise.
            unsafe { api::dealloc_new::<$array>(p.cast()) }
        }
    )* };
}

macro_rules! delete_sized {
    ($($name:ident: $array:literal)*) => { $(
        /// # Safety
        /// The block is null or ours, requested with this size, and no longer used.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(p: *mut c_void, size: usize) {
            // SAFETY: the caller's promise.
            unsafe { api::dealloc_new_sized::<$array>(p.cast(), size) }
        }
    )* };
}

throwing! { _Znwm: one _Znam: array }
throwing_aligned! { _ZnwmSt11align_val_t _ZnamSt11align_val_t }
nothrow! { _ZnwmRKSt9nothrow_t: one _ZnamRKSt9nothrow_t: array }
nothrow_aligned! {
    _ZnwmSt11align_val_tRKSt9nothrow_t _ZnamSt11align_val_tRKSt9nothrow_t
}
delete_sized! { _ZdlPvm: false _ZdaPvm: true }
delete! {
    _ZdlPv(): false;
    _ZdaPv(): true;
    _ZdlPvRKSt9nothrow_t(_nothrow: *const c_void): false;
    _ZdaPvRKSt9nothrow_t(_nothrow: *const c_void): true;
    _ZdlPvSt11align_val_t(_align: usize): false;
    _ZdaPvSt11align_val_t(_align: usize): true;
    _ZdlPvSt11align_val_tRKSt9nothrow_t(_align: usize, _nothrow: *const c_void): false;
    _ZdaPvSt11align_val_tRKSt9nothrow_t(_align: usize, _nothrow: *const c_void): true;
    _ZdlPvmSt11align_val_t(_size: usize, _align: usize): false;
    _ZdaPvmSt11align_val_t(_size: usize, _align: usize): true;
}

/// The slow path of `new`.
mod one {
    use super::*;

    #[cold]
    #[inline(never)]
    pub fn new_slow(size: usize, missed: Missed) -> *mut c_void {
        or_fail(api::alloc_missed_as(size, missed, Family::New), size)
    }

    #[cold]
    #[inline(never)]
    pub fn nothrow_slow(size: usize, missed: Missed) -> *mut c_void {
        or_fail_nothrow(api::alloc_missed_as(size, missed, Family::New), size)
    }
}

/// The slow path of `new[]`.
mod array {
    use super::*;

    #[cold]
    #[inline(never)]
    pub fn new_slow(size: usize, missed: Missed) -> *mut c_void {
        or_fail(api::alloc_missed_as(size, missed, Family::NewArray), size)
    }

    #[cold]
    #[inline(never)]
    pub fn nothrow_slow(size: usize, missed: Missed) -> *mut c_void {
        or_fail_nothrow(api::alloc_missed_as(size, missed, Family::NewArray), size)
    }
}

#[inline(always)]
fn or_fail(block: *mut u8, size: usize) -> *mut c_void {
    if block.is_null() {
        new_failed(size, PLAIN)
    } else {
        block.cast()
    }
}

#[inline(always)]
fn or_fail_nothrow(block: *mut u8, size: usize) -> *mut c_void {
    if block.is_null() {
        new_failed_nothrow(size, PLAIN)
    } else {
        block.cast()
    }
}

/// Tries to allocate once more, after a handler ran.
pub extern "C" fn retry(size: usize, align: usize) -> *mut u8 {
    if align == PLAIN {
        api::alloc(size)
    } else {
        api::alloc_aligned(size, align)
    }
}

/// The address of a function of the C++ runtime, for code at `caller`; 0 if there is none.
macro_rules! runtime_function {
    ($weak:literal, $name:literal, $caller:expr) => {
        match symbol_address!(weak $weak) {
            0 => look_up($name, $caller),
            address => address,
        }
    };
}

/// The runtime that the object of the last caller sees, as a handle of the loader; 0 for none.
static SEEN: AtomicUsize = AtomicUsize::new(0);

/// Asks the loader: the runtime may belong to a library that was loaded later, and be visible to
/// the object of the caller alone, or be a part of it. A static program has no loader. With 0 as
/// the caller, the last one's object is asked.
#[cold]
fn look_up(name: &CStr, caller: usize) -> usize {
    type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    type Tell = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int;
    let find = symbol_address!(weak "dlsym");
    if find == 0 {
        return 0;
    }
    // SAFETY: the functions have these types; all strings are terminated; only libraries that are
    // already loaded are used.
    unsafe {
        let find: Find = core::mem::transmute(find);
        // Looked up at run time: the linker would warn about a reference in every static program.
        let loader = [c"dlopen", c"dladdr"].map(|name| find(libc::RTLD_DEFAULT, name.as_ptr()));
        if loader.iter().any(|function| function.is_null()) {
            return find(libc::RTLD_DEFAULT, name.as_ptr()).addr();
        }
        let open: Open = core::mem::transmute(loader[0]);
        let tell: Tell = core::mem::transmute(loader[1]);
        let opened = |object: *const c_char| {
            if object.is_null() {
                core::ptr::null_mut()
            } else {
                open(object, libc::RTLD_NOLOAD | libc::RTLD_LAZY)
            }
        };
        let found = |handle: *mut c_void| {
            if handle.is_null() {
                0
            } else {
                find(handle, name.as_ptr()).addr()
            }
        };
        let mut info: libc::Dl_info = core::mem::zeroed();
        let own = match caller {
            0 => SEEN.load(Ordering::Relaxed) as *mut c_void,
            _ if tell(caller as *const c_void, &mut info) == 0 => core::ptr::null_mut(),
            _ => opened(info.dli_fname),
        };
        let address = found(own);
        if address != 0 {
            SEEN.store(own.addr(), Ordering::Relaxed);
            return address;
        }
        match find(libc::RTLD_DEFAULT, name.as_ptr()).addr() {
            0 => found(opened(c"libstdc++.so.6".as_ptr())),
            address => address,
        }
    }
}

/// The personality routine of [`new_failed_nothrow`]: that of the C++ runtime, which the program
/// may have loaded after this library.
pub extern "C" fn personality(
    version: c_int,
    actions: c_int,
    class: u64,
    exception: *mut c_void,
    context: *mut c_void,
) -> c_int {
    type Routine = extern "C" fn(c_int, c_int, u64, *mut c_void, *mut c_void) -> c_int;
    let routine = runtime_function!("__gxx_personality_v0", c"__gxx_personality_v0", 0);
    if routine == 0 {
        die!(
            "operator new: the new-handler threw, and the program has no C++ runtime to catch with"
        );
    }
    // SAFETY: the routine of the C++ ABI with this name has this type.
    let routine: Routine = unsafe { core::mem::transmute(routine) };
    routine(version, actions, class, exception, context)
}

/// Called when there is no memory for `size` bytes, which code at `caller` wants: returns the
/// program's new-handler, or 0.
///
/// With `experimental_infallible_new` the process ends here, unless the program's own function for
/// such lines returns: as in jemalloc, `new` is then null.
pub extern "C" fn handler(size: usize, caller: usize) -> usize {
    if api::options().experimental_infallible_new {
        fault::tell(format_args!(
            "operator new: out of memory: {size} bytes wanted, and the option experimental_infallible_new is on"
        ));
        return 0;
    }
    let get = runtime_function!("_ZSt15get_new_handlerv", c"_ZSt15get_new_handlerv", caller);
    if get == 0 {
        return 0;
    }
    // SAFETY: std::get_new_handler takes nothing and returns the handler's address.
    let get: extern "C" fn() -> usize = unsafe { core::mem::transmute(get) };
    get()
}

/// The function that throws `std::bad_alloc`: normally the runtime's. A static program may lack it,
/// if nothing else uses it, but has the parts it is made of. 0 where nothing is thrown.
pub extern "C" fn thrower(caller: usize) -> usize {
    if api::options().experimental_infallible_new {
        return 0;
    }
    let whole = runtime_function!(
        "_ZSt17__throw_bad_allocv",
        c"_ZSt17__throw_bad_allocv",
        caller
    );
    if whole != 0 {
        return whole;
    }
    let parts = [
        symbol_address!(weak "__cxa_allocate_exception"),
        symbol_address!(weak "__cxa_throw"),
        symbol_address!(weak "_ZTVSt9bad_alloc"),
        symbol_address!(weak "_ZTISt9bad_alloc"),
    ];
    if !parts.iter().all(|&part| part != 0) {
        die!("operator new: out of memory, and the program has no C++ runtime to throw with");
    }
    (throw_bad_alloc as extern "C" fn() -> !) as usize
}

/// Ends the exception that a handler threw.
pub extern "C" fn swallow(exception: *mut c_void) {
    let begin = runtime_function!("__cxa_begin_catch", c"__cxa_begin_catch", 0);
    let end = runtime_function!("__cxa_end_catch", c"__cxa_end_catch", 0);
    if begin == 0 || end == 0 {
        die!(
            "operator new: the new-handler threw, and the program has no C++ runtime to catch with"
        );
    }
    // SAFETY: the functions of the C++ ABI with these names have these types.
    unsafe {
        let begin: extern "C" fn(*mut c_void) -> *mut c_void = core::mem::transmute(begin);
        let end: extern "C" fn() = core::mem::transmute(end);
        begin(exception);
        end();
    }
}
