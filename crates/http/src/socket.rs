//! The server's sockets: one that listens, and a few clients.
//!
//! These are plain system calls, as those of `mallard_core::sys`. Nothing here waits but [`wait`]
//! and [`Socket::write`].

use core::mem::MaybeUninit;
use core::ptr::{null, null_mut};
use mallard_core::sys::descriptor::{Descriptor, close};
use mallard_core::sys::errno;
pub use mallard_core::sys::sockets::{CLIENTS, LISTENER, MARK, SOCKETS_MAX};
use mallard_core::sys::sockets::{closes, opened};

/// An address for the kernel: its family, and what follows.
#[derive(PartialEq, Eq, Debug)]
pub struct Address {
    bytes: [u8; Address::BYTES_MAX],
    len: usize,
}

impl Address {
    /// `sizeof(sockaddr_un)`.
    const BYTES_MAX: usize = 110;

    pub fn ip(host: [u8; 4], port: u16) -> Address {
        let mut address = Address::of(libc::AF_INET);
        address.push(&port.to_be_bytes());
        address.push(&host);
        address.push(&[0; 8]);
        address
    }

    /// A name in the file system, or an abstract one, which begins with a zero. `None` if it is too
    /// long.
    pub fn unix(name: &[u8]) -> Option<Address> {
        let mut address = Address::of(libc::AF_UNIX);
        address.push(name);
        // The name of a file needs a zero at its end.
        (address.len < Address::BYTES_MAX && name.len() > 1).then(|| {
            let is_abstract = name.first() == Some(&0);
            address.len += usize::from(!is_abstract);
            address
        })
    }

    #[inline(always)]
    fn of(family: i32) -> Address {
        let mut address = Address {
            bytes: [0; Address::BYTES_MAX],
            len: 0,
        };
        address.push(&(family as u16).to_ne_bytes());
        address
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = self.bytes.iter_mut().skip(self.len);
        room.zip(bytes).for_each(|(to, &from)| *to = from);
        self.len += bytes.len();
    }

    fn family(&self) -> i32 {
        i32::from(u16::from_ne_bytes([self.bytes[0], self.bytes[1]]))
    }

    /// The file, if it is one.
    fn file(&self) -> Option<&[u8]> {
        let name = self.bytes.get(2..)?;
        (self.family() == libc::AF_UNIX && name.first() != Some(&0)).then_some(name)
    }
}

/// An open socket, which does not block.
pub struct Socket {
    at: Descriptor,
    place: usize,
}

impl Socket {
    /// Moves a new socket to a high number, and registers it.
    fn keep(low: i32, place: usize) -> Option<Socket> {
        let at = Descriptor::raise(low)?;
        opened(place, at);
        Some(Socket { at, place })
    }

