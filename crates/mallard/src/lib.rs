//! Mallard: a general-purpose memory allocator for Linux, as a Rust program's allocator.
//!
//! # Use
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: mallard::Mallard = mallard::Mallard;
//!
//! let numbers: Vec<u32> = (0..1000).collect();
//! assert_eq!(numbers[999], 999);
//! ```
//!
//! Options come from `/etc/malloc.conf` and the variables `MALLOC_CONF` and `MALLARD_CONF`.
//!
//! - [`metrics`] returns figures of the process, for its own use or for Prometheus.
//! - [`ctl`] reads and sets everything that jemalloc's `mallctl` has, by the same names.
//! - [`profile`] starts and stops the heap profiler and writes profiles.
//! - [`arena_of`] says which arena a block is of, if it is one of Mallard's.
//! - [`print_stats`] prints the report of `malloc_stats_print`.
//!
//! The allocator serves the Rust side of the program. C libraries in it call the C library's
//! `malloc`, unless the program is linked with `libmallard` too, or runs with it preloaded.
//!
//! It depends only on `libc`, never allocates through another allocator, prints nothing unless
//! asked, and preserves `errno`. It runs on Linux on x86-64 and AArch64, with glibc or musl. The
//! crate has no features. All functions may be called from any thread.
//!
//! This crate is the face of the allocator for Rust programs: `docs/versioning.md` says what of it
//! is promised. What is inside is `mallard-core`, which changes without notice.

#![no_std]

pub use mallard_core::api::arenas::lookup as arena_of;
pub use mallard_core::stats_print::print as print_stats;
pub use mallard_core::{ClassMetrics, Mallard, Metrics, MetricsFormat, metrics};

/// The names of `mallctl`: numbers and texts that a program reads and sets while it runs.
///
/// ```
/// use mallard::ctl;
///
/// let page: usize = ctl::read("arenas.page")?;
/// assert!(page >= 4096);
/// // SAFETY: the name takes a number.
/// unsafe { ctl::write("arenas.dirty_decay_ms", 5000isize) }?;
/// # Ok::<(), ctl::Error>(())
/// ```
pub mod ctl {
    pub use mallard_core::ctl::{
        CType, Error, Request, by_mib, by_name, name_to_mib, read, text, write,
    };
}

/// The heap profiler.
///
/// Sampling can be switched on in any process, whatever the option `prof` says; the other options
/// of the profiler say how.
///
/// ```no_run
/// use mallard::profile;
///
/// profile::start();
/// let kept: Vec<String> = (0..1_000_000).map(|n| n.to_string()).collect();
/// profile::stop();
/// // On failure, a line on standard error has said why.
/// profile::dump(Some(c"kept.heap")).expect("the profile is written");
/// drop(kept);
/// ```
pub mod profile {
    pub use mallard_core::api::profile::{
        dump, is_active, lg_sample, reset, set_active, set_thread_active, set_thread_name, start,
        stop, thread_active,
    };
}
