//! Makes and publishes the page of statistics that other processes read.
//!
//! `upkeep::export` says when; `gather` takes the figures. They are gathered beside the page and
//! then copied, so that the page is whole but for a microsecond, and a process that is stopped or
//! killed leaves a readable page. By default the page is a record in the process's own memory, and
//! no system call is made for it. With `export_stats:true` it is a file without a name that is
//! mapped ([`memfd`](crate::sys::memfd)).
//!
//! The child of a fork makes its own file. A child that the C library does not know of finds that
//! it is another process than the page's, and goes on in memory of its own.

mod gather;
mod own;

pub use own::{Record, Words};

use crate::cache::inside;
use crate::prof;
use crate::space::meta;
use crate::sys::lock::{Mutex, RawLock};
use crate::sys::mem;
use crate::sys::memfd::Shared;
use crate::sys::rank::Rank;
use crate::sys::spread::SPREAD_FACTOR;
use crate::sys::time;
use crate::upkeep::export::page::StatsPage;
use crate::upkeep::export::{self, put_off};
use core::ptr::NonNull;
use mallard_formats::page::{ABOUT, About, CLASSES, FIGURES, MEMORY_NAME, TOTALS, Total};

struct State {
    shared: Option<Shared>,
    /// Where figures are gathered.
    figures: Option<NonNull<[u64; FIGURES]>>,
    /// The most bytes in use at a publication.
    peak: u64,
    /// Publications so far.
    count: u64,
    /// Nanoseconds that the last one took.
    cost: u64,
    /// A sum over the figures that tell whether the program did anything.
    sum: u64,
}

// SAFETY: the state owns its figures.
unsafe impl Send for State {}

static STATE: Mutex<State> = Mutex::named(
    Rank::Page,
    State {
        shared: None,
        figures: None,
        peak: 0,
        count: 0,
        cost: 0,
        sum: 0,
    },
);

/// Publishes, and makes the page before that if there is none. Returns whether the program did
/// anything since the last time. For a thread that holds no lock.
#[cold]
#[inline(never)]
pub fn publish() -> bool {
    let Some(_inside) = inside::enter() else {
        return true;
    };
    let Some(mut state) = STATE.try_lock() else {
        return true;
    };
    put_off();
    // Without memory, the next tick tries again.
    state.publish().unwrap_or(false)
}

impl State {
    fn publish(&mut self) -> Option<bool> {
        let page = match export::page() {
            Some(page) if is_ours(page) => page,
            Some(_) => self.make_in_memory()?,
            None => self.make()?,
        };
        let begun = time::now_ns();
        // SAFETY: `make` took the record, which only the holder of the lock uses.
        let figures = unsafe { self.figures?.as_mut() };
        gather::gather(figures);
        let allocated = figures[TOTALS.first + Total::Allocated as usize];
        self.peak = self.peak.max(allocated);
        self.count += 1;
        figures[TOTALS.first + Total::Peak as usize] = self.peak;
        figures[TOTALS.first + Total::Cost as usize] = self.cost;
        let sum = sum(figures);
        // This may be the child of a fork in the handler of a signal that came meanwhile.
        if !is_ours(page) {
            return None;
        }
        let now = time::now_ns();
        figures[ABOUT.first + About::Count as usize] = self.count;
        figures[ABOUT.first + About::Published as usize] = now;
        page.publish(figures);
        self.cost = now - begun;
        Some(core::mem::replace(&mut self.sum, sum) != sum)
    }

    /// Makes the page, and room for the figures.
    fn make(&mut self) -> Option<&'static StatsPage> {
        if self.figures.is_none() {
            let room = meta::take_apart(size_of::<[u64; FIGURES]>())?;
            self.figures = Some(room.cast());
        }
        if !export::is_shared() {
            return self.make_in_memory();
        }
        self.shared = Shared::make(
            MEMORY_NAME,
            mem::round_up(size_of::<StatsPage>(), mem::os_page()),
        );
        match self.shared {
            // SAFETY: the mapping is zeros, this long, and stays until a fork's child leaves it.
            Some(shared) => self.begin(unsafe { &*(shared.at() as *const StatsPage) }, process()),
            None => self.make_in_memory(),
        }
    }

    /// Makes the page in memory of this process alone.
    fn make_in_memory(&mut self) -> Option<&'static StatsPage> {
        let page = meta::take_apart(size_of::<StatsPage>())?.cast::<StatsPage>();
        // SAFETY: a record of zeros that is never freed; the page consists of atomics.
        self.begin(unsafe { page.as_ref() }, 0)
    }

    fn begin(&mut self, page: &'static StatsPage, pid: u32) -> Option<&'static StatsPage> {
        page.begin(pid);
        export::set_page(Some(page));
        prof::set_page(page);
        Some(page)
    }
}

/// Whether the page is in this process's memory alone, or its file.
fn is_ours(page: &StatsPage) -> bool {
    page.pid() == 0 || page.pid() == process()
}

fn process() -> u32 {
    // SAFETY: getpid has no preconditions.
    unsafe { libc::getpid() as u32 }
}

/// A sum that changes when the program allocates or frees, or memory is returned.
fn sum(figures: &[u64; FIGURES]) -> u64 {
    let memory = &figures[TOTALS.first..TOTALS.first + Total::Peak as usize];
    let classes = &figures[CLASSES.first..CLASSES.first + CLASSES.rows * CLASSES.width];
    let mix = |sum: u64, &n: &u64| (sum ^ n).wrapping_mul(SPREAD_FACTOR).rotate_left(29);
    memory.iter().chain(classes).fold(0, mix)
}

/// Gathers the figures of this moment for a reader in the process. None are published.
fn gather_now(figures: &mut [u64; FIGURES]) {
    gather::gather(figures);
    let allocated = figures[TOTALS.first + Total::Allocated as usize];
    let mut peak = allocated;
    if let Some(mut state) = STATE.try_lock() {
        state.peak = state.peak.max(allocated);
        peak = state.peak;
        figures[ABOUT.first + About::Count as usize] = state.count;
    }
    figures[TOTALS.first + Total::Peak as usize] = peak;
    figures[ABOUT.first + About::Published as usize] = time::now_ns();
}

/// In the child of a fork, which has one thread. If the fork came while that published, the
/// parent's file stays mapped.
pub fn after_fork() {
    export::after_fork();
    if let Some(mut state) = STATE.try_lock()
        && let Some(shared) = state.shared.take()
    {
        // Until the child makes a page, the root must not lead to its parent's.
        prof::forget_page();
        shared.leave();
    }
}

/// The lock of the page, for `fork`.
pub fn lock() -> &'static RawLock {
    STATE.raw()
}

/// The figures last gathered, for tests of the layers above.
#[cfg(test)]
pub fn figure(section: mallard_formats::page::Section, row: usize, word: usize) -> u64 {
    let state = STATE.lock();
    // SAFETY: as in `publish`.
    let figures = unsafe { state.figures.expect("published").as_ref() };
    figures[section.first + row * section.width + word]
}
