//! C libraries before glibc 2.34, whose threads and loader are libraries of their own; used only in
//! `libmallard.so`.
//!
//! There a process has `pthread_create` only if something in it is linked with `libpthread`, and
//! `dlsym` only with `libdl`. Mallard must not load either into processes that need neither. So it
//! is linked with `--wrap` (`build.rs`): what refers to one of these functions finds a function of
//! this file instead, and `__real_` before the name makes a weak reference to the C library's own.
//! The archive refers to the C library's functions directly, so that a static link takes them in.
//!
//! Without `libpthread` a process begins with one thread, whose end nothing needs to know. Its key
//! is none of the C library's. If `libpthread` is loaded later, the first of its threads finds its
//! functions by a search of all objects and makes the key. The search neither allocates nor waits
//! for a `dlopen` in progress, which may wait for the thread. The background thread is created by
//! a `libpthread` that was loaded later, too. Without one it cannot exist, and a line says so to
//! those that asked for it.

use crate::arch::jump_to;
use crate::deepbind;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt::Write;
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use mallard_core::symbol_address;
use mallard_core::sys::fault::MessageLine;

/// The C library's function of this type, if the process has it.
macro_rules! real {
    ($name:literal as $type:ty) => {{
        let address = symbol_address!(weak $name);
        // SAFETY: 0, or the function of this name, which has this type.
        unsafe { transmute::<usize, Option<$type>>(address) }
    }};
}

/// Names a function for the linker's `--defsym`, by a symbol that only the object itself sees.
macro_rules! stand_in {
    ($name:literal: $function:ident) => {
        core::arch::global_asm!(
            concat!(".pushsection .text.", $name, ",\"ax\",%progbits"),
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", %function"),
            concat!($name, ":"),
            jump_to!("{function}"),
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            function = sym $function,
        );
    };
}

stand_in!("mallard_pthread_key_create": key_create);
stand_in!("mallard_pthread_setspecific": set_specific);
stand_in!("mallard_pthread_attr_setstacksize": set_stack_size);
stand_in!("mallard_pthread_create": create);
stand_in!("mallard_pthread_join": join);
stand_in!("mallard_dlsym": look_up);

type Destructor = unsafe extern "C" fn(*mut c_void);
type KeyCreate = unsafe extern "C" fn(*mut libc::pthread_key_t, Destructor) -> c_int;
type SetSpecific = unsafe extern "C" fn(libc::pthread_key_t, *const c_void) -> c_int;

/// The destructor of the key that a process asked for before it had `libpthread`.
static DESTRUCTOR: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Whether a thread, the first, has set that key's value.
static IS_SET: AtomicBool = AtomicBool::new(false);
/// The key that stands for it once there is a `libpthread`, and its `pthread_setspecific`, or 0.
static LATER_KEY: AtomicU32 = AtomicU32::new(NO_KEY);
static LATER_SET: AtomicUsize = AtomicUsize::new(0);
const NO_KEY: libc::pthread_key_t = libc::pthread_key_t::MAX;

extern "C" fn key_create(key: *mut libc::pthread_key_t, destructor: Destructor) -> c_int {
    match real!("__real_pthread_key_create" as KeyCreate) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { real(key, destructor) },
        None => {
            DESTRUCTOR.store(destructor as *mut c_void, Ordering::Release);
            // SAFETY: the caller gave room for a key.
            unsafe { *key = 0 };
            0
        }
    }
}

extern "C" fn set_specific(key: libc::pthread_key_t, value: *const c_void) -> c_int {
    match real!("__real_pthread_setspecific" as SetSpecific) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { real(key, value) },
        None => set_without_key(value),
    }
}

#[cold]
#[inline(never)]
fn set_without_key(value: *const c_void) -> c_int {
    if !IS_SET.swap(true, Ordering::Relaxed) {
        return 0;
    }
    if LATER_SET.load(Ordering::Acquire) == 0 && !make_key() {
        return libc::ENOSYS;
    }
    let (key, set) = (
        LATER_KEY.load(Ordering::Relaxed),
        LATER_SET.load(Ordering::Relaxed),
    );
    // SAFETY: the function of this name, which has this type; `libpthread` is never unloaded. The
    // key's destructor takes the value.
    unsafe { transmute::<usize, SetSpecific>(set)(key, value) }
}

