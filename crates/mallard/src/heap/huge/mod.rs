//! Which chunks have huge pages (`huge_pages`), considering how fast the heap grows (`pace`) and
//! how much of their long runs programs write to (`touch`).

pub mod huge_pages;
pub(in crate::heap) mod pace;
pub(in crate::heap) mod touch;
