//! The server in the process, which the option `http` asks for: metrics, reports and heap profiles
//! by HTTP.
//!
//! `libmallard.so` starts it. A Rust program that has Mallard as its allocator calls [`begin`]
//! once, early in `main`.
//!
//! One thread listens, reads requests and answers them, one at a time. It never allocates, takes no
//! signals and has no cache. A client can cost the process no more than its connection: there are
//! [`CLIENTS`] at most, each has `REQUEST_BYTES_MAX` and `REQUEST_TIMEOUT_MS` to ask, and as
//! long to read the answer. When another connects, the longest-silent one is dropped.
//!
//! - `address` reads the option, `request` what a client asks; `answer` has the answers.
//! - `socket` has the system calls; `taken` says once that another process has the address.
//!
//! The server listens on this machine unless the option names another address, and on sockets in
//! the file system it serves only the same user and root. Clients can only read, unless the option
//! `http_control` is on.
//!
//! The child of a fork has no server, unless the option gives each process an address of its own. A
//! program that closes our descriptors ends the server.

#![cfg_attr(not(test), no_std)]

mod address;
mod answer;
mod request;
mod socket;
mod taken;

use answer::{Answer, Later};
use core::ffi::{CStr, c_void};
use mallard_core::api;
use mallard_core::sys::errno::KeepErrno;
use mallard_core::sys::{message, time, tls};
use request::Parsed;
use socket::{CLIENTS, LISTENER, MARK, Socket};
use taken::Notice;

/// Bytes of the longest request.
const REQUEST_BYTES_MAX: usize = 4096;
/// Milliseconds in which a client has to send its request.
const REQUEST_TIMEOUT_MS: u64 = 5000;
/// Clients that the system lets wait until they are accepted.
const CLIENTS_WAITING_MAX: i32 = 16;

/// Starts the server if the option `http` asks for it, also in children of forks that have an
/// address of their own. This may allocate.
pub fn begin() {
    if !api::options().http.is_empty() {
        start();
        api::on_child(|| {
            if address::is_of_one_process(api::options().http.as_bytes()) {
                start();
            }
        });
    }
}

fn start() {
    let _keep = KeepErrno::new();
    let text = api::options().http.as_bytes();
    // SAFETY: getpid has no preconditions.
    let Some(address) = address::parse(text, unsafe { libc::getpid() } as u32) else {
        return say(text, ": no address; valid: ", address::VALID);
    };
    match Socket::listen(&address, CLIENTS_WAITING_MAX, LISTENER) {
        Err(libc::EADDRINUSE) => taken::say_taken(text),
        Err(libc::EACCES | libc::EPERM) => say(text, ": not permitted", ""),
        Err(_) => say(text, ": the system refuses", ""),
        Ok(listener) => {
            let is_shared = !address::is_of_one_process(text);
            let mark = is_shared.then(|| taken::mark(text)).flatten();
            // The thread's own from here on: both numbers, 0 for none.
            let mark = mark.map_or(0, Socket::into_raw);
            let both = listener.into_raw() | mark << 32;
            if api::create_thread(run, both as *mut c_void).is_none() {
                drop(sockets_in(both));
                say(text, ": the system refuses", "");
            }
        }
    }
}

/// The listening socket and the mark of its address, which a thread is given as one number.
#[inline(always)]
fn sockets_in(both: usize) -> (Socket, Option<Socket>) {
    let mark = both >> 32;
    let mark = (mark != 0).then(|| Socket::from_raw(mark, MARK));
    (Socket::from_raw(both & u32::MAX as usize, LISTENER), mark)
}

/// Prints `mallard: http:TEXT`, and what is wrong.
fn say(text: &[u8], what: &str, more: &str) {
    let (mut line, mut len) = ([0u8; 512], 0);
    for part in [
        b"mallard: http:",
        text,
        what.as_bytes(),
        more.as_bytes(),
        b"\n",
    ] {
        for &byte in part {
            // The last byte stays zero.
            if len < line.len() - 1 {
                line[len] = byte;
                len += 1;
            }
        }
    }
    message::say(CStr::from_bytes_until_nul(&line).unwrap_or_default());
}

/// A client that has not been answered.
struct Client {
    socket: Socket,
    since_ms: u64,
    len: usize,
    /// What it asked for, if that takes time.
    later: Option<Later>,
    /// Whether it has its answer, and may still send.
    is_answered: bool,
}

