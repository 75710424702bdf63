//! What `/proc` says of processes and threads, and how a program that was just written is started.
//!
//! This is the lab's only reader of these files: [`stat`] for states and times, [`memory`] for
//! resident memory, [`mapping`] for the files that a process has mapped, [`family`] for the
//! processes that it started, [`about`] for its command line, environment and container, [`cpus`]
//! for lists of CPUs, [`kernel`] for the kernel's version. It decides nothing. The crates that
//! watch, serve and profile processes are built on it, and it depends on none of ours.
//!
//! - A process may end at any time. Then there is no answer, or an error; never a panic.
//! - Names, paths, arguments and variables may have any bytes: the kernel cuts the name of a thread
//!   after 15 bytes, also within a character. Bytes that are not UTF-8 are replaced, as by
//!   [`String::from_utf8_lossy`], and hide nothing else.
//!
//! The crate `procfs` is not used: it refuses all mappings of a process if the path of one is not
//! UTF-8, and a thread's `syscall` if the thread is in a page fault.

pub mod about;
pub mod cpus;
pub mod family;
pub mod kernel;
pub mod mapping;
pub mod memory;
pub mod start;
pub mod stat;

use std::path::PathBuf;

pub use stat::{Stat, is_alive};

/// The path of a file about a process.
pub fn path(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// Bytes of the system's page.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// The numbers of all processes.
pub fn all() -> Vec<u32> {
    numbers("/proc".into())
}

/// The numbers of the threads of a process; none if it is gone.
pub fn threads(pid: u32) -> Vec<u32> {
    numbers(path(pid, "task"))
}

/// The entries of a folder that are numbers.
fn numbers(folder: PathBuf) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The text of a file of `/proc`; none if it cannot be read.
fn text(path: PathBuf) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
