//! Counts the system calls that change the address space, by kind and by their callers.
//!
//! The program runs once more, untimed, with a filter that reports these calls to the lab
//! (seccomp's user notification). The lab looks at the cell of the thread, counts, and lets the
//! call go on. Children inherit the filter. No debugger is needed, but the process gives up gaining
//! privileges: setuid programs that it starts run without them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mallard_procfs::kernel;

use crate::arch::FILTER_ARCHITECTURE;
use crate::probe::segments::{self, Segment};

/// A kind of system call that changes the address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Mmap,
    Mprotect,
    Munmap,
    Brk,
    Mremap,
    Madvise,
}

pub const KINDS: [(Kind, &str, i64); 6] = [
    (Kind::Mmap, "mmap", libc::SYS_mmap),
    (Kind::Mprotect, "mprotect", libc::SYS_mprotect),
    (Kind::Munmap, "munmap", libc::SYS_munmap),
    (Kind::Brk, "brk", libc::SYS_brk),
    (Kind::Mremap, "mremap", libc::SYS_mremap),
    (Kind::Madvise, "madvise", libc::SYS_madvise),
];

/// Counted calls.
#[derive(Debug, Clone, Default)]
pub struct Syscalls {
    /// By the allocator, and by all others.
    pub inside: HashMap<&'static str, u64>,
    pub outside: HashMap<&'static str, u64>,
    /// Counting ended before the program: at the limit, or because there were many calls.
    pub cut: bool,
    /// How long calls were counted.
    pub seconds: f64,
}

/// The command to run.
pub struct Spec<'a> {
    pub program: &'a Path,
    pub arguments: &'a [OsString],
    pub environment: &'a [(String, String)],
    pub input: Option<&'a Path>,
    /// The probe's folder.
    pub folder: &'a Path,
    /// The folder to run in; none for the lab's own.
    pub within: Option<&'a Path>,
    pub limit: Duration,
    /// What is done beside the program, such as the load of a server, from its process's number on.
    /// The count ends with it.
    pub beside: Option<&'a (dyn Fn(u32) + Sync)>,
}

/// Enough calls to know their rate. Further ones are let go uncounted.
const CALLS_MAX: u64 = 100_000;
/// How long a program may take to end once it has got the signal.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the program and counts. A program that runs longer than the limit gets `SIGTERM`, and is
/// killed if it does not end then. The error says what the system refused.
pub fn count(spec: &Spec, stop: impl Fn() -> bool) -> io::Result<Syscalls> {
    // Older kernels refuse the filter with an error that says nothing, or report calls and then
    // never let them go on.
    if let Some(lack) = kernel::lacks(&[5, 5]) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, lack));
    }
    let (ours, theirs) = socket_pair()?;
    let mut command = Command::new(spec.program);
    command
        .args(spec.arguments)
        .envs(spec.environment.iter().map(|(n, v)| (n, v)));
    command.stdin(match spec.input {
        Some(file) => Stdio::from(std::fs::File::open(file)?),
        None => Stdio::null(),
    });
    if let Some(folder) = spec.within {
        command.current_dir(folder);
    }
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let socket = theirs.as_raw_fd();
    // SAFETY: the closure makes system calls only.
    unsafe {
        command.pre_exec(move || {
            let listener = install_filter()?;
            send_descriptor(socket, listener)
        });
    }
    let mut child = command.spawn()?;
    drop(theirs);
    let listener = receive_descriptor(&ours)?;
    let (over, pid) = (AtomicBool::new(false), child.id());
    std::thread::scope(|scope| {
        if let Some(beside) = spec.beside {
            scope.spawn(|| {
                beside(pid);
                over.store(true, Ordering::Release);
            });
        }
        let counted = serve(&listener, spec, pid, &over, &stop);
        // Nobody lets calls go on any more. What is done beside the program ends with it.
        signal_group(pid, libc::SIGKILL);
        child.wait()?;
        counted
    })
}

fn serve(
    listener: &OwnedFd,
    spec: &Spec,
    pid: u32,
    over: &AtomicBool,
    stop: &impl Fn() -> bool,
) -> io::Result<Syscalls> {
    let begun = Instant::now();
    let mut counted = Syscalls::default();
    let mut segments: Vec<Segment> = Vec::new();
    let mut calls = 0_u64;
    let mut counted_for = None;
    let mut asked_to_end: Option<Instant> = None;
    while let Some(is_reported) = wait_for_report(listener)? {
        let is_over = over.load(Ordering::Acquire);
        let is_late = stop() || begun.elapsed() > spec.limit;
        if counted_for.is_none() && (is_over || is_late || calls >= CALLS_MAX) {
            counted.cut = !is_over;
            counted_for = Some(begun.elapsed());
        }
        if is_over || is_late {
            // Its calls are let go on, so that it can end in good order.
            let asked = *asked_to_end.get_or_insert_with(|| {
                signal_group(pid, libc::SIGTERM);
                Instant::now()
            });
            if asked.elapsed() > END_TIMEOUT {
                break;
            }
        }
        let Some((id, thread, number)) = is_reported.then(|| receive(listener)).flatten() else {
            continue;
        };
        if let Some(name) = name_of(number).filter(|_| counted_for.is_none()) {
            let counts = if is_inside(thread, &mut segments, spec.folder) {
                &mut counted.inside
            } else {
                &mut counted.outside
            };
            *counts.entry(name).or_default() += 1;
            calls += 1;
        }
        go_on(listener, id);
    }
    counted.seconds = counted_for.unwrap_or(begun.elapsed()).as_secs_f64();
    Ok(counted)
}

