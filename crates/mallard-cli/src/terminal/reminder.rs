//! Lines for a log while the lab works: standard error that is no terminal has no line that could
//! be redrawn. It gets one with what runs, the share that is done and the time left, soon after the
//! work began and whenever nothing was printed for ten seconds.

use std::io::IsTerminal;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The pause between two lines.
const INTERVAL: Duration = Duration::from_secs(10);
/// The time until the first, so that short work leaves none.
const FIRST_AFTER: Duration = Duration::from_millis(1500);

/// When a line was last printed, by any part of the command.
static LAST: Mutex<Option<Instant>> = Mutex::new(None);

/// Prints a line to standard error that is no terminal.
pub fn say(line: &str) {
    eprintln!("{line}");
    *lock(&LAST) = Some(Instant::now());
}

/// Prints what runs from time to time, until it is dropped; nothing on a terminal.
#[derive(Debug, Default)]
pub struct Reminder {
    shared: Arc<Shared>,
    /// None before the first work, and on a terminal.
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    what: String,
    /// The share of the work that is done, where it is known.
    share: Option<f64>,
    is_over: bool,
}

impl Reminder {
    /// A reminder of work that has one description.
    pub fn of(what: &str) -> Reminder {
        let mut reminder = Reminder::default();
        reminder.show(what, None);
        reminder
    }

    /// Sets what runs now, and the share of all work that is done.
    pub fn show(&mut self, what: &str, share: Option<f64>) {
        {
            let mut state = lock(&self.shared.state);
            what.clone_into(&mut state.what);
            state.share = share.or(state.share);
        }
        if self.thread.is_none() && !std::io::stderr().is_terminal() {
            let (shared, begun) = (Arc::clone(&self.shared), Instant::now());
            // Without the thread the lines are missing, and the work goes on.
            self.thread = thread::Builder::new()
                .spawn(move || shared.remind(begun))
                .ok();
        }
    }

    /// Sets the share of all work that is done.
    pub fn done(&self, share: f64) {
        lock(&self.shared.state).share = Some(share);
    }
}

impl Drop for Reminder {
    fn drop(&mut self) {
        lock(&self.shared.state).is_over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It only sleeps and prints.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn remind(&self, begun: Instant) {
        let mut state = lock(&self.state);
        while !state.is_over {
            let pause = pause(begun.elapsed(), lock(&LAST).map(|last| last.elapsed()));
            if pause.is_zero() {
                say(&line(&state.what, state.share, begun.elapsed()));
                continue;
            }
            let waited = self.changed.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The time until the next line, for work that began `elapsed` ago, if the last line was printed
/// `silent` ago.
fn pause(elapsed: Duration, silent: Option<Duration>) -> Duration {
    let first = FIRST_AFTER.saturating_sub(elapsed);
    let next = silent.map_or(Duration::ZERO, |silent| INTERVAL.saturating_sub(silent));
    first.max(next)
}

fn line(what: &str, share: Option<f64>, elapsed: Duration) -> String {
    match share {
        Some(share) => {
            let percent = (share.clamp(0.0, 1.0) * 100.0).floor();
            let left = left(elapsed, share);
            format!("{what} · {percent} % done{left}")
        }
        None => format!("{what} · for {} s so far", elapsed.as_secs()),
    }
}

/// The time left after `elapsed` for a `share` of the work, to append to a line; empty while too
/// little is done for an estimate.
pub fn left(elapsed: Duration, share: f64) -> String {
    remaining(elapsed, share).map_or(String::new(), |left| format!(" · {}", about(left)))
}

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

/// What the locks hold is whole after every step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn the_first_line_comes_soon_and_each_other_ten_seconds_after_the_last() {
        let seconds = Duration::from_secs;
        let wait = |elapsed, silent: Option<u64>| pause(seconds(elapsed), silent.map(seconds));
        assert_eq!(wait(0, None), FIRST_AFTER);
        assert_eq!(wait(2, None), seconds(0));
        assert_eq!(wait(20, Some(4)), seconds(6));
        assert_eq!(wait(20, Some(10)), seconds(0));
        // Work that begins after long silence waits as long as any.
        assert_eq!(wait(0, Some(60)), FIRST_AFTER);
    }

    #[test]
    fn a_line_says_what_runs_and_how_far_it_is() {
        let line = |share, seconds| line("pairs · glibc", share, Duration::from_secs(seconds));
        assert_eq!(line(None, 12), "pairs · glibc · for 12 s so far");
        assert_eq!(line(Some(0.0), 12), "pairs · glibc · 0 % done");
        assert_eq!(
            line(Some(0.5), 60),
            "pairs · glibc · 50 % done · about 60 s left"
        );
    }
}
