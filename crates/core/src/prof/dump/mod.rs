//! Writes heap profiles to files: as jemalloc's text (`heap_v2`) or as a protocol buffer (`pprof`).
//!
//! Figures are copied site by site, so that no thread waits for a file, and a profile that is being
//! written misses some of what happens meanwhile. Nothing here allocates, and no lock is held while
//! the system is called. A thread is inside the allocator ([`inside`]) while it copies, and outside
//! while a receiver takes what it has copied, or while the program's function learns of a file.

mod file;
mod gzip;
mod heap_v2;
mod json;
pub mod maps;
mod pprof;
mod snapshot;
mod strings;
mod text;

use super::capture;
use super::gap::{is_precise, lg_sample};
use super::sites::{self, Amount, Site};
use super::{history, hooks};
use crate::cache::inside::{self, Inside};
use crate::sys::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sys::errno::KeepErrno;
use crate::sys::lock::{Mutex, RawLock};
use crate::sys::message;
use crate::sys::rank::Rank;
use core::ffi::CStr;
use core::fmt::Write;
use file::File;
pub use file::Sink;
use mallard_formats::profile::{PPROF_SUFFIX, TEXT_SUFFIX};
pub use pprof::Shown;
pub use snapshot::Snapshot;
use text::ShortText;

/// Bytes of the longest start of names, with its end.
pub const PREFIX_MAX: usize = 512;

/// The start of the names of files.
struct Prefix {
    text: [u8; PREFIX_MAX],
    len: usize,
}

static PREFIX: Mutex<Prefix> = Mutex::named(
    Rank::Dump,
    Prefix {
        text: [0; PREFIX_MAX],
        len: 0,
    },
);
/// The numbers of the next profile, and of the next of each kind.
static NEXT: AtomicU64 = AtomicU64::new(0);
static NEXT_OF: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// Whether profiles have what was allocated since the beginning.
static ACCUM: AtomicBool = AtomicBool::new(false);
/// Whether profiles are written in the format of pprof.
static PPROF: AtomicBool = AtomicBool::new(false);
/// Whether names of files have the number of the process namespace.
static PID_NAMESPACE: AtomicBool = AtomicBool::new(false);

/// Why a profile is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// As many bytes were allocated as the option says.
    Interval,
    /// The program asked for the profile.
    Manual,
    /// Memory reached a new maximum.
    Growth,
    /// The process ends.
    Final,
}

/// How profiles are written, from the options.
pub struct Settings {
    /// The start of the names of files; empty for no profiles without a name.
    pub prefix: &'static [u8],
    /// Whether `heap_v2` profiles have what was ever allocated.
    pub accum: bool,
    /// Whether profiles are written in the format of pprof.
    pub pprof: bool,
    /// Whether names of files have the number of the process namespace.
    pub pid_namespace: bool,
}

/// Applies the options.
pub fn configure(settings: &Settings) {
    set_prefix(settings.prefix);
    ACCUM.store(settings.accum, Ordering::Relaxed);
    PPROF.store(settings.pprof, Ordering::Relaxed);
    PID_NAMESPACE.store(settings.pid_namespace, Ordering::Relaxed);
}

/// Sets the start of the names of files; returns whether it is short enough.
#[inline(never)]
pub fn set_prefix(prefix: &[u8]) -> bool {
    if prefix.len() >= PREFIX_MAX {
        return false;
    }
    let _inside = inside::enter_or_wait();
    let mut kept = PREFIX.lock_seldom();
    kept.text
        .iter_mut()
        .zip(prefix)
        .for_each(|(to, &from)| *to = from);
    kept.len = prefix.len();
    true
}

/// The lock of the start of names, for forks.
pub fn lock() -> &'static RawLock {
    PREFIX.raw()
}

/// Writes a profile that has become due by itself. One line says so if that fails. Returns false,
/// and does nothing, while a fork is under way: `malloc` does not wait for it.
#[cold]
#[inline(never)]
pub fn write_due(reason: Reason) -> bool {
    let Some(inside) = inside::enter() else {
        return false;
    };
    // Without a prefix, profiles are written on request only.
    if has_prefix() {
        let _ = write_inside(inside, reason, None);
    }
    true
}

/// Writes a profile as [`Reason::Manual`] does, in `malloc`: `EAGAIN` while a fork is under way.
pub fn write_for_reader() -> Result<(), i32> {
    write_inside(inside::enter().ok_or(libc::EAGAIN)?, Reason::Manual, None)
}

/// Whether profiles may be written without a name.
pub fn has_prefix() -> bool {
    let _inside = inside::enter_or_wait();
    PREFIX.lock_seldom().len > 0
}

