//! Progress output while the lab runs: the current work, the share that is done and the time left.
//!
//! On a terminal, one line is redrawn, and each finished piece of work leaves a line above it. A
//! log or pipe gets the lines of finished work, and [a line from time to time](Reminder). All
//! output goes to standard error.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::reminder::{self, Reminder};

/// The number of steps in the bar; weights are scaled to them.
const BAR_STEPS: u64 = 1000;

/// The progress of a session whose pieces of work have weights. Weights are rough seconds, but only
/// their proportions count.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    total: f64,
    done: f64,
    started: Instant,
    reminder: RefCell<Reminder>,
}

impl Progress {
    pub fn new(total: f64) -> Progress {
        let bar = ProgressBar::new(BAR_STEPS);
        let template = "{bar:24.cyan/dim} {percent:>3}%  {msg}";
        let style = ProgressStyle::with_template(template).expect("the template is constant");
        bar.set_style(style.progress_chars("━━─"));
        Progress {
            bar,
            total,
            done: 0.0,
            started: Instant::now(),
            reminder: RefCell::default(),
        }
    }

    /// Shows what is running now.
    pub fn running(&self, what: &str) {
        let left = reminder::left(self.started.elapsed(), self.share());
        self.bar.set_message(format!("{what}{left}"));
        let share = self.share();
        self.reminder.borrow_mut().show(what, Some(share));
    }

    /// Records that work of this weight is done or will be skipped.
    pub fn advance(&mut self, weight: f64) {
        self.done += weight;
        let share = self.share().clamp(0.0, 1.0);
        self.bar.set_position((share * BAR_STEPS as f64) as u64);
        self.reminder.borrow().done(share);
    }

    /// The share of the work that is done.
    pub fn share(&self) -> f64 {
        self.done / self.total
    }

    /// Prints a permanent line.
    pub fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            reminder::say(line);
        } else {
            self.bar.println(line);
        }
    }

    /// Removes the redrawn line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
        self.reminder.take();
    }
}

/// A line that is redrawn during work of unknown length.
#[derive(Debug)]
pub struct Spinner {
    bar: ProgressBar,
    reminder: RefCell<Reminder>,
}

impl Spinner {
    pub fn new() -> Spinner {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner:.cyan} {wide_msg}");
        bar.set_style(style.expect("the template is constant"));
        bar.enable_steady_tick(Duration::from_millis(100));
        Spinner {
            bar,
            reminder: RefCell::default(),
        }
    }

    pub fn show(&self, line: String) {
        self.reminder.borrow_mut().show(&line, None);
        self.bar.set_message(line);
    }

    /// Prints a permanent line.
    pub fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            reminder::say(line);
        } else {
            self.bar.println(line);
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
