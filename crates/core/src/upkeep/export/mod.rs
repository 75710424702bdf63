//! When the page of statistics for other processes is due.
//!
//! - By default a process has no page before it holds [`AUTO_FROM_BYTES`] bytes and is [`OLD_NS`]
//!   old. A tick then costs two loads and a comparison.
//! - The page exists: it is due when [`EVERY_MS`] have passed, or when a reader asks for something.
//!   The background thread publishes, if there is one, or else a thread that has just got
//!   memory past the fast paths ([`pending`]). Ticks notice both.
//! - A process whose threads make no slow events has no ticks: its figures stand, and requests
//!   wait. Slow events that were the last ones for a long time are often those that changed most:
//!   the page is due at once when the pages that hold blocks have doubled or halved since it was
//!   published, a few times in [`EVERY_MS`]; then a thread that frees memory publishes, too.
//!
//! `stats::page` makes and writes the page; `mallard_formats::page` has its layout.

pub mod page;

use super::background_state;
use crate::arena;
use crate::sys::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, settle};
use crate::sys::pending::{self, PendingWork};
use crate::sys::published::Published;
use crate::sys::time;
use page::StatsPage;

/// Milliseconds between two publications.
pub const EVERY_MS: u64 = 250;
/// Bytes of pages that hold blocks, below which a process has no page unless asked.
const AUTO_FROM_BYTES: usize = 8 * 1024 * 1024;
/// Nanoseconds of age below which a process has no page unless asked.
const OLD_NS: u64 = 1_000_000_000;

/// Which processes have a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Never,
    /// Processes of some size and age, in their own memory.
    Auto,
    /// All processes, in memory that other processes of the user can open.
    Always,
}

/// Bytes of pages that hold blocks, from which ticks check further.
static PAGE_FROM_BYTES: AtomicUsize = AtomicUsize::new(AUTO_FROM_BYTES);
/// Whether others can open the page's memory.
static IS_SHARED: AtomicBool = AtomicBool::new(false);
/// The page; none before it exists.
static PAGE: Published<StatsPage> = Published::none();
/// No publication before this time, unless memory in use has doubled or halved since the last one.
static NEXT_MS: AtomicU64 = AtomicU64::new(0);
/// Bytes of pages that held blocks at the last publication.
static PUBLISHED_BYTES: AtomicUsize = AtomicUsize::new(0);
/// How many publications may come before their time.
static EARLY_LEFT: AtomicU8 = AtomicU8::new(0);
/// How many publications may come before their time in [`EVERY_MS`].
const EARLY_MAX: u8 = 8;

pub fn configure(mode: Mode) {
    settle!(
        PAGE_FROM_BYTES,
        match mode {
            Mode::Never => usize::MAX,
            Mode::Auto => AUTO_FROM_BYTES,
            Mode::Always => 0,
        }
    );
    if mode == Mode::Always {
        IS_SHARED.store(true, Ordering::Relaxed);
        pending::add(PendingWork::Page);
    }
}

/// Whether other processes should be able to open the page's memory.
pub fn is_shared() -> bool {
    IS_SHARED.load(Ordering::Relaxed)
}

/// The page, if it exists.
pub fn page() -> Option<&'static StatsPage> {
    PAGE.get()
}

/// Replaces the page, or forgets it. The calling thread is alone, or there is none yet.
pub fn set_page(page: Option<&'static StatsPage>) {
    // However little the process holds from now on, its figures should be true.
    PAGE_FROM_BYTES.store(0, Ordering::Relaxed);
    match page {
        Some(page) => PAGE.set(page),
        None => PAGE.forget(),
    }
}

/// Notices what is due. For ticks.
#[inline(always)]
pub fn check() {
    if arena::footprint() >= PAGE_FROM_BYTES.load(Ordering::Relaxed) {
        check_further();
    }
}

#[cold]
#[inline(never)]
fn check_further() {
    let is_due = match page() {
        Some(page) if page.request().is_some() => true,
        Some(_) => (is_time() || is_another_heap()) && !background_state::attends(),
        None => is_time() && (is_shared() || is_old()),
    };
    if is_due {
        pending::add(PendingWork::Page);
    }
}

/// Whether the process's first arena is old enough.
fn is_old() -> bool {
    let born = arena::any().map_or(u64::MAX, |arena| arena.born_ns());
    time::now_ns() >= born.saturating_add(OLD_NS)
}

/// Whether the page is due by the clock.
pub fn is_time() -> bool {
    time::now_ms() >= next()
}

/// Whether memory in use has doubled or halved since the last publication, and another one may come
/// before its time. After a heap that shrank there is always one left for when it grows again: the
/// figures of a program that exchanges a large block now and then must not be those in between.
#[cold]
#[inline(never)]
pub fn is_another_heap() -> bool {
    let (now, then) = (arena::footprint(), PUBLISHED_BYTES.load(Ordering::Relaxed));
    let needed = 1 + u8::from(now < then);
    let is_other = now.abs_diff(then) >= now.min(then).max(AUTO_FROM_BYTES);
    is_other && EARLY_LEFT.load(Ordering::Relaxed) >= needed
}

/// When the page is due next.
pub fn next() -> u64 {
    NEXT_MS.load(Ordering::Relaxed)
}

/// A publication begins: the next one is due later. For one thread at a time.
pub fn put_off() {
    let now = time::now_ms();
    let early = if now >= next() {
        EARLY_MAX
    } else {
        EARLY_LEFT.load(Ordering::Relaxed).saturating_sub(1)
    };
    EARLY_LEFT.store(early, Ordering::Relaxed);
    PUBLISHED_BYTES.store(arena::footprint(), Ordering::Relaxed);
    // A page that is published early does not move the next one.
    if early == EARLY_MAX {
        NEXT_MS.store(now + EVERY_MS, Ordering::Relaxed);
    }
}

/// In the child of a fork, or of another call that copies the process.
pub fn after_fork() {
    NEXT_MS.store(0, Ordering::Relaxed);
    if is_shared() {
        set_page(None);
        pending::add(PendingWork::Page);
    }
}