/// Writes a profile to the file with this name, or to one whose name begins with the prefix.
/// Returns the system's error number on failure, after a line that says what failed.
pub fn write(reason: Reason, name: Option<&CStr>) -> Result<(), i32> {
    write_inside(inside::enter_or_wait(), reason, name)
}

/// Leaves before it calls the program's function.
#[cold]
#[inline(never)]
fn write_inside(inside: Inside, reason: Reason, name: Option<&CStr>) -> Result<(), i32> {
    let _keep = KeepErrno::new();
    let pprof = PPROF.load(Ordering::Relaxed);
    let mut made = ShortText::new();
    let name = match name {
        Some(name) => name,
        None => {
            make_name(&mut made, reason, pprof);
            made.whole().ok_or(libc::ENAMETOOLONG)?
        }
    };
    let done = File::create(name).and_then(|mut file| {
        pass_inside(pprof, &mut file)?;
        file.finish()
    });
    drop(inside);
    match done {
        Ok(()) => hooks::dumped(name),
        Err(error) => say_failed("heap profile", name, error),
    }
    done
}

/// Passes a profile to `out`: pprof's, or jemalloc's text. `ENOMEM` when memory is out.
#[cold]
#[inline(never)]
pub fn pass(pprof: bool, out: &mut dyn Sink) -> Result<(), i32> {
    pass_inside(pprof, &mut Outside::new(out))
}

fn pass_inside(pprof: bool, out: &mut dyn Sink) -> Result<(), i32> {
    capture::refresh();
    if pprof {
        pprof::write(out, lg_sample(), Shown::Live, None)?
    } else {
        heap_v2::write(out, lg_sample(), ACCUM.load(Ordering::Relaxed))
    }
    Ok(())
}

/// Passes a profile in pprof's form that shows this at first; with a snapshot, what has changed
/// since. `ENOMEM` when memory is out.
#[cold]
#[inline(never)]
pub fn pass_shown(shown: Shown, since: Option<&Snapshot>, out: &mut dyn Sink) -> Result<(), i32> {
    let out = &mut Outside::new(out);
    capture::refresh();
    pprof::write(out, lg_sample(), shown, since)
}

/// Takes bytes for a receiver that may be slow, and is outside while the receiver takes them, so
/// that no fork waits for it.
struct Outside<'a> {
    inside: Option<Inside>,
    out: &'a mut dyn Sink,
}

impl<'a> Outside<'a> {
    fn new(out: &'a mut dyn Sink) -> Self {
        let inside = Some(inside::enter_or_wait());
        Outside { inside, out }
    }
}

impl Sink for Outside<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.inside = None;
        self.out.put(bytes);
        self.inside = Some(inside::enter_or_wait());
    }
}

/// Ends the log of samples and writes it to its file, or to one whose name begins with the prefix.
/// Returns the system's error number on failure, after a line that says what failed; 0 if there is
/// no log.
#[cold]
#[inline(never)]
pub fn write_log() -> Result<(), i32> {
    let _keep = KeepErrno::new();
    let _inside = inside::enter_or_wait();
    let records = history::end_log().ok_or(0)?;
    let mut made = ShortText::new();
    let name = match records.name() {
        Some(name) => name,
        None => {
            begin_name(&mut made);
            let _ = write!(made, ".{}.json", history::log_number());
            made.whole().ok_or(libc::ENAMETOOLONG)?
        }
    };
    let done = File::create(name).and_then(|mut file| {
        json::log(&mut file, &records, lg_sample(), is_precise())?;
        file.finish()
    });
    match done {
        Ok(()) if records.missed > 0 => say_missed(name, records.missed),
        Ok(()) => {}
        Err(error) => say_failed("log of samples", name, error),
    }
    done
}

/// Tells by a line on standard error that a log was full before its end.
#[cold]
#[inline(never)]
fn say_missed(name: &CStr, missed: u64) {
    let mut line = ShortText::new();
    line.push(b"mallard: the log of samples ");
    push_name(&mut line, name.to_bytes());
    let _ = writeln!(
        line,
        " lacks the last {missed} blocks that were freed: it is full"
    );
    message::say(line.line());
}

/// Passes the recent samples to `out` as JSON, in pieces.
pub fn recent(out: &mut dyn FnMut(&CStr)) {
    let _inside = inside::enter_or_wait();
    let records = history::recent();
    let mut pieces = Pieces {
        text: [0; PIECE_MAX],
        len: 0,
        out,
    };
    json::recent(&mut pieces, &records, lg_sample());
    pieces.flush();
}

