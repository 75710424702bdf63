//! Writes a report out: one block of lines, without memory.

use super::FRAMES_MAX;
use super::finding::{Event, Finding};
use super::json;
use super::text::{Form, Text};
use crate::prof::capture;
use crate::prof::unwind::{self, Registers};
use crate::space::meta;
use crate::sys::atomic::{AtomicBool, AtomicPtr, Ordering};
use crate::sys::errno::KeepErrno;
use crate::sys::message;
use crate::sys::time;
use core::ffi::{CStr, c_char};

/// The name of the file that reports go to as well, as JSON; null for no file.
static FILE: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

/// What reports need.
#[repr(C, align(16))]
struct Room {
    text: Text,
    /// The stack that the reports of faults run on: that of the thread that faulted may be short.
    stack: [u8; STACK_BYTES],
}

const STACK_BYTES: usize = 64 << 10;

static ROOM: AtomicPtr<Room> = AtomicPtr::new(core::ptr::null_mut());

/// Makes what reports need; false when memory is out. For a thread that is inside.
#[cold]
#[inline(never)]
pub fn begin() -> bool {
    if !ROOM.load(Ordering::Acquire).is_null() {
        return true;
    }
    capture::begin();
    let Some(room) = meta::take_apart(size_of::<Room>()) else {
        return false;
    };
    let put = ROOM.compare_exchange(
        core::ptr::null_mut(),
        room.as_ptr().cast(),
        Ordering::AcqRel,
        Ordering::Relaxed,
    );
    if put.is_err() {
        // SAFETY: just taken with this size, and nobody knows of it.
        unsafe { meta::give(room, size_of::<Room>()) };
    }
    true
}

/// Whether there is what reports need.
pub fn is_ready() -> bool {
    !ROOM.load(Ordering::Acquire).is_null()
}

/// Appends all reports to a file as well.
pub(super) fn set_file(name: &'static CStr) {
    FILE.store(name.as_ptr().cast_mut(), Ordering::Release);
}

/// The end of the stack that the report of a fault runs on. One thread at a time may use it.
pub fn stack_top() -> usize {
    ROOM.load(Ordering::Acquire).addr() + size_of::<Room>()
}

/// The stack of a frame of the calling thread, without the frames of this library.
#[inline(never)]
pub fn stack_of_this_thread<'a>(
    from: &Registers,
    room: &'a mut [usize; FRAMES_MAX],
) -> &'a [usize] {
    let len = unwind::capture(from, room, &mut [0; 2]).frames;
    let own = room.iter().take(len).take_while(|&&at| capture::is_own(at));
    let own = own.count();
    room.get(own..len).unwrap_or(&[])
}

/// The system's number of the calling thread.
pub fn thread() -> u32 {
    // SAFETY: the call has no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

static BUSY: AtomicBool = AtomicBool::new(false);

/// Which forms of a report are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Both,
    /// The text is told otherwise.
    Json,
}

/// Reports a finding. `frames` is the stack of the calling thread, the innermost frame first.
pub fn print(finding: &Finding<'_>, frames: &[usize]) {
    print_as(Wanted::Both, finding, frames);
}

#[inline(never)]
pub(super) fn print_as(wanted: Wanted, finding: &Finding<'_>, frames: &[usize]) {
    let room = ROOM.load(Ordering::Acquire);
    if room.is_null() {
        return;
    }
    while BUSY.swap(true, Ordering::Acquire) {
        time::nap();
    }
    // SAFETY: made from zeros, which are an empty text; `BUSY` was not set, so no other thread uses
    // the text. The stack behind it is not part of the reference.
    let text = unsafe { &mut (*room).text };
    let now = Event {
        thread: thread(),
        frames: frames.get(..FRAMES_MAX).unwrap_or(frames),
    };
    if wanted == Wanted::Both {
        text.clear();
        write(text, finding, &now);
        message::say(text.end());
    }
    let file = FILE.load(Ordering::Acquire);
    if !file.is_null() {
        text.clear();
        json::write(text, finding, &now);
        append(file, text.end().to_bytes());
    }
    BUSY.store(false, Ordering::Release);
}

/// Appends a line to a file. What fails is not told: there is the report itself.
fn append(path: *const c_char, line: &[u8]) {
    let _keep = KeepErrno::new();
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    // Plain system calls, because the C library's are cancellation points.
    // SAFETY: the path is the option's, which is terminated and stays. The kernel reads only the
    // line, and the descriptor is used nowhere else.
    unsafe {
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0o600);
        if file >= 0 {
            libc::syscall(libc::SYS_write, file, line.as_ptr(), line.len());
            libc::syscall(libc::SYS_close, file);
        }
    }
}

#[inline(never)]
fn write(text: &mut Text, finding: &Finding<'_>, now: &Event<'_>) {
    text.text("mallard: ");
    text.text(finding.kind);
    text.text(" at ");
    text.address(finding.at);
    if let Some(block) = &finding.block {
        let (at, end) = (finding.at, block.at + block.size);
        let (distance, side) = match () {
            () if at < block.at => (block.at - at, " before"),
            // The beginning of a block of no bytes is its end too.
            () if at >= end && at != block.at => (at - end, " behind the end of"),
            () => (at - block.at, " into"),
        };
        text.text(": ");
        bytes(text, distance);
        text.text(side);
        text.text(" a block of ");
        bytes(text, block.size);
        text.text("\n  the block: ");
        text.address(block.at);
        text.text(" to ");
        text.address(end);
        text.text(block.place);
    }
    text.text("\n");
    if let Some(damage) = &finding.damage {
        text.text("  changed: ");
        bytes(text, damage.bytes);
        text.text(" at offset ");
        text.signed(damage.offset);
        text.text("\n");
    }
    event(text, "now", ", in", now);
    event(text, "allocated", " by", &finding.allocated);
    event(text, "freed", " by", &finding.freed);
    text.text("  For the names of functions: mallard guard --names FILE\n");
}

fn bytes(text: &mut Text, n: usize) {
    text.number(n);
    text.text(if n == 1 { " byte" } else { " bytes" });
}

/// Writes what a thread did, and its stack.
#[inline(never)]
fn event(text: &mut Text, what: &str, by: &str, event: &Event<'_>) {
    if !event.is_known() {
        return;
    }
    text.text("  ");
    text.text(what);
    if event.thread != 0 {
        text.text(by);
        text.text(" thread ");
        text.number(event.thread as usize);
    }
    text.text(":\n");
    for &frame in event.frames {
        text.text("    ");
        text.frame(frame, Form::Line);
        text.text("\n");
    }
}
