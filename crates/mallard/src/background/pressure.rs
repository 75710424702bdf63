//! Whether the machine, or the process's control group, is short of memory: the kernel's pressure
//! stall information (Linux 4.20).
//!
//! The kernel counts the microseconds in which some task had to wait for memory; a tenth of the time
//! between two looks is pressure. Reading the counter needs no right that a trigger (a file to be
//! written, and polled for ever) would need, and a thread that has dirty pages to return looks around
//! often enough.
//!
//! The files are opened in a table of file descriptors of this thread's own, which is empty at
//! first: no number is ever taken from the program, and a program that closes all files closes none
//! of ours, nor we one of its.

use crate::sys::label::Named;
use core::ffi::CStr;

/// The part of the time in which tasks wait that is pressure, as a divisor.
const PART: u64 = 10;
/// Longest path of a control group that is looked at.
const PATH: usize = 512;

static SYSTEM: Named<22> = Named::of(c"/proc/pressure/memory");
static GROUP: Named<18> = Named::of(c"/proc/self/cgroup");
const GROUPS: &[u8] = b"/sys/fs/cgroup";
const GROUP_FILE: &[u8] = b"/memory.pressure\0";

/// One file of the kernel's, and what it said last.
struct Gauge {
    fd: i32,
    /// Microseconds of waiting, and the millisecond at which they were read.
    last: Option<(u64, u64)>,
}

pub struct Pressure {
    /// The machine's and the group's.
    gauges: [Option<Gauge>; 2],
    opened: bool,
}

impl Pressure {
    pub const fn new() -> Self {
        Pressure {
            gauges: [const { None }; 2],
            opened: false,
        }
    }

    /// Whether memory was short since the last look; none when the kernel does not tell.
    pub fn is_high(&mut self, now: u64) -> Option<bool> {
        if !self.opened {
            self.opened = true;
            self.open();
        }
        let mut high = None;
        for slot in &mut self.gauges {
            let Some(gauge) = slot else { continue };
            match gauge.look(now) {
                Some(this) => high = Some(this | high.unwrap_or(false)),
                None => *slot = None,
            }
        }
        high
    }

    /// Time passes in which nobody looks: it is not counted.
    pub fn forget(&mut self) {
        self.gauges.iter_mut().flatten().for_each(|g| g.last = None);
    }

    fn open(&mut self) {
        // Asking first takes no descriptor, and tells in a sandbox that there is no way.
        // SAFETY: a C string; nothing is written.
        if unsafe { libc::access(SYSTEM.get().as_ptr(), libc::R_OK) } != 0 || !own_table() {
            return;
        }
        let mut path = [0; PATH];
        let group = group_file(&mut path).and_then(Gauge::open);
        self.gauges = [Gauge::open(SYSTEM.get()), group];
    }
}

/// Gives the calling thread a table of file descriptors of its own, an empty one; false where the
/// kernel cannot (before 5.9), and then nothing has changed.
fn own_table() -> bool {
    const UNSHARE: u32 = 1 << 1;
    // SAFETY: with this flag the call changes the table of this thread alone, which uses no file.
    unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, UNSHARE) == 0 }
}

/// Opens a file for reading; none when that is refused.
fn open(path: &CStr) -> Option<i32> {
    // SAFETY: a C string.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    (fd >= 0).then_some(fd)
}

/// Reads the start of a file; none when that fails.
fn read(fd: i32, buffer: &mut [u8]) -> Option<&[u8]> {
    // SAFETY: the kernel writes at most the buffer's length.
    let n = unsafe { libc::pread(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    buffer.get(..usize::try_from(n).ok()?)
}

/// The pressure file of the process's control group, of version 2.
fn group_file(path: &mut [u8; PATH]) -> Option<&CStr> {
    let fd = open(GROUP.get())?;
    let mut text = [0; PATH];
    let name = read(fd, &mut text).and_then(group_of);
    // SAFETY: opened above, in this thread's own table.
    unsafe { libc::close(fd) };
    joined(&[GROUPS, name?, GROUP_FILE], path)
}

/// The group of version 2 in the kernel's list of a process's groups, unless it is the root: that is
/// the machine.
fn group_of(list: &[u8]) -> Option<&[u8]> {
    let lines = list.split_inclusive(|&b| b == b'\n');
    let line = lines.filter_map(|l| l.strip_suffix(b"\n"));
    line.filter_map(|l| l.strip_prefix(b"0::"))
        .find(|name| name.len() > 1)
}

fn joined<'a>(parts: &[&[u8]], path: &'a mut [u8; PATH]) -> Option<&'a CStr> {
    let mut at = 0;
    for part in parts {
        path.get_mut(at..at + part.len())?.copy_from_slice(part);
        at += part.len();
    }
    CStr::from_bytes_with_nul(&path[..at]).ok()
}