/// Bytes of a piece of text, with its end.
const PIECE_MAX: usize = 512;

/// Passes text on in pieces.
struct Pieces<'a> {
    text: [u8; PIECE_MAX],
    len: usize,
    out: &'a mut dyn FnMut(&CStr),
}

impl Pieces<'_> {
    #[inline(never)]
    fn flush(&mut self) {
        if let Some(end) = self.text.get_mut(self.len) {
            *end = 0;
        }
        (self.out)(CStr::from_bytes_until_nul(&self.text).unwrap_or_default());
        self.len = 0;
    }
}

impl file::Sink for Pieces<'_> {
    #[inline(never)]
    fn put(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.len == PIECE_MAX - 1 {
                self.flush();
            }
            if let Some(to) = self.text.get_mut(self.len) {
                *to = byte;
                self.len += 1;
            }
        }
    }
}

/// `<prefix>.<pid>.<number>.<kind><number of the kind>.heap`, as jemalloc names them.
fn make_name(name: &mut ShortText, reason: Reason, pprof: bool) {
    begin_name(name);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Writing to a name does not fail.
    let _ = write!(name, ".{number}.");
    let of = |kind: &AtomicU64| kind.fetch_add(1, Ordering::Relaxed);
    let [intervals, manual, growth] = &NEXT_OF;
    let _ = match reason {
        Reason::Interval => write!(name, "i{}", of(intervals)),
        Reason::Manual => write!(name, "m{}", of(manual)),
        Reason::Growth => write!(name, "u{}", of(growth)),
        Reason::Final => name.write_char('f'),
    };
    let _ = name.write_str(if pprof { PPROF_SUFFIX } else { TEXT_SUFFIX });
}

/// `<prefix>.<pid>`, or `<prefix>.<namespace>.<pid>`.
fn begin_name(name: &mut ShortText) {
    {
        let prefix = PREFIX.lock_seldom();
        name.push(prefix.text.get(..prefix.len).unwrap_or(&[]));
    }
    if PID_NAMESPACE.load(Ordering::Relaxed) {
        let _ = write!(name, ".{}", pid_namespace());
    }
    // SAFETY: getpid has no preconditions.
    let _ = write!(name, ".{}", unsafe { libc::getpid() });
}

/// The number of the process namespace; 0 if it is unknown.
fn pid_namespace() -> u64 {
    // `pid:[4026531836]`
    let mut text = [0u8; 32];
    let path = c"/proc/self/ns/pid".as_ptr();
    // SAFETY: the path is terminated, and the kernel writes at most the buffer's length.
    unsafe {
        let (at, room) = (text.as_mut_ptr(), text.len());
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, path, at, room)
    };
    let digits = text.iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'))
}

/// The most call stacks of a report of leaks, and the most frames of each.
const LEAKS_MAX: usize = 10;
const LEAK_FRAMES_MAX: usize = 8;

