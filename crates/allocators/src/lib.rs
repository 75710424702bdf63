//! Every allocator that the lab can put under a program.
//!
//! The [`Catalog`] knows the names: glibc, which every process has; Mallard, whose library this
//! crate carries inside itself; the peers, built on first use from `bench/peers`; and whatever the
//! user adds as `NAME=/path/lib.so`. Preparing a name ([`Catalog::prepare`]) finds or builds its
//! library and then runs a small probe program under it, which asks the dynamic loader who serves
//! `malloc` and asks glibc whether the memory came from there after all. What comes out is an
//! [`Allocator`]: a file, a version and the environment that a measured process needs. A name that
//! cannot be had comes out as [`Unavailable`] with its reason, never as a failure of the run.
//!
//! [`program`] is the other half: whether a library can be preloaded into a given program at all,
//! and ([`probe::verify_in_target`]) whether the loader really binds that program's `malloc` to the
//! allocator asked for.
//!
//! Everything is synchronous. Nothing here measures.

mod allocator;
mod carried;
mod catalog;
mod clean;
pub mod counting;
mod elf;
mod error;
mod peers;
pub mod probe;
pub mod program;
mod workshop;

pub use allocator::{Allocator, Kind, environment};
pub use catalog::{Catalog, Settings, Standing, Unavailable};
pub use error::Error;
pub use workshop::{Progress, State};
