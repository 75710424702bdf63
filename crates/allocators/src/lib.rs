//! Every allocator on which the lab can run a program.
//!
//! The [`Catalog`] has the names: glibc, which every process has; Mallard, whose library this crate
//! embeds; the peers, which are built on first use from `bench/peers`; and libraries that the user
//! adds as `NAME=/path/lib.so`. [`Catalog::prepare`] finds or builds the library and runs a small
//! probe program under it. The probe asks the dynamic loader which object serves `malloc`, and
//! glibc whether it still supplies the memory. The result is an [`Allocator`]: a file, a version
//! and the environment for a measured process. An allocator that is not available becomes
//! [`Unavailable`] with the reason, never a failure of the session.
//!
//! [`program`] checks whether a library can be preloaded into a given program at all, and
//! [`probe::verify_in_target`] whether the loader really binds that program's `malloc` to the
//! requested allocator.
//!
//! [`conf`] asks an allocator whether it understands an option string.
//!
//! All functions are synchronous. Nothing here measures.

mod allocator;
mod builds;
mod cache;
mod catalog;
mod checks;
mod error;

pub use allocator::{Allocator, Kind, environment, environment_of_user};
pub use builds::workshop::{Progress, State};
pub use catalog::{Catalog, Settings, Standing, Unavailable};
pub use checks::{conf, probe, program};
pub use error::Error;

/// The functions of C that look at the block before they copy, a shared library to preload beside
/// Mallard's.
const CHECKED: &[u8] = include_bytes!(env!("MALLARD_CARRIED_CHECKED"));

/// Writes that library to the folder of cached files, if it is missing, and returns its path.
pub fn install_checked() -> Result<std::path::PathBuf, String> {
    install("libmallard_checked.so", CHECKED)
}

/// Writes a file that is to be preloaded to the folder of cached files, if it is missing, and
/// returns its path.
pub fn install(name: &str, content: &[u8]) -> Result<std::path::PathBuf, String> {
    cache::files::install(None, name, content)
}

/// The folder for all that the lab keeps between runs. An error is a sentence.
pub fn cache_folder() -> Result<std::path::PathBuf, String> {
    cache::files::cache_folder(None)
}
