//! Numbers for the call sites of requests and frees, with the call stack of each.
//!
//! ```text
//!  registers ─ key: return addresses and depth ─ table ─ number ─ stack
//!                  frames are skipped by what earlier walks found out about them
//!                                          └ new: walk, learn the frames, the stack's number
//! ```
//!
//! A *site* is a call stack, of at most 28 frames. A request finds the number of
//! its site by a key: the addresses that the calls return to, of the first [`begin`] frames outside
//! this library, and the depth of the stack there, modulo 4 KiB. Two stacks that agree in all of
//! that count as one site: that of the first. More frames tell more stacks apart, at some sixty
//! instructions each. The stack is walked when a key is new. Keys with equal stacks share a number,
//! so recursion makes few sites.
//!
//! The distance from a frame to its caller's is fixed for an instruction, except in functions that
//! take memory from the stack at run time. So the first walk through a call notes the distance. A
//! later walk that finds another one notes that the key ends there.
//!
//! There is no lock: tables only grow. Sites are never forgotten, so there are at most 65,535;
//! later ones have the number 0, as have those of requests while a fork is under way. If a module
//! is unloaded and another one takes its addresses, the stacks of both may be confused.

pub mod table;

cfg_if! {
    if #[cfg(not(loom))] {
        mod chosen;
        mod known;

        pub use chosen::{choose, is_chosen};
        pub use known::{Site, UNKNOWN, begin, site_of_request, stack};
    }
}
