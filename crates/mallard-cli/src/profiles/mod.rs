//! Heap profiles, for `profile`, `leak`, `top` and `export`.
//!
//! [`source`] reads them from files, processes and core files, and gives them names; [`several`]
//! puts profiles together. [`program`] runs a program to its end for the last profiles of its
//! processes, which are its [`members`]; [`followed`] keeps those of one that is only followed, and
//! [`table`] lists them. [`frames`] names those of a report. [`save`] writes a file.

mod files;
pub mod followed;
pub mod frames;
pub mod members;
pub mod program;
pub mod several;
pub mod source;
pub mod table;

pub use files::save;
