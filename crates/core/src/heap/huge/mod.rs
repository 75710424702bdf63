//! Which chunks have huge pages (`huge_pages`), considering how fast the heap grows (`pace`) and
//! how much of their long runs programs write to (`touch`).
//!
//! Advice for a part of the heap makes it a mapping of its own: `borders` counts these.

pub(in crate::heap) mod borders;
pub mod huge_pages;
pub(in crate::heap) mod pace;
pub(in crate::heap) mod touch;
