//! Reads the statistics of running processes on Mallard from outside, and sends them requests.
//!
//! - [`scan`] finds the processes by `/proc`; [`process`] is what is known of one.
//! - [`source`] finds a process's page of statistics and reads it: by the descriptor of its memory,
//!   which processes with `export_stats:true` have, or else from the process's memory, where the
//!   root block of [`image`] leads.
//! - [`memory`] is that of any process, running or dead: `mallard_profile` reads its records by it.
//! - [`core_file`] reads the page in a core file.
//! - [`page`] has the words of a page, whose layout is a promise of the allocator
//!   ([`mallard_formats::page`]); [`snapshot`] is what a page says, with names.
//! - [`metrics`] writes the figures for Prometheus.
//! - [`request`] asks a process for something.
//!
//! Nothing here stops a process, and nothing is written into its memory but a request that the
//! caller has explicitly allowed ([`request::Consent`]).

pub mod memory;
pub mod metrics;
pub mod page;
pub mod process;
pub mod request;
pub mod scan;
pub mod snapshot;
pub mod source;

pub use source::{core_file, image};

use std::io;

/// Why a process cannot be read or asked. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no process {0}")]
    Gone(u32),
    #[error("process {0} belongs to another user")]
    Foreign(u32),
    #[error("the system does not let this user look at process {0}")]
    Hidden(u32),
    #[error(
        "process {0} keeps its statistics in its own memory, which only a debugger of it may read: \
         run this as root, or start the process with MALLOC_CONF=export_stats:true"
    )]
    Refused(u32),
    #[error("process {0} does not run on Mallard")]
    NoMallard(u32),
    #[error(
        "process {0} has no statistics yet: it is younger than a second or holds less than 8 MiB, or \
         was started with export_stats:false"
    )]
    NoPage(u32),
    #[error("process {pid} has statistics of layout {layout}; this command reads layout {known}")]
    Version { pid: u32, layout: u32, known: u32 },
    #[error("process {0} stopped while it wrote its statistics; try again when it runs")]
    Torn(u32),
    #[error("the statistics of process {0} are damaged")]
    Damaged(u32),
    #[error(
        "process {0} was not started with MALLOC_CONF=export_stats:true; add --write-memory to send \
         the request all the same, which writes eight bytes into its memory"
    )]
    NeedsConsent(u32),
    #[error(
        "process {0} has not answered yet: it allocates nothing at the moment, or only what its \
         caches hold; the request stays with it until a cache runs empty or full"
    )]
    NoAnswer(u32),
    #[error("process {0} does not know this request: its Mallard is older")]
    Unknown(u32),
    #[error("process {0} could not do that; its standard error says why")]
    Failed(u32),
    #[error(transparent)]
    Core(#[from] memory::core::Error),
    #[error("process {pid}: {error}")]
    System { pid: u32, error: io::Error },
}

impl Error {
    /// The meaning of a failure of the system's with the list of a process's files or mappings.
    pub(crate) fn of_files(pid: u32, error: io::Error) -> Error {
        match Error::of(pid, error) {
            Error::Refused(_) => Error::Hidden(pid),
            error => error,
        }
    }

    /// The meaning of a failure of the system's with the memory of a process.
    pub(crate) fn of(pid: u32, error: io::Error) -> Error {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Error::Gone(pid),
            Some(libc::EACCES | libc::EPERM) => match process::is_ours(pid) {
                Some(false) => Error::Foreign(pid),
                Some(true) => Error::Refused(pid),
                None => Error::Gone(pid),
            },
            _ => Error::System { pid, error },
        }
    }
}

pub type Result<T> = std::result::Result<T, Error>;
