//! Where messages for people go: standard error, or the program's own function.
//!
//! Users of jemalloc set `malloc_message` where file descriptor 2 must not be written to. The C
//! front end (crates/mallard-c) defines the symbol, with and without jemalloc's prefix; it is read
//! through the global offset table, so that the program's own definition or copy is used. The
//! function is called in the middle of our work, perhaps with locks held: it must not allocate.

use super::errno::KeepErrno;
use core::ffi::{CStr, c_char, c_void};

type Handler = unsafe extern "C" fn(*mut c_void, *const c_char);

/// The value of the pointer-sized symbol `$name`, which the C front end defines.
#[cfg(feature = "c-symbols")]
#[macro_export]
macro_rules! c_symbol {
    ($name:literal) => {{
        // Through the global offset table: the program's own symbol, if there is one, replaces the
        // front end's, even if it only exists once everything is loaded.
        let symbol = $crate::symbol_address!($name) as *const usize;
        // SAFETY: by its documentation the symbol is as large as a pointer.
        unsafe { symbol.read_volatile() }
    }};
}

/// The program's function, if it has set one.
fn handler() -> Option<Handler> {
    #[cfg(feature = "c-symbols")]
    {
        let set = [c_symbol!("malloc_message"), c_symbol!("je_malloc_message")];
        let at = set.into_iter().find(|&at| at != 0)?;
        // SAFETY: not null; by its documentation the symbol is a pointer to such a function.
        Some(unsafe { core::mem::transmute::<usize, Handler>(at) })
    }
    #[cfg(not(feature = "c-symbols"))]
    None
}

/// Emits the text, which must include its own line ends.
#[cold]
#[inline(never)]
pub fn say(text: &CStr) {
    let _keep = KeepErrno::new();
    if let Some(handler) = handler() {
        // SAFETY: the program's own function, called as its documentation says.
        return unsafe { handler(core::ptr::null_mut(), text.as_ptr()) };
    }
    let mut rest = text.to_bytes();
    while !rest.is_empty() {
        // A plain system call, because the C library's is a cancellation point.
        // SAFETY: the kernel reads only the text, whose length is given.
        let got = unsafe { libc::syscall(libc::SYS_write, 2, rest.as_ptr(), rest.len()) };
        match usize::try_from(got) {
            Ok(0) => return,
            Ok(n) => rest = rest.get(n..).unwrap_or(&[]),
            Err(_) if super::errno::get() == libc::EINTR => {}
            // Standard error is closed or full: there is nowhere left to report to.
            Err(_) => return,
        }
    }
}
