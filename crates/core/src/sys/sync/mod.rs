//! How threads keep out of each other's way, and wait.
//!
//! `lock` is the only kind of lock, and `rank` the order in which locks are taken. `bell` wakes a
//! sleeping thread, `gate` keeps forks and calls apart, and `flag` is a lock for the time in which
//! a hook of the program runs. `published` has references that are set once, `helper` the state of
//! the background thread, and `pending` what threads should do once they hold no lock. `seqlock`
//! lets other processes read words that change. `meter` keeps a lock's statistics.

pub mod bell;
pub mod gate;
pub mod helper;
pub mod lock;
pub mod meter;
pub mod published;
pub mod rank;
pub mod seqlock;

cfg_if! {
    if #[cfg(not(loom))] {
        pub mod pending;
        pub mod flag;
    }
}
