//! Checks before anything is measured: of a library, of a program, and of both together.

pub mod conf;
pub(crate) mod elf;
pub mod probe;
pub mod program;
pub(crate) mod system;