impl Client {
    /// When its time is over: that to ask, or that which it asked for.
    fn due_ms(&self) -> u64 {
        let later = self.later.as_ref().map(|later| later.at_ms);
        later.unwrap_or(self.since_ms + REQUEST_TIMEOUT_MS)
    }

    /// Answers if what it asked for is due.
    fn end(&mut self) {
        if let Some(Later { shown, since, .. }) = self.later.take() {
            let mut answer = Answer::to(&self.socket);
            answer.pass(shown, Some(&since));
            answer.flush();
        }
    }
}

extern "C" fn run(both: *mut c_void) -> *mut c_void {
    // Blocks that the C library frees when this thread ends then go straight to an arena.
    tls::set(tls::address_of(&tls::ENDED));
    // SAFETY: the name is a C string.
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, c"mallard-http".as_ptr()) };
    let (listener, mark) = sockets_in(both.addr());
    let mut notice = Notice::of(mark);
    let mut requests = [[0; REQUEST_BYTES_MAX]; CLIENTS];
    let mut clients = [const { None }; CLIENTS];
    // The program may close our descriptors. Others may have their numbers now.
    while listener.is_ours() {
        round(&listener, &mut notice, &mut clients, &mut requests);
    }
    core::ptr::null_mut()
}

type Clients = [Option<Client>; CLIENTS];

/// Waits until a connection is ready, and serves those that are.
fn round(
    listener: &Socket,
    notice: &mut Notice,
    clients: &mut Clients,
    requests: &mut [[u8; REQUEST_BYTES_MAX]; CLIENTS],
) {
    let now = time::now_ms_exact();
    let dues = clients.iter().flatten().map(Client::due_ms);
    let first_due = dues.chain(notice.due_ms()).min();
    let sockets = clients.each_ref().map(|c| c.as_ref().map(|c| &c.socket));
    let news = socket::wait(
        listener,
        &sockets,
        notice.awaited(),
        first_due.map(|due| due.saturating_sub(now)),
    );
    let [calls, news @ .., is_marked] = news;
    let now = time::now_ms_exact();
    notice.pass(api::options().http.as_bytes(), is_marked, now);
    for ((slot, room), is_news) in clients.iter_mut().zip(requests).zip(news) {
        let Some(client) = slot else { continue };
        let is_due = now >= client.due_ms();
        if is_due && client.socket.is_ours() {
            client.end();
        }
        if is_due || !client.socket.is_ours() || is_news && !serve(client, room, now) {
            *slot = None;
        }
    }
    if calls && listener.is_ours() {
        // The longest-silent one is dropped; those that wait for an answer come last.
        let rank = |slot: &Option<Client>| {
            let client = slot.as_ref()?;
            Some((client.later.is_some(), client.since_ms))
        };
        let place = (0..CLIENTS).min_by_key(|&i| clients.get(i).and_then(rank));
        let Some((place, slot)) = place.and_then(|i| Some((i, clients.get_mut(i)?))) else {
            return;
        };
        *slot = None;
        *slot = listener.accept(place).map(|socket| Client {
            socket,
            since_ms: now,
            len: 0,
            later: None,
            is_answered: false,
        });
    }
}

/// Reads what a client has sent, and answers it if that is a request. Returns whether the client
/// may go on.
fn serve(client: &mut Client, room: &mut [u8; REQUEST_BYTES_MAX], now_ms: u64) -> bool {
    let is_waiting = client.later.is_some() || client.is_answered;
    let free = room
        .get_mut(if is_waiting { 0 } else { client.len }..)
        .unwrap_or_default();
    match client.socket.read(free) {
        Ok(0) => return false,
        // What else it says does not matter.
        Ok(_) if is_waiting => return true,
        Ok(n) => client.len += n,
        Err(error) => return error == libc::EAGAIN || error == libc::EINTR,
    }
    let text = room.get(..client.len).unwrap_or(&[]);
    let mut answer = Answer::to(&client.socket);
    match request::parse(text) {
        Parsed::More if client.len < REQUEST_BYTES_MAX => return true,
        Parsed::More => answer.refuse("431 Request Header Fields Too Large"),
        Parsed::Bad => answer.refuse("400 Bad Request"),
        Parsed::Whole(request) => match Later::asked_by(&request, now_ms) {
            None => answer.give(&request),
            later => {
                client.later = later;
                return true;
            }
        },
    }
    answer.flush();
    // The contents of a POST may still come. A socket that is closed before they are read takes the
    // answer with it.
    client.is_answered = text.starts_with(b"POST ") && client.socket.end_writing();
    client.is_answered
}
