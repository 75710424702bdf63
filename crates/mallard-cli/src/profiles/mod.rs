//! Heap profiles, for `profile`, `leak`, `top` and `export`.
//!
//! [`source`] reads them from files, processes and core files, and gives them names. [`program`]
//! runs a program to its end for its last profile.

pub mod program;
pub mod source;
