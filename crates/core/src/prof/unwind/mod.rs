//! Walks the calling thread's stack, from within `malloc` or a signal handler.
//!
//! ```text
//!  pc ─ module (`modules`) ─ cached rules (`cache`), or rules of the module's table (`table`)
//!      ─ the caller's pc, sp and fp, read from the stack (`step`, `memory`) ─ again
//! ```
//!
//! Invariants: nothing is allocated, no lock is taken, nothing waits, `errno` stays, and no memory
//! faults, whatever the tables and the stack contain: bytes of tables are read within the bounds of
//! their segment (`bytes`), and a word of the stack only where the kernel says that it is there. A
//! wrong table gives a short or a wrong stack. The caller provides the memory for the cache and,
//! for old C libraries, for the list of modules; without either, walks work too.

pub mod cache;
pub mod modules;

cfg_if! {
    if #[cfg(not(loom))] {
        mod bytes;
        mod frames;
        mod memory;
        mod registers;
        mod step;
        mod table;
        mod tag;
        mod walk;
        #[cfg(test)]
        mod tests;

        // Only tests look at a walk itself.
        #[cfg(test)]
        pub use frames::{End, OMITTED, Walk};
        pub use frames::{NOTED_MAX, Noted};
        pub use registers::Registers;
        pub use walk::{capture, capture_interrupted, capture_noting, modules, set_cache};
    }
}
