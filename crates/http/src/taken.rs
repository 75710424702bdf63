//! What is said when another process has the address.
//!
//! A program's children inherit its options, and so its address. Of a whole family one process says
//! that it has no server, and the others are silent.
//!
//! A *mark* remembers that it was said: an abstract socket with room for one client. The process
//! that has the address keeps it; if that is none of ours, the first one that finds the address
//! taken. The first process that connects speaks. The system keeps its place in the queue when it
//! has gone.

use crate::socket::{self, Address, Socket};
use crate::{address, say};
use core::ffi::CStr;
use mallard_core::sys::proc;
use mallard_core::sys::sockets::MARK;

/// Clients that wait besides the first.
const NO_MORE: i32 = 0;
const FAMILIES: &str = "; http:unix:/tmp/%p.sock gives each process a server, and its children";

/// Keeps the mark of an address as long as the process lives; it may be there already.
pub fn mark(text: &[u8]) {
    if let Some(Ok(mark)) = address::mark(text).map(|mark| Socket::listen(&mark, NO_MORE, MARK)) {
        // The fork's child closes it, and the end of the process.
        mark.into_raw();
    }
}

/// Says that the address is taken, unless a relative has said it.
pub fn say_once(text: &[u8]) {
    let place = |mark: &Address| socket::connects(mark);
    let known = address::mark(text).map(|at| {
        let taken = place(&at);
        let has_no_mark = matches!(taken, Err(error) if error != libc::EAGAIN);
        if has_no_mark {
            mark(text);
            let _ = place(&at);
        }
        taken == Err(libc::EAGAIN) && is_inherited(text)
    });
    if known != Some(true) {
        let has_own = address::is_of_one_process(text);
        say(text, ": in use", if has_own { "" } else { FAMILIES });
    }
}

/// Whether the parent was started with this option, too.
fn is_inherited(text: &[u8]) -> bool {
    // SAFETY: the call has no preconditions.
    let parent = unsafe { libc::syscall(libc::SYS_getppid) } as u32;
    let path = address::environment_of(parent);
    let Ok(path) = CStr::from_bytes_until_nul(&path) else {
        return false;
    };
    let (mut room, mut matched, mut is_found) = ([0; 1024], 0, false);
    let wanted = || b"http:".iter().chain(text);
    proc::read(path, &mut room, |piece| {
        for &byte in piece {
            let next = wanted().nth(matched);
            is_found |= next.is_none() && matches!(byte, 0 | b',');
            matched = match next {
                Some(&next) if next == byte => matched + 1,
                _ => usize::from(byte == b'h'),
            };
        }
    });
    is_found
}