/// Makes the key of a `libpthread` that was loaded later; returns whether there is one.
fn make_key() -> bool {
    type Delete = unsafe extern "C" fn(libc::pthread_key_t) -> c_int;
    let find = |name| deepbind::find_anywhere(name, false);
    let (create, set) = (find(c"pthread_key_create"), find(c"pthread_setspecific"));
    let delete = find(c"pthread_key_delete");
    if [create, set, delete].contains(&0) {
        return false;
    }
    let mut key = NO_KEY;
    // SAFETY: the functions of these names, which have these types. Nobody has the key that is
    // deleted, because another thread's came first.
    unsafe {
        let destructor = DESTRUCTOR.load(Ordering::Acquire);
        let destructor = transmute::<*mut c_void, Destructor>(destructor);
        if transmute::<usize, KeyCreate>(create)(&raw mut key, destructor) != 0 {
            return false;
        }
        let order = Ordering::Relaxed;
        if LATER_KEY
            .compare_exchange(NO_KEY, key, order, order)
            .is_err()
        {
            transmute::<usize, Delete>(delete)(key);
        }
    }
    LATER_SET.store(set, Ordering::Release);
    true
}

/// The function of this type for creating threads: `$weak` if it is not 0, or that of a
/// `libpthread` which was loaded later.
macro_rules! of_threads {
    ($weak:literal, $name:literal as $type:ty) => {
        real!($weak as $type).or_else(|| {
            let address = loaded_later($name);
            // SAFETY: 0, or the function of this name, which has this type.
            unsafe { transmute::<usize, Option<$type>>(address) }
        })
    };
}

/// Whether the line was printed.
static SAID: AtomicBool = AtomicBool::new(false);

#[cold]
#[inline(never)]
fn loaded_later(name: &CStr) -> usize {
    let address = deepbind::find_anywhere(name, false);
    if address == 0 && !SAID.swap(true, Ordering::Relaxed) {
        let mut line = MessageLine::new();
        let _ = line.write_str(
            "mallard: no background thread: this process has no libpthread, which the C library needs for threads",
        );
        line.emit();
    }
    address
}

extern "C" fn set_stack_size(attributes: *mut libc::pthread_attr_t, bytes: usize) -> c_int {
    type Real = unsafe extern "C" fn(*mut libc::pthread_attr_t, usize) -> c_int;
    match of_threads!(
        "__real_pthread_attr_setstacksize",
        c"pthread_attr_setstacksize" as Real
    ) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { real(attributes, bytes) },
        None => libc::ENOSYS,
    }
}

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

extern "C" fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    type Real = unsafe extern "C" fn(
        *mut libc::pthread_t,
        *const libc::pthread_attr_t,
        Start,
        *mut c_void,
    ) -> c_int;
    match of_threads!("__real_pthread_create", c"pthread_create" as Real) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { real(thread, attributes, start, argument) },
        None => libc::ENOSYS,
    }
}

extern "C" fn join(thread: libc::pthread_t, result: *mut *mut c_void) -> c_int {
    type Real = unsafe extern "C" fn(libc::pthread_t, *mut *mut c_void) -> c_int;
    match of_threads!("__real_pthread_join", c"pthread_join" as Real) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { real(thread, result) },
        None => libc::ENOSYS,
    }
}

/// `dlsym`. A process without it can get `libdl` with a plug-in of the C library. Then nothing but
/// the plug-in's objects sees the functions of `libdl`, and a search of all objects finds them.
extern "C" fn look_up(handle: *mut c_void, name: *const c_char) -> usize {
    type Real = unsafe extern "C" fn(*mut c_void, *const c_char) -> usize;
    match real!("__real_dlsym" as Real) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { real(handle, name) },
        None => {
            let also_ours = handle != libc::RTLD_NEXT;
            // SAFETY: the caller's C string.
            deepbind::find_anywhere(unsafe { CStr::from_ptr(name) }, also_ours)
        }
    }
}