/// The microseconds in which some task waited, in the kernel's text.
fn waited(text: &[u8]) -> Option<u64> {
    let line = text
        .split(|&b| b == b'\n')
        .find(|l| l.starts_with(b"some "))?;
    let total = line
        .split(|&b| b == b' ')
        .find_map(|word| word.strip_prefix(b"total="))?;
    core::str::from_utf8(total).ok()?.parse().ok()
}

impl Gauge {
    fn open(path: &CStr) -> Option<Self> {
        open(path).map(|fd| Gauge { fd, last: None })
    }

    /// Whether there was pressure since the last look; none when the file cannot be read.
    fn look(&mut self, now: u64) -> Option<bool> {
        let mut text = [0; 256];
        let total = waited(read(self.fd, &mut text)?)?;
        let before = self.last.replace((total, now));
        Some(before.is_some_and(|(then_total, then)| {
            let (waited, passed) = (total.saturating_sub(then_total), now.saturating_sub(then));
            passed > 0 && waited * PART >= passed * 1000
        }))
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        // SAFETY: opened by this thread, in its own table, and used by nobody else.
        unsafe { libc::close(self.fd) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::string::String;

    #[test]
    fn the_kernel_s_text_is_read() {
        let text = b"some avg10=1.00 avg60=0.10 avg300=0.00 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=99\n";
        assert_eq!(waited(text), Some(123_456));
        assert_eq!(waited(b"full avg10=0.00 total=99\n"), None);
        assert_eq!(waited(b"some avg10=0.00 total=\n"), None);
        assert_eq!(waited(b""), None);
    }

    #[test]
    fn the_group_is_that_of_version_2_and_not_the_root() {
        assert_eq!(
            group_of(b"4:memory:/a\n0::/user.slice/x\n"),
            Some(&b"/user.slice/x"[..])
        );
        assert_eq!(group_of(b"4:memory:/a\n0::/\n"), None);
        assert_eq!(group_of(b"4:memory:/a\n"), None);
        assert_eq!(group_of(b"0::/cut off without an e"), None);
    }

    #[test]
    fn a_path_that_is_too_long_is_none() {
        let mut path = [0; PATH];
        let joined_path = joined(&[GROUPS, b"/a", GROUP_FILE], &mut path).unwrap();
        assert_eq!(joined_path, c"/sys/fs/cgroup/a/memory.pressure");
        assert_eq!(
            joined(&[GROUPS, &[b'a'; PATH], GROUP_FILE], &mut path),
            None
        );
    }

    #[test]
    fn a_tenth_of_the_time_is_pressure_and_less_is_not() {
        let name = String::from("mallard-pressure-") + &std::process::id().to_string();
        let file = std::env::temp_dir().join(name);
        let say = |total: u64| {
            let text = std::format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
            std::fs::write(&file, text).unwrap();
        };
        say(5_000_000);
        let path = CString::new(file.to_str().unwrap()).unwrap();
        let mut gauge = Gauge::open(&path).unwrap();
        assert_eq!(
            gauge.look(1000),
            Some(false),
            "what was before is not counted"
        );
        say(5_099_000);
        assert_eq!(gauge.look(2000), Some(false), "99 ms of 1000");
        say(5_199_000);
        assert_eq!(gauge.look(3000), Some(true), "100 ms of 1000");
        assert_eq!(gauge.look(4000), Some(false), "over");
        std::fs::write(&file, "nothing that is known").unwrap();
        assert_eq!(gauge.look(5000), None);
        std::fs::remove_file(&file).unwrap();
    }
}
