//! The sockets of the server in the process (the crate `mallard-http`), for the child of a fork,
//! which closes its copies: so the parent's end closes a connection.

use super::descriptor::Descriptor;
use crate::sys::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Sockets that are open at a time: the one that listens, its clients, and the mark of its address.
pub const SOCKETS_MAX: usize = 1 + CLIENTS + 1;
pub const CLIENTS: usize = 4;
/// The places of those that are no clients.
pub const LISTENER: usize = 0;
pub const MARK: usize = SOCKETS_MAX - 1;

/// All open sockets: the number, plus 1, and the file's number.
static OPEN: [(AtomicU32, AtomicU64); SOCKETS_MAX] =
    [const { (AtomicU32::new(0), AtomicU64::new(0)) }; SOCKETS_MAX];
/// Whether a socket was ever open.
static ARE_ANY: AtomicBool = AtomicBool::new(false);

/// Registers an open socket at a place.
pub fn opened(place: usize, at: Descriptor) {
    ARE_ANY.store(true, Ordering::Relaxed);
    if let Some((number, file)) = OPEN.get(place) {
        file.store(at.file(), Ordering::Relaxed);
        number.store(at.number as u32 + 1, Ordering::Relaxed);
    }
}

/// The socket at this place is about to be closed.
pub fn closes(place: usize) {
    if let Some((number, _)) = OPEN.get(place) {
        number.store(0, Ordering::Relaxed);
    }
}

/// In the child of a fork: closes the parent's sockets. Returns whether there were any.
pub fn after_fork() -> bool {
    ARE_ANY.load(Ordering::Relaxed) && leave_parents()
}

#[cold]
#[inline(never)]
fn leave_parents() -> bool {
    let (mut were_any, mut place) = (false, 0);
    while let Some(left) = leave(place) {
        were_any |= left;
        place += 1;
    }
    were_any
}

/// Closes the socket at a place; `None` if there is no such place.
#[inline(never)]
fn leave(place: usize) -> Option<bool> {
    let (number, file) = OPEN.get(place)?;
    let number = number.swap(0, Ordering::Relaxed);
    if number != 0 {
        let at = Descriptor::of(number as i32 - 1);
        // The parent may have closed it, and opened another file.
        if at.file() == file.load(Ordering::Relaxed) {
            at.close();
        }
    }
    Some(number != 0)
}
