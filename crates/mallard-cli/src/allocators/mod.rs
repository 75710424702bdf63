//! Allocators for a command: which it uses ([`choice`]), how they become ready ([`preparation`]),
//! and in what form they are preloaded ([`preload`]).

pub mod choice;
pub mod preload;
pub mod preparation;
