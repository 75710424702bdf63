//! A process's pool of chunks, read while its threads write them.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use crate::probe::chunks::{
    self, CHUNK_BYTES, CHUNK_RECORDS, CHUNKS_AT, CHUNKS_MAX, Head, POOL_BYTES, Record,
};
use crate::probe::layout;

#[derive(Debug)]
pub struct Pool {
    mapped: *mut chunks::Pool,
    file: PathBuf,
    /// The chunks that the process may use.
    chunks: usize,
}

// SAFETY: all access to the mapping is through atomics.
unsafe impl Send for Pool {}

/// A chunk, and the records that it holds so far.
#[derive(Debug)]
pub struct Chunk {
    pub index: usize,
    pub thread: u32,
    pub serial: u32,
    pub base: u64,
    /// The two words of each record.
    pub records: Vec<(u64, u64)>,
}

impl Pool {
    /// Maps the pool of a segment. None if its process does not record.
    pub fn of(segment: &Path) -> io::Result<Option<Pool>> {
        let mut file = segment.as_os_str().to_owned();
        file.push(chunks::SUFFIX);
        let file = PathBuf::from(file);
        let opened = match File::options().read(true).write(true).open(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        if opened.metadata()?.len() < POOL_BYTES as u64 {
            return Ok(None);
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let mapped = unsafe {
            libc::mmap(
                null_mut(),
                POOL_BYTES,
                protection,
                libc::MAP_SHARED,
                opened.as_raw_fd(),
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mut pool = Pool {
            mapped: mapped.cast(),
            file,
            chunks: 0,
        };
        let complete = pool.header().magic.load(Ordering::Acquire) == layout::MAGIC;
        // The process lowers this number when its file system is full, and keeps what it has then.
        pool.chunks = (pool.header().count.load(Ordering::Relaxed) as usize).min(CHUNKS_MAX);
        Ok(complete.then_some(pool))
    }

    pub fn header(&self) -> &chunks::Pool {
        // SAFETY: mapped as long as this lives, and of this length.
        unsafe { &*self.mapped }
    }

    fn head(&self, index: usize) -> *mut Head {
        self.mapped
            .wrapping_byte_add(CHUNKS_AT + index * CHUNK_BYTES)
            .cast()
    }

    fn records(&self, index: usize) -> &[Record] {
        // SAFETY: the records follow the head; all their fields are atomic. Only chunks whose
        // memory is reserved are read.
        unsafe {
            std::slice::from_raw_parts(self.head(index).add(1).cast::<Record>(), CHUNK_RECORDS)
        }
    }

    /// The numbers of the chunks in one of these states.
    pub fn in_states(&self, states: &[u32]) -> Vec<usize> {
        let all = self.header().states.iter().enumerate().take(self.chunks);
        all.filter(|(_, state)| states.contains(&state.load(Ordering::Acquire)))
            .map(|(index, _)| index)
            .collect()
    }

    /// Where a chunk belongs: its thread, serial number and base.
    pub fn place(&self, index: usize) -> (u32, u32, u64) {
        // SAFETY: the chunk's memory is reserved, and all fields are atomic.
        let head = unsafe { &*self.head(index) };
        let thread = head.thread.load(Ordering::Acquire);
        let serial = head.serial.load(Ordering::Relaxed);
        (thread, serial, head.base.load(Ordering::Relaxed))
    }

    /// Reads a chunk up to its last record.
    pub fn read(&self, index: usize) -> Chunk {
        let (thread, serial, base) = self.place(index);
        let mut records = Vec::with_capacity(CHUNK_RECORDS);
        for record in self.records(index) {
            let first = record.first.load(Ordering::Acquire);
            if first == 0 {
                break;
            }
            records.push((first, record.second.load(Ordering::Relaxed)));
        }
        Chunk {
            index,
            thread,
            serial,
            base,
            records,
        }
    }

    /// Gives a full chunk back, emptied of its records.
    pub fn release(&self, chunk: &Chunk) {
        for record in &self.records(chunk.index)[..chunk.records.len()] {
            record.first.store(0, Ordering::Relaxed);
        }
        let header = self.header();
        header.states[chunk.index].store(chunks::FREE, Ordering::Release);
        header.freed.fetch_add(1, Ordering::SeqCst);
        if header.waiting.load(Ordering::SeqCst) > 0 {
            // SAFETY: wakes the threads that wait on a word of the pool.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    &raw const header.freed,
                    libc::FUTEX_WAKE,
                    i32::MAX,
                )
            };
        }
    }

    /// Ends recording in this process. Threads notice it when their chunks are full.
    pub fn stop(&self) {
        self.header().stop.store(1, Ordering::Release);
    }

    /// Removes the file; the mapping stays.
    pub fn unlink(&self) {
        // A file that is left behind goes with the folder.
        let _ = fs::remove_file(&self.file);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: our mapping, used by nothing else.
        unsafe { libc::munmap(self.mapped.cast(), POOL_BYTES) };
    }
}