/// Whether a call is reported within a short time; none if no process is left that could make one.
fn wait_for_report(listener: &OwnedFd) -> io::Result<Option<bool>> {
    let mut poll = libc::pollfd {
        fd: listener.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: polls one descriptor of ours.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 100) };
    if ready < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
        return Err(io::Error::last_os_error());
    }
    let is_left = ready <= 0 || poll.revents & libc::POLLIN != 0;
    Ok(is_left.then_some(ready > 0))
}

/// The name of the call with this number, if it is of a kind that is counted.
fn name_of(number: i32) -> Option<&'static str> {
    let mut kinds = KINDS.into_iter();
    let kind = kinds.find(|(_, _, known)| *known == i64::from(number));
    kind.map(|(_, name, _)| name)
}

/// Sends a signal to the group of our own child, which is not reaped yet.
fn signal_group(pid: u32, signal: i32) {
    // SAFETY: a number of a group and of a signal.
    unsafe { libc::kill(-(pid as i32), signal) };
}

/// Whether a thread is inside a call of the allocator.
fn is_inside(thread: u32, segments: &mut Vec<Segment>, folder: &Path) -> bool {
    let look = |segments: &[Segment]| {
        let slots = segments
            .iter()
            .rev()
            .flat_map(|segment| segment.slots().iter().skip(1));
        let mut theirs = slots.filter(|slot| slot.cell.owner.load(Ordering::Relaxed) == thread);
        theirs
            .next()
            .map(|slot| slot.cell.word.load(Ordering::Relaxed) & 0xff != 0)
    };
    if let Some(inside) = look(segments) {
        return inside;
    }
    if let Ok(new) = segments::find_new(folder, segments) {
        segments.extend(new);
    }
    look(segments).unwrap_or(false)
}

/// The rights that a filter needs, and the filter. Returns the descriptor that reports calls.
fn install_filter() -> io::Result<RawFd> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let kinds = KINDS.len() as u8;
    let mut program = [step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW); 5 + KINDS.len()];
    program[0] = step(LOAD, 0, 0, 4);
    program[1] = step(IF_EQUAL, 0, kinds + 1, FILTER_ARCHITECTURE);
    program[2] = step(LOAD, 0, 0, 0);
    for (index, (_, _, number)) in KINDS.iter().enumerate() {
        let to_report = kinds - index as u8;
        program[3 + index] = step(IF_EQUAL, to_report, 0, *number as u32);
    }
    program[4 + KINDS.len()] = step(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF);
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: system calls on structures of ours, in a child that has not run anything yet.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        let listener = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const filter,
        );
        if listener < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(listener as RawFd)
    }
}

const RECEIVE_REQUEST: u64 = 0xc050_2100;
const SEND_REQUEST: u64 = 0xc018_2101;

/// The next reported call: its id, its thread and its number.
fn receive(listener: &OwnedFd) -> Option<(u64, u32, i32)> {
    // SAFETY: the kernel fills the structure in, which must be zero before.
    unsafe {
        let mut call: libc::seccomp_notif = zeroed();
        let done = libc::ioctl(listener.as_raw_fd(), RECEIVE_REQUEST, &raw mut call);
        (done == 0).then_some((call.id, call.pid, call.data.nr))
    }
}

/// Lets a call be made.
fn go_on(listener: &OwnedFd, id: u64) {
    // SAFETY: the kernel reads the structure. The thread may have ended meanwhile.
    unsafe {
        let mut answer: libc::seccomp_notif_resp = zeroed();
        answer.id = id;
        answer.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        libc::ioctl(listener.as_raw_fd(), SEND_REQUEST, &raw mut answer);
    }
}

fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut pair = [0; 2];
    // SAFETY: the kernel fills the pair in, and it is ours then.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        if libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(pair[0]), OwnedFd::from_raw_fd(pair[1])))
    }
}

/// Room for a control message with one descriptor.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// A message of one byte, with the control message in `control`.
fn message(byte: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: a message without an address is all zeros.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = byte;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: computes a length.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as usize;
    message
}

fn send_descriptor(socket: RawFd, descriptor: RawFd) -> io::Result<()> {
    let mut content = [1_u8];
    let mut byte = libc::iovec {
        iov_base: content.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let mut control = Control([0; 64]);
    let message = message(&mut byte, &mut control);
    // SAFETY: the control message lies within its room.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        libc::CMSG_DATA(head)
            .cast::<RawFd>()
            .write_unaligned(descriptor);
        match libc::sendmsg(socket, &raw const message, 0) {
            1 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn receive_descriptor(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut content = [0_u8];
    let mut byte = libc::iovec {
        iov_base: content.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let mut control = Control([0; 64]);
    let mut message = message(&mut byte, &mut control);
    // SAFETY: the kernel fills the message in; the descriptor in it is ours then.
    unsafe {
        let flags = libc::MSG_CMSG_CLOEXEC;
        if libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) != 1 {
            return Err(io::Error::last_os_error());
        }
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        if head.is_null() || (*head).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::Error::other("no descriptor came"));
        }
        let descriptor = libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned();
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}
