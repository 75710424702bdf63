//! The folder that the probe and the lab share.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::layout::{self, Control};

/// Free space below which `/dev/shm` is not used: a container's default of 64 MiB fills up with the
/// segments of two hundred processes.
const ROOM_BYTES: u64 = 32 << 20;

/// A folder of mode 0700, removed with its contents at the end.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Why it is not in `/dev/shm`, if it is not.
    pub elsewhere: Option<String>,
}

/// What every process is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ask {
    /// Samples per second of each thread's CPU time by timer signals; 0 for none.
    pub timer_hz: u32,
    /// Whether to ask the allocator for its free memory when the program ends.
    pub trim_at_exit: bool,
    /// Whether to record every call.
    pub record: Option<Record>,
}

/// How a process records.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    /// Chunks of 64 KiB that each process may use.
    pub chunks: u32,
    /// Whether records are dropped when none is free, instead of waiting.
    pub lossy: bool,
    /// Whether stamps are of `CLOCK_MONOTONIC` and not of the processor's counter.
    pub monotonic: bool,
}

impl Folder {
    /// Makes a folder in `/dev/shm`, or if that has no room, in `other`.
    pub fn new(ask: Ask, other: &Path) -> io::Result<Folder> {
        let shm = Path::new("/dev/shm");
        let refused = match room(shm) {
            Ok(bytes) if bytes >= ROOM_BYTES => match Folder::within(shm, ask) {
                Ok(path) => {
                    return Ok(Folder {
                        path,
                        elsewhere: None,
                    });
                }
                Err(error) => format!("/dev/shm: {error}"),
            },
            Ok(bytes) => format!("/dev/shm has only {} MiB free", bytes >> 20),
            Err(error) => format!("/dev/shm: {error}"),
        };
        let path = Folder::within(other, ask)?;
        Ok(Folder {
            path,
            elsewhere: Some(refused),
        })
    }

    fn within(parent: &Path, ask: Ask) -> io::Result<PathBuf> {
        let path = parent.join(format!("mallard-probe-{}-{}", std::process::id(), unique()));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        fs::write(path.join(layout::CONTROL_FILE), control(ask))?;
        Ok(path)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that is left behind is no reason to fail.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn unique() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The bytes of [`layout::CONTROL_FILE`].
fn control(ask: Ask) -> Vec<u8> {
    let mut flags = 0;
    if ask.trim_at_exit {
        flags |= layout::TRIM_AT_EXIT;
    }
    if let Some(record) = ask.record {
        flags |= layout::RECORD;
        flags |= if record.lossy { layout::LOSSY } else { 0 };
        flags |= if record.monotonic {
            layout::MONOTONIC
        } else {
            0
        };
    }
    let mut bytes = Vec::new();
    bytes.extend(layout::MAGIC.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(ask.timer_hz.to_le_bytes());
    bytes.extend(ask.record.map_or(0, |record| record.chunks).to_le_bytes());
    bytes.extend(std::process::id().to_le_bytes());
    bytes.resize(size_of::<Control>(), 0);
    bytes
}

/// Free bytes of the file system.
fn room(path: &Path) -> io::Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: fills a structure of ours in.
    unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        match libc::statvfs(path.as_ptr(), &raw mut found) {
            0 => Ok(found.f_bavail * found.f_frsize),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
