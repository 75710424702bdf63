//! The memory of a running process. Its threads are not stopped.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::{Fault, Memory, Piece};

/// Pieces that the system takes in one call.
const PIECES_MAX: usize = 512;
/// Lists of records of more bytes than this are taken for damaged.
const COPIED_BYTES_MAX: u64 = 16 << 30;

/// How memory is read.
#[derive(Debug)]
enum Way {
    /// `process_vm_readv`.
    Call,
    /// `/proc/PID/mem`, where a sandbox forbids the call.
    File(File),
}

/// A process whose memory can be read.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: u32,
    way: Way,
}

impl ProcessMemory {
    /// Chooses a way to read, by a try at an address that the process has.
    ///
    /// # Errors
    /// The system does not let this user read the process.
    pub fn open(pid: u32, some: u64) -> io::Result<ProcessMemory> {
        let by_call = read(pid, some, &mut [0]);
        let way = match by_call {
            Err(error) if error.raw_os_error() != Some(libc::EFAULT) => {
                let file = File::open(mallard_procfs::path(pid, "mem"));
                Way::File(file.map_err(|_| error)?)
            }
            _ => Way::Call,
        };
        Ok(ProcessMemory { pid, way })
    }
}

/// Reads a process's memory by the system's call, all or nothing.
///
/// # Errors
/// The system refuses, or no such memory is there.
pub fn read(pid: u32, at: u64, into: &mut [u8]) -> io::Result<()> {
    let wanted = into.len();
    match vm_read(pid, &mut [Piece { at, into }])? {
        copied if copied == wanted => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// Copies the pieces, up to [`PIECES_MAX`].
fn vm_read(pid: u32, pieces: &mut [Piece<'_>]) -> io::Result<usize> {
    let mut here = Vec::with_capacity(pieces.len());
    let mut there = Vec::with_capacity(pieces.len());
    for piece in pieces {
        here.push(libc::iovec {
            iov_base: piece.into.as_mut_ptr().cast(),
            iov_len: piece.into.len(),
        });
        there.push(libc::iovec {
            iov_base: piece.at as *mut libc::c_void,
            iov_len: piece.into.len(),
        });
    }
    let count = here.len() as libc::c_ulong;
    // SAFETY: the vectors of this process are exclusive borrows of their lengths; those of the
    // other process are only read there, and checked by the system.
    let copied = unsafe {
        libc::process_vm_readv(
            pid as libc::pid_t,
            here.as_ptr(),
            count,
            there.as_ptr(),
            count,
            0,
        )
    };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

impl Memory for ProcessMemory {
    fn read(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        match &self.way {
            Way::Call => {
                for part in pieces.chunks_mut(PIECES_MAX) {
                    let wanted: usize = part.iter().map(|piece| piece.into.len()).sum();
                    let copied = vm_read(self.pid, part).unwrap_or(0);
                    if copied < wanted {
                        return Err(Fault {
                            at: place_of(part, copied),
                        });
                    }
                }
            }
            Way::File(file) => {
                for piece in pieces {
                    file.read_exact_at(piece.into, piece.at)
                        .map_err(|_| Fault { at: piece.at })?;
                }
            }
        }
        Ok(())
    }

    fn most_bytes(&self) -> u64 {
        COPIED_BYTES_MAX
    }

    fn is_running(&self) -> bool {
        true
    }

    fn page_bytes(&self) -> u64 {
        mallard_procfs::page_bytes()
    }
}

/// Where copying stopped after so many bytes.
fn place_of(pieces: &[Piece<'_>], mut copied: usize) -> u64 {
    for piece in pieces {
        if copied < piece.into.len() {
            return piece.at.wrapping_add(copied as u64);
        }
        copied -= piece.into.len();
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_whole_or_not_at_all() {
        let word = 0x1234_5678_u64.to_le_bytes();
        let mut copy = [0; 8];
        let me = std::process::id();
        read(me, word.as_ptr() as u64, &mut copy).unwrap();
        assert_eq!(copy, word);
        assert!(read(me, 8, &mut copy).is_err());
        let memory = ProcessMemory::open(me, word.as_ptr() as u64).unwrap();
        assert_eq!(memory.copy(8, &mut copy), Err(Fault { at: 8 }));
    }
}
