//! Finds the module that an address is in: the program, a library, the vDSO.
//!
//! ```text
//!  glibc 2.35 and later    the loader's `_dl_find_object`, which takes no lock
//!  a static program        the program's own header, and the vDSO's, which the kernel names
//!  older glibc             a list of our own (`list`), which a thread outside `malloc` makes
//! ```

pub mod list;

cfg_if! {
    if #[cfg(not(loom))] {
        pub mod elf;
        mod find;

        pub use find::{Module, Modules};
    }
}