/// Prints what is still in use, by the call stacks that hold most. Returns whether there is any.
#[cold]
#[inline(never)]
pub fn report_leaks() -> bool {
    let _inside = inside::enter_or_wait();
    let (mut sum, mut count) = (Amount::NONE, 0);
    let mut largest: [Option<(&'static Site, Amount)>; LEAKS_MAX] = [None; LEAKS_MAX];
    sites::each(&mut |site, figures| {
        if figures.live.is_none() {
            return;
        }
        sum = sum.plus(figures.live);
        count += 1;
        let bytes = |entry: &Option<(&Site, Amount)>| entry.map_or(0, |(_, live)| live.bytes());
        let at = largest.partition_point(|entry| bytes(entry) >= figures.live.bytes());
        let mut next = Some((site, figures.live));
        for entry in largest.iter_mut().skip(at) {
            core::mem::swap(entry, &mut next);
        }
    });
    if count == 0 {
        return false;
    }
    let mut line = ShortText::new();
    let (bytes, blocks) = (sum.bytes(), sum.blocks());
    let _ = writeln!(
        line,
        "mallard: Leak approximation summary: ~{bytes} bytes, ~{blocks} objects, >= {count} contexts"
    );
    message::say(line.line());
    for (site, live) in largest.into_iter().flatten() {
        let mut line = ShortText::new();
        let _ = write!(
            line,
            "mallard:   ~{} bytes, ~{} objects @",
            live.bytes(),
            live.blocks()
        );
        for frame in site.frames().iter().take(LEAK_FRAMES_MAX) {
            let _ = write!(line, " {frame:#x}");
        }
        let _ = line.write_char('\n');
        message::say(line.line());
    }
    message::say(c"mallard: `mallard profile FILE` and jeprof name the functions of a profile\n");
    true
}

/// What an error number means; empty if the number has to do.
#[inline(never)]
fn meaning(error: i32) -> &'static str {
    match error {
        libc::EPERM | libc::EACCES | libc::EROFS => ": not permitted",
        libc::ENOENT | libc::ENOTDIR => ": no such folder",
        libc::ENOMEM => ": no memory for a buffer",
        libc::EISDIR => ": it is a folder",
        libc::ENOSPC | libc::EDQUOT => ": the disk is full",
        libc::ENAMETOOLONG => ": the name is too long",
        _ => "",
    }
}

/// Bytes of each end of a long name that a message has.
const NAME_PART: usize = 240;

/// Appends a name; of a long one both ends, so that what comes behind it has room.
#[inline(never)]
fn push_name(line: &mut ShortText, name: &[u8]) {
    let behind = name.len().saturating_sub(NAME_PART);
    match (name.get(..NAME_PART), name.get(behind..)) {
        (Some(start), Some(end)) if behind > NAME_PART => {
            line.push(start);
            line.push("…".as_bytes());
            line.push(end);
        }
        _ => line.push(name),
    }
}

#[cold]
#[inline(never)]
fn say_failed(what: &str, name: &CStr, error: i32) {
    let mut line = ShortText::new();
    line.push(b"mallard: cannot write the ");
    line.push(what.as_bytes());
    line.push(b" ");
    push_name(&mut line, name.to_bytes());
    line.push(meaning(error).as_bytes());
    let _ = writeln!(line, " (error {error})");
    message::say(line.line());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::forks::is_any_inside;
    use crate::testing::own_process;
    use std::ffi::CString;
    use std::time::{Duration, Instant};
    use std::{format, fs, thread};

    #[test]
    fn a_fork_waits_for_a_thread_that_writes_a_profile() {
        own_process!();
        // Opening a pipe to write waits for a reader.
        let path = std::env::temp_dir().join(format!("mallard-pipe-{}", std::process::id()));
        let name = CString::new(path.to_str().expect("text")).expect("no zeros");
        // SAFETY: the path is terminated.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let until = Instant::now() + Duration::from_secs(60);
        let writer = {
            let name = name.clone();
            thread::spawn(move || write(Reason::Manual, Some(&name)))
        };
        while !is_any_inside() {
            assert!(Instant::now() < until, "nobody is inside");
            thread::sleep(Duration::from_millis(1));
        }
        let text = fs::read(&path).expect("the pipe is there");
        fs::remove_file(&path).expect("the pipe is there");
        assert!(text.starts_with(b"heap_v2/"));
        assert_eq!(writer.join().expect("it ends"), Ok(()));
        assert!(!is_any_inside());
    }

    /// Whether a fork would have waited for the receiver of a piece.
    struct Receiver {
        pieces: usize,
        is_waited_for: bool,
    }

    impl Sink for Receiver {
        fn put(&mut self, _: &[u8]) {
            self.pieces += 1;
            self.is_waited_for |= is_any_inside();
        }
    }

    #[test]
    fn no_fork_waits_for_the_receiver_of_a_profile() {
        own_process!();
        let since = Snapshot::take().expect("there is memory");
        let mut receiver = Receiver {
            pieces: 0,
            is_waited_for: false,
        };
        assert_eq!(pass(false, &mut receiver), Ok(()));
        assert_eq!(pass(true, &mut receiver), Ok(()));
        let done = pass_shown(Shown::Peak, Some(&since), &mut receiver);
        assert_eq!(done, Ok(()));
        assert!(receiver.pieces >= 3 && !receiver.is_waited_for);
        assert!(!is_any_inside());
    }

    #[test]
    fn a_fork_waits_for_a_thread_that_copies_samples() {
        own_process!();
        let mut were_inside = true;
        recent(&mut |_| were_inside &= is_any_inside());
        assert!(were_inside && !is_any_inside());
    }

    #[test]
    fn a_message_has_the_reason_behind_the_longest_name() {
        let name = [b'n'; 4095];
        let mut line = ShortText::new();
        line.push(b"cannot write ");
        push_name(&mut line, &name);
        line.push(meaning(libc::ENAMETOOLONG).as_bytes());
        let text = line.line().to_str().expect("it is text");
        assert!(text.ends_with("n: the name is too long"), "{text}");
        assert!(text.contains("n…n"), "{text}");
        let mut short = ShortText::new();
        push_name(&mut short, &name[..2 * NAME_PART]);
        assert_eq!(short.line().to_bytes(), &name[..2 * NAME_PART]);
    }
}
