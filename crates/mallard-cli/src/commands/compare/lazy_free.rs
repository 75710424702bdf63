//! Pages of a compared program that the kernel may take at any time (LazyFree): they are resident,
//! but cost nothing. An allocator that returns memory by `MADV_FREE` would look larger than it is.
//!
//! While the program runs, its largest process is read once a second. The pages of this kind in the
//! reading with the most resident memory are subtracted from the peak.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use mallard_procfs::memory::{Rollup, resident};
use mallard_procfs::{family, is_alive};
use mallard_report::model::{Cell, Run};
use mallard_report::units;
use mallard_runner::Purpose;
use mallard_watch::clock::cpu_time;

use super::hooks::Prepare;
use crate::race::{Beside, Failed};

/// When a program is looked at first, and how often then.
const FIRST_LOOK_TIME: Duration = Duration::from_millis(100);
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A look reads the page tables. Where that takes more CPU time, it is the last one of the run.
const LOOK_TIME_MAX: Duration = Duration::from_millis(5);
/// How often to ask whether the program has ended.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// What the report's settings say.
pub const SETTING: (&str, &str) = (
    "peak RSS",
    "of the largest process, without pages that the kernel may take at will (LazyFree, once a second)",
);

/// Watches the programs of a race, after the command of `--prepare` if there is one.
pub struct Watched<'a> {
    prepare: Option<Prepare<'a>>,
    most: Mutex<Look>,
}

/// A look at the largest process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Look {
    rss: u64,
    lazy: Option<u64>,
}

impl<'a> Watched<'a> {
    pub fn new(prepare: Option<Prepare<'a>>) -> Watched<'a> {
        Watched {
            prepare,
            most: Mutex::default(),
        }
    }

    /// The first failure of `--prepare`, if there was one.
    pub fn failure(&self) -> Option<String> {
        self.prepare.as_ref()?.failure()
    }

    /// Takes the pages off the peak of the run that has just ended.
    pub fn correct(&self, run: Run) -> Run {
        let lazy = std::mem::take(&mut *self.lock()).lazy;
        Run {
            peak_rss_bytes: run.peak_rss_bytes.saturating_sub(lazy.unwrap_or(0)),
            lazy_free_bytes: lazy.or(run.lazy_free_bytes),
            ..run
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Look> {
        // Assignments replace the whole value, so a poisoned lock is harmless.
        self.most
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }
}

impl Beside for Watched<'_> {
    fn before(&self, purpose: Purpose) -> Result<(), String> {
        match &self.prepare {
            Some(prepare) => prepare.before(purpose),
            None => Ok(()),
        }
    }

    fn drive(&self, pid: u32, _: Purpose) -> Result<(), Failed> {
        *self.lock() = Look::default();
        let begun = Instant::now();
        let mut next = FIRST_LOOK_TIME;
        while is_alive(pid) {
            std::thread::sleep(END_CHECK_INTERVAL);
            if begun.elapsed() < next {
                continue;
            }
            next = begun.elapsed() + LOOK_INTERVAL;
            let Some((look, took)) = look(pid) else {
                continue;
            };
            let mut most = self.lock();
            if look.rss >= most.rss {
                *most = look;
            }
            if took > LOOK_TIME_MAX {
                break;
            }
        }
        Ok(())
    }

    fn ends_row(&self) -> bool {
        self.failure().is_some()
    }

    fn may_repeat(&self) -> bool {
        self.prepare.is_none()
    }
}

/// A look, and the CPU time of reading the page tables: on a busy machine, a short look also waits.
fn look(pid: u32) -> Option<(Look, Duration)> {
    let sizes = family::of(pid).into_iter();
    let sizes = sizes.filter_map(|process| Some((resident(process)?, process)));
    let (rss, largest) = sizes.max()?;
    let begun = cpu_time();
    let lazy = Rollup::of(largest).ok()?.lazy_free;
    let look = Look {
        rss,
        lazy: Some(lazy),
    };
    Some((look, cpu_time().saturating_sub(begun)))
}

/// What was taken off, as a sentence; nothing if that is nothing.
pub fn sentence(cells: &[Cell]) -> String {
    let most = |cell: &Cell| {
        let all = cell.runs.iter().filter_map(|run| run.lazy_free_bytes);
        all.max().filter(|bytes| *bytes > 0)
    };
    let each: Vec<String> = cells
        .iter()
        .filter_map(|cell| {
            Some(format!(
                "{} {}",
                cell.allocator,
                units::bytes(most(cell)? as f64)
            ))
        })
        .collect();
    if each.is_empty() {
        String::new()
    } else {
        format!(
            "Peak RSS leaves out what the kernel may take at will (LazyFree), at most: {}.",
            each.join(", ")
        )
    }
}
