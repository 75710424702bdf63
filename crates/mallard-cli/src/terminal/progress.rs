//! Progress output while the lab runs: the current work, the share that is done and the time left.
//!
//! On a terminal, one line is redrawn, and each finished piece of work leaves a line above it. A
//! log or pipe gets only the lines of finished work. All output goes to standard error.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

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
        }
    }

    /// Shows what is running now.
    pub fn running(&self, what: &str) {
        self.bar.set_message(format!("{what}{}", self.left()));
    }

    /// Records that work of this weight is done or will be skipped.
    pub fn advance(&mut self, weight: f64) {
        self.done += weight;
        let share = self.share().clamp(0.0, 1.0);
        self.bar.set_position((share * BAR_STEPS as f64) as u64);
    }

    /// The share of the work that is done.
    pub fn share(&self) -> f64 {
        self.done / self.total
    }

    /// Prints a permanent line.
    pub fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            eprintln!("{line}");
        } else {
            self.bar.println(line);
        }
    }

    /// Removes the redrawn line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn left(&self) -> String {
        match remaining(self.started.elapsed(), self.share()) {
            Some(left) => format!(" · {}", about(left)),
            None => String::new(),
        }
    }
}

/// The time left after `elapsed` for a `share` of the work; none while too little is done for an
/// estimate.
fn remaining(elapsed: Duration, share: f64) -> Option<Duration> {
    let known = share > 0.02 && share <= 1.0 && elapsed > Duration::from_secs(2);
    known.then(|| elapsed.mul_f64((1.0 - share) / share))
}

fn about(left: Duration) -> String {
    match left.as_secs() {
        0..=9 => "a few seconds left".to_owned(),
        s @ 10..=89 => format!("about {} s left", s.div_ceil(10) * 10),
        s @ 90..=5399 => format!("about {} min left", (s + 30) / 60),
        s => format!("about {:.1} h left", s as f64 / 3600.0),
    }
}

/// A line that is redrawn during work of unknown length.
#[derive(Debug)]
pub struct Spinner(ProgressBar);

impl Spinner {
    pub fn new() -> Spinner {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner:.cyan} {wide_msg}");
        bar.set_style(style.expect("the template is constant"));
        bar.enable_steady_tick(Duration::from_millis(100));
        Spinner(bar)
    }

    pub fn show(&self, line: String) {
        self.0.set_message(line);
    }

    /// Prints a permanent line.
    pub fn say(&self, line: &str) {
        if self.0.is_hidden() {
            eprintln!("{line}");
        } else {
            self.0.println(line);
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_share_that_is_done() {
        let minute = Duration::from_secs(60);
        assert_eq!(remaining(minute, 0.25), Some(minute * 3));
        assert_eq!(remaining(minute, 1.0), Some(Duration::ZERO));
        assert_eq!(remaining(minute, 0.001), None);
        assert_eq!(remaining(Duration::ZERO, 0.5), None);
    }

    #[test]
    fn the_text_is_no_more_precise_than_the_estimate() {
        let text = |seconds| about(Duration::from_secs(seconds));
        assert_eq!(text(3), "a few seconds left");
        assert_eq!(text(41), "about 50 s left");
        assert_eq!(text(125), "about 2 min left");
        assert_eq!(text(9000), "about 2.5 h left");
    }
}
