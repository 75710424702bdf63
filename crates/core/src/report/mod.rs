//! What is told about a misuse: lines of text, and a line of JSON in a file.
//!
//! - `finding` says what there is to tell, `text` and `json` write it;
//! - `print` writes both out, without a lock that anything but another report holds, and without
//!   memory;
//! - `ends` records the misuses for which the default checks end the process.
//!
//! Frames are given as a file with an offset in it and its build id. `mallard guard --names` adds
//! the functions.

mod ends;
mod finding;
mod json;
mod print;
mod text;

pub use ends::append_to;
pub use finding::{Block, Damage, Event, Finding, FoundBy};
pub use print::{begin, is_ready, print, stack_of_this_thread, stack_top, thread};

/// The most frames of a stack in a report.
pub const FRAMES_MAX: usize = 28;
