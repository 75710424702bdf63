//! What is said when another process has the address.
//!
//! A program's children inherit its options, and so its address. The process that has it says once
//! that the others have no server, and they are silent.
//!
//! The others tell it by a *mark*: an abstract socket with room for one client, which is never
//! accepted. The system keeps its place in the queue when the client has gone. Where the address is
//! not one of ours, the first process that finds it taken says so, and keeps a mark that has its
//! client.

use crate::socket::{self, Socket};
use crate::{address, say};
use core::ffi::CStr;
use mallard_core::sys::proc;
use mallard_core::sys::sockets::MARK;

/// Milliseconds for which the process that serves waits with its line. A process that starts a few
/// children and then becomes another program is a script, and nobody asks it for metrics.
const PATIENCE_MS: u64 = 1000;
/// Clients that wait besides the first.
const NO_MORE: i32 = 0;
const EACH: &str = "; http:unix:/tmp/%p.sock gives each process a server";

/// The mark of an address; `None` if it has one already.
pub fn mark(text: &[u8]) -> Option<Socket> {
    Socket::listen(&address::mark(text)?, NO_MORE, MARK).ok()
}

/// The line that the process that serves owes.
pub struct Notice {
    mark: Option<Socket>,
    due_ms: Option<u64>,
}

impl Notice {
    pub fn of(mark: Option<Socket>) -> Notice {
        Notice { mark, due_ms: None }
    }

    /// The mark, as long as nobody has found the address taken.
    pub fn awaited(&self) -> Option<&Socket> {
        let mark = self.mark.as_ref()?;
        (self.due_ms.is_none() && mark.is_ours()).then_some(mark)
    }

    /// When the line is to be said.
    pub fn due_ms(&self) -> Option<u64> {
        self.mark.as_ref().and(self.due_ms)
    }

    /// Takes notice of the mark's client, and says the line when it is due.
    pub fn pass(&mut self, text: &[u8], has_client: bool, now_ms: u64) {
        if has_client {
            self.due_ms = Some(now_ms + PATIENCE_MS);
        } else if self.due_ms().is_some_and(|due| now_ms >= due)
            && let Some(mark) = self.mark.take()
        {
            // It stays, with its client: nobody says more.
            mark.into_raw();
            say(text, ": serves this process, not its children", EACH);
        }
    }
}

/// Says that the address is taken, unless the process that has it does.
pub fn say_taken(text: &[u8]) {
    let place = || address::mark(text).map(|mark| socket::connects(&mark));
    let is_told = is_inherited(text) && matches!(place(), Some(Ok(_) | Err(libc::EAGAIN)));
    if is_told {
        return;
    }
    if let Some(mark) = mark(text) {
        // The fork's child closes it, and the end of the process.
        mark.into_raw();
        place();
    }
    let has_own = address::is_of_one_process(text);
    say(text, ": in use", if has_own { "" } else { EACH });
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
