//! Guarded blocks: a few requests a second get a block between pages that nobody may touch.
//!
//! - `slots` has the records of the blocks, `pool` their pages;
//! - `handler` receives the faults of accesses beside blocks and to freed ones;
//! - `report` says which `finding` a misuse is, and tells it;
//! - `rate` bounds how many blocks are guarded, and what looking for them costs;
//! - `blocks` gives guarded blocks out and takes them back, and `switch` switches all of it.
//!
//! The pool lies outside all segments. So the paths of ordinary blocks know nothing of it: a free
//! of a guarded block, or a question about one, takes the slow path, finds no segment, and asks
//! here ([`free`], [`size_of`]). Which requests get one is the profiler's business
//! (`prof::guards`): it counts bytes, and hides the stacks of requests meanwhile. In a process that
//! allocates fast, it stops that after each guarded block, until the next one may be given out
//! (`rate`). While guards are off there is no instruction, no page, and no handler.
//!
//! `docs/guards.md` is the user's chapter.

mod slots;

cfg_if! {
    if #[cfg(not(loom))] {
        mod blocks;
        mod finding;
        mod handler;
        mod pool;
        mod rate;
        mod report;
        mod switch;

        pub use blocks::{free, size_of};
        pub use pool::{Side, contains, lock};
        pub use rate::go_on;
        pub use switch::{Settings, Totals, is_on, off, on, totals};
    }
}
