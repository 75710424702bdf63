//! Histories of calls that are read from bytes, for the tests beside this folder and the fuzzer
//! (`fuzz/`), which includes it.

#![allow(dead_code, reason = "each user runs some of them")]

pub mod bytes;
pub mod child;
pub mod heap;
pub mod hooks;
pub mod misuse;
#[path = "../../model/pattern.rs"]
mod pattern;
