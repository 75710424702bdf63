//! The checked library: `libmallard_checked.so`, which is preloaded beside the allocator.
//!
//! It defines the functions of C that copy: `memcpy`, `memmove`, `mempcpy`, `memset`, `strcpy`,
//! `stpcpy`, `strncpy`, `strcat` and `strncat`. Each asks the allocator for the block that the
//! destination lies in (`malloc_object_size`) and ends the process with one line if the copy would
//! leave the block, before a byte is written; else the C library's own function runs. What is on
//! the stack, or in no block, is not checked, nor is a copy that the compiler made part of the
//! program.
//!
//! The loader, and the resolvers of indirect functions, may copy before this library is relocated.
//! Until its constructor has found the real functions ([`real`]), the functions here are plain
//! loops that read no address that the loader fills in. Nothing here allocates, takes a lock or
//! changes `errno`.

#![no_std]
#![no_builtins]

mod arch;
mod check;
mod functions;
#[expect(dead_code, reason = "the probe needs more")]
#[path = "../../probe/src/allocator/loader.rs"]
mod loader;
#[path = "../../probe/src/panicking.rs"]
mod panicking;
mod real;
