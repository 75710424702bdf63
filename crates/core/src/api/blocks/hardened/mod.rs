//! Hardened blocks: where they lie, how they are freed, and what is reported of them.
//!
//! Slow paths come here, in a hardened process all of them, and for the blocks of an arena that is
//! hardened alone. `alloc::hardened` gives such blocks out.

mod free;
mod places;
mod report;

pub use free::{Freed, free, free_if_small, give_up};
pub use places::{
    Resized, bytes_in_use, dress, enter, enter_large, is_wanted, large_bytes, pages_for, place_for,
    resize, size_of,
};