    /// Listens, with so many clients that may wait besides one. The system's error number on
    /// failure. A socket file at which nothing listens any more is replaced.
    pub fn listen(address: &Address, waiting_max: i32, place: usize) -> Result<Socket, i32> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let (at, len) = (address.bytes.as_ptr(), address.len);
        // SAFETY: the kernel reads these bytes only, all of them there.
        unsafe {
            let low = called(libc::syscall(libc::SYS_socket, address.family(), kind, 0))?;
            let on = 1i32;
            libc::syscall(
                libc::SYS_setsockopt,
                low,
                libc::SOL_SOCKET,
                libc::SO_REUSEADDR,
                &raw const on,
                size_of::<i32>(),
            );
            let bind = || called(libc::syscall(libc::SYS_bind, low, at, len));
            let mut bound = bind();
            if bound == Err(libc::EADDRINUSE)
                && let Some(file) = address.file()
                && connects(address) == Err(libc::ECONNREFUSED)
            {
                libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, file.as_ptr(), 0);
                bound = bind();
            }
            let listening =
                bound.and_then(|_| called(libc::syscall(libc::SYS_listen, low, waiting_max)));
            if let Err(error) = listening {
                close(low);
                return Err(error);
            }
            Socket::keep(low, place).ok_or(libc::EMFILE)
        }
    }

    /// The next client, if one waits and is of the same user, or root, or comes by the network.
    pub fn accept(&self, place: usize) -> Option<Socket> {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let none = core::ptr::null_mut::<u8>();
        // SAFETY: no address is asked for.
        let low = unsafe {
            let listener = self.at.number;
            called(libc::syscall(
                libc::SYS_accept4,
                listener,
                none,
                none,
                flags,
            ))
            .ok()?
        };
        if !is_welcome(low) {
            close(low);
            return None;
        }
        Socket::keep(low, 1 + place)
    }

    /// Reads what is there. `Ok(0)` at the end, `Err` if nothing is there yet or the other side has
    /// gone.
    pub fn read(&self, room: &mut [u8]) -> Result<usize, i32> {
        // SAFETY: the kernel writes at most so many bytes.
        unsafe {
            let (at, len) = (room.as_mut_ptr(), room.len());
            called(libc::syscall(libc::SYS_read, self.at.number, at, len)).map(|n| n as usize)
        }
    }

    /// Writes all of it, and waits while the other side does not read; false if it does not in
    /// so many milliseconds, or has gone.
    pub fn write(&self, mut bytes: &[u8], patience_ms: u64) -> bool {
        while !bytes.is_empty() {
            let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
            let none = core::ptr::null::<u8>();
            // SAFETY: the kernel reads these bytes only.
            let sent = unsafe {
                let (at, len) = (bytes.as_ptr(), bytes.len());
                let socket = self.at.number;
                called(libc::syscall(
                    libc::SYS_sendto,
                    socket,
                    at,
                    len,
                    flags,
                    none,
                    0,
                ))
            };
            match sent {
                Ok(n) => bytes = bytes.get(n as usize..).unwrap_or(&[]),
                Err(libc::EINTR) => {}
                Err(libc::EAGAIN) => {
                    let mut poll = [libc::pollfd {
                        fd: self.at.number,
                        events: libc::POLLOUT,
                        revents: 0,
                    }];
                    if patience_ms == 0 || !poll_all(&mut poll, patience_ms as i32) {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
        true
    }

    /// Tells the other side that nothing more comes; it may go on to send. False if it has gone.
    #[inline(always)]
    pub fn end_writing(&self) -> bool {
        // SAFETY: the socket is ours.
        unsafe { libc::syscall(libc::SYS_shutdown, self.at.number, libc::SHUT_WR) == 0 }
    }

    /// Whether the program has not closed it.
    pub fn is_ours(&self) -> bool {
        self.at.is_ours()
    }

    /// The socket as a number, for another thread, to which [`Socket::from_raw`] gives it.
    pub fn into_raw(self) -> usize {
        core::mem::ManuallyDrop::new(self).at.number as usize
    }

    #[inline(always)]
    pub fn from_raw(raw: usize, place: usize) -> Socket {
        Socket {
            at: Descriptor::of(raw as i32),
            place,
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        closes(self.place);
        self.at.close();
    }
}

/// The result of a system call of the C library's function for them.
// Inlined, as what else is marked so here: each function of the library has a row for unwinders.
#[inline(always)]
fn called(result: i64) -> Result<i32, i32> {
    match result {
        0.. => Ok(result as i32),
        _ => Err(errno::get()),
    }
}

/// Connects to a name, and goes: `Err(ECONNREFUSED)` if nothing listens there, `Err(EAGAIN)` if no
/// more clients may wait.
pub fn connects(address: &Address) -> Result<i32, i32> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the kernel reads these bytes only, all of them there.
    unsafe {
        let socket = called(libc::syscall(libc::SYS_socket, libc::AF_UNIX, kind, 0))?;
        let (at, len) = (address.bytes.as_ptr(), address.len);
        let connected = called(libc::syscall(libc::SYS_connect, socket, at, len));
        close(socket);
        connected
    }
}

/// Whether a client is of this process's user, or root; those by the network have no user.
fn is_welcome(socket: i32) -> bool {
    let mut peer = MaybeUninit::<libc::ucred>::uninit();
    let mut len = size_of::<libc::ucred>() as u32;
    // SAFETY: the kernel writes at most `len` bytes, and all of them if the client has a user.
    unsafe {
        let known = libc::syscall(
            libc::SYS_getsockopt,
            socket,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            peer.as_mut_ptr(),
            &raw mut len,
        );
        if known != 0 || len as usize != size_of::<libc::ucred>() {
            return false;
        }
        let peer = peer.assume_init();
        let by_network = peer.uid == u32::MAX;
        let own = libc::syscall(libc::SYS_geteuid) as u32;
        by_network || peer.uid == own || peer.uid == 0
    }
}

/// Waits for one of them; returns whether there is news before the time is over (-1: none).
#[inline(always)]
fn poll_all(sockets: &mut [libc::pollfd], ms: i32) -> bool {
    let mut time = libc::timespec {
        tv_sec: (ms / 1000).into(),
        tv_nsec: libc::c_long::from(ms % 1000) * 1_000_000,
    };
    let time = if ms < 0 { null_mut() } else { &raw mut time };
    let no_mask: *const libc::sigset_t = null();
    let (at, count) = (sockets.as_mut_ptr(), sockets.len());
    // SAFETY: the kernel writes these records, and the time, only.
    unsafe { libc::syscall(libc::SYS_ppoll, at, count, time, no_mask, 0) > 0 }
}

/// Waits until a client wants to connect, or one has sent something or gone, or the mark has a
/// client. Returns which: the first one that listens, then the clients, then the mark.
pub fn wait(
    listener: &Socket,
    clients: &[Option<&Socket>; CLIENTS],
    mark: Option<&Socket>,
    ms: Option<u64>,
) -> [bool; SOCKETS_MAX] {
    let number = |socket: Option<&Socket>| socket.map_or(-1, |socket| socket.at.number);
    let mut polls = [libc::pollfd {
        fd: number(Some(listener)),
        events: libc::POLLIN,
        revents: 0,
    }; SOCKETS_MAX];
    for (poll, socket) in polls.iter_mut().skip(1).zip(clients.iter().chain([&mark])) {
        poll.fd = number(*socket);
    }
    let ms = ms.map_or(-1, |ms| ms.min(i32::MAX as u64) as i32);
    poll_all(&mut polls, ms);
    polls.map(|poll| poll.revents != 0)
}
