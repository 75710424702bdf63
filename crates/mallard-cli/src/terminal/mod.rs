//! What the user's terminal or shell gets: standard [`output`], [`progress`] on standard error, and
//! the code of [`exit`].

pub mod exit;
pub mod output;
pub mod progress;
pub mod reminder;
