//! One row of measurements: allocators take turns on the same work.
//!
//! [`Race::row`] is the whole protocol of `bench` and `compare`. In every round each allocator has
//! one run, and memory is warmed before each run. An allocator that fails or [has enough
//! runs](Runs) drops out of the row, and the others go on. A run during which the machine [gave
//! memory back](reporting) is repeated a few times at most; the last repetition always counts.
//! Where a program may fail in some runs ([`Race::repeats_failures`]), a run that fails is repeated
//! in its turn, and only an allocator that never got through drops out. A round in which one still
//! has no run counts for none, so that rounds stay pairs.

pub mod runs;
pub mod settings;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use mallard_judge::schedule;
use mallard_report::model::{Cell, Exit, Failure, Run};
use mallard_report::stats::SUBJECT;
use mallard_runner::{
    End, FAILURE_LINES, Launcher, Measurement, Purpose, Spec, Stop, memory, reporting,
};

use crate::terminal::progress::Progress;
use runs::Runs;

/// A process with less memory rarely gets pages that the machine gave back.
const HURT_BYTES_MIN: u64 = 16 << 20;
/// The machine gives memory back every two seconds, so this happens during every run this long.
const LONG_RUN_TIME: Duration = Duration::from_millis(1500);
/// The maximum number of attempts to get an undisturbed run. A report disturbs every other run of
/// one second, counting its warm-up.
const TRIES_MAX: usize = 4;
/// The most tries of a failing program in one turn.
const FAILING_TRIES_MAX: usize = 3;

/// One allocator's part in a row.
#[derive(Debug)]
pub struct Entry {
    pub allocator: String,
    pub start: Start,
    /// The run at the end of the row that counts the system calls, if they are counted.
    pub counted: Option<Box<Spec>>,
}

/// Something that must run beside each process of a row, such as the driver of a server.
pub trait Beside: Sync {
    /// Runs before each process. An error is a sentence and drops the allocator from the row.
    fn before(&self, purpose: Purpose) -> Result<(), String>;

    /// Runs beside the process. A failure kills the process; the judge then reports the reason.
    fn drive(&self, pid: u32, purpose: Purpose) -> Result<(), Failed>;

    /// Whether the row ends here, with the results so far.
    fn ends_row(&self) -> bool {
        false
    }

    /// Whether a run may be repeated. A driver that records every run of its process says no.
    fn may_repeat(&self) -> bool {
        false
    }
}

/// Carries no reason: the driver keeps it.
pub struct Failed;

#[derive(Debug)]
pub enum Start {
    Run(Box<Spec>),
    /// The allocator lacks the setting that the row varies.
    Absent,
    /// The allocator cannot run at all, for this reason.
    Impossible(String),
}

/// Turns a measurement into figures or a failure. Called in the order of the runs.
pub type Judge<'a> = dyn FnMut(&str, &Measurement) -> Result<Run, Failure> + 'a;

/// The state that all rows of a session share.
pub struct Race<'a> {
    pub launcher: &'a Launcher,
    pub stop: &'a Stop,
    /// The number of uncounted runs before the counted ones.
    pub warm_up_runs: usize,
    pub runs: Runs,
    /// Whether memory is warmed before each run.
    pub warm: bool,
    /// Whether a run that fails is repeated, because the next may not fail.
    pub repeats_failures: bool,
    pub progress: Progress,
    /// Returns how often the machine has given memory back so far: [`reporting::reports`].
    reports: fn() -> u64,
    /// The time since some fixed moment.
    clock: fn() -> Duration,
    /// A run this long is not repeated: [`LONG_RUN_TIME`].
    long: Duration,
    /// The number of repeated runs.
    repeated: usize,
}

/// What the protocol needs to know about a row.
pub struct Row<'a> {
    /// The row's name in the progress line.
    pub what: &'a str,
    pub entries: &'a [Entry],
    /// An estimate of the peak RSS, used until the allocator's own is known.
    pub peak_bytes: u64,
    /// The weight of one run in the progress.
    pub weight: f64,
    pub beside: Option<&'a dyn Beside>,
    /// The weight of counting one allocator's system calls.
    pub counting_weight: f64,
}

/// The progress of an entry in its row.
#[derive(Clone)]
struct Part {
    /// The highest peak RSS of its runs.
    peak: Option<u64>,
    /// The shortest wall time of its runs.
    least: Duration,
    /// The time spent on its counted runs, overhead included.
    spent: Duration,
    /// The number of runs that the progress still expects.
    due: usize,
    /// Whether a run of it did not fail.
    worked: bool,
    /// The rounds of its counted runs.
    rounds: Vec<usize>,
    /// Why its last turn failed, if the turn was lost and no more.
    lost: Option<Failure>,
}

impl Part {
    fn new(due: usize) -> Part {
        Part {
            peak: None,
            least: Duration::MAX,
            spent: Duration::ZERO,
            due,
            worked: false,
            rounds: Vec::new(),
            lost: None,
        }
    }
}

impl<'a> Race<'a> {
    /// A race with uncounted runs before the counted ones, whose progress has yet to be set.
    pub fn new(
        launcher: &'a Launcher,
        stop: &'a Stop,
        warm_up_runs: usize,
        runs: Runs,
        warm: bool,
    ) -> Self {
        Race {
            launcher,
            stop,
            warm_up_runs,
            runs,
            warm,
            repeats_failures: false,
            progress: Progress::new(1.0),
            reports: reporting::reports,
            clock,
            long: LONG_RUN_TIME,
            repeated: 0,
        }
    }
}

impl Race<'_> {
    /// Runs a row and returns its cells in the order of the entries. After a stop, or where what
    /// runs beside it ends the row, they hold the results so far.
    pub fn row(&mut self, row: &Row<'_>, judge: &mut Judge<'_>) -> Vec<Cell> {
        let mut cells: Vec<Cell> = row.entries.iter().map(cell).collect();
        let mut parts = vec![Part::new(self.expected(row.weight)); row.entries.len()];
        let rounds = self.warm_up_runs + self.runs.most();
        for (round, turn) in schedule::turns(rounds, row.entries.len()) {
            if self.stop.requested() || row.beside.is_some_and(Beside::ends_row) {
                break;
            }
            let (entry, part) = (&row.entries[turn], &mut parts[turn]);
            let Start::Run(spec) = &entry.start else {
                continue;
            };
            if self.done(&cells, turn, part.spent) {
                let left = std::mem::take(&mut part.due);
                self.progress.advance(row.weight * left as f64);
                continue;
            }
            let cell = &mut cells[turn];
            let counted = round.checked_sub(self.warm_up_runs);
            self.announce(row, entry, counted);
            let began = (self.clock)();
            let Some(outcome) = self.judged(row, entry, spec, part, judge) else {
                break;
            };
            match outcome {
                Ok(run) => {
                    part.worked = true;
                    if counted.is_some() {
                        cell.runs.push(Run {
                            started_seconds: Some(began.as_secs_f64()),
                            ..run
                        });
                        part.rounds.push(round);
                        part.spent += (self.clock)() - began;
                    }
                }
                // It did work, so the round is lost, not the allocator.
                Err(failure) if self.repeats_failures && part.worked => part.lost = Some(failure),
                Err(failure) => self.fail(row, cell, failure),
            }
            if part.due > 0 {
                part.due -= 1;
                self.progress.advance(row.weight);
            }
        }
        if self.repeats_failures {
            keep_common_rounds(&mut cells, &parts);
            self.fail_without_runs(row, &mut cells, parts);
        }
        for (entry, cell) in row.entries.iter().zip(&mut cells) {
            self.count(row, entry, cell);
        }
        cells
    }

    /// An allocator drops out.
    fn fail(&self, row: &Row<'_>, cell: &mut Cell, failure: Failure) {
        let name = &cell.allocator;
        self.progress
            .say(&format!("{}: {name} failed: {}", row.what, failure.reason));
        cell.failure = Some(failure);
    }

    /// An allocator of which no counted round has a run failed, even if it worked before.
    fn fail_without_runs(&self, row: &Row<'_>, cells: &mut [Cell], parts: Vec<Part>) {
        if self.stop.requested() {
            return;
        }
        for (cell, part) in cells.iter_mut().zip(parts) {
            if let Some(failure) = part.lost
                && cell.runs.is_empty()
                && cell.failure.is_none()
            {
                self.fail(row, cell, failure);
            }
        }
    }

    /// One turn: a run that the judge accepts, or its failure, after as many tries as there are.
    /// None if a stop ended it.
    fn judged(
        &mut self,
        row: &Row<'_>,
        entry: &Entry,
        spec: &Spec,
        part: &mut Part,
        judge: &mut Judge<'_>,
    ) -> Option<Result<Run, Failure>> {
        let tries = if self.repeats_failures {
            FAILING_TRIES_MAX
        } else {
            1
        };
        for _ in 1..tries {
            let measured = match self.once(row, spec, part)? {
                Ok(measured) => measured,
                Err(failure) => return Some(Err(failure)),
            };
            if let Ok(run) = judge(&entry.allocator, &measured) {
                return Some(Ok(run));
            }
        }
        let measured = self.once(row, spec, part)?;
        Some(measured.and_then(|measured| judge(&entry.allocator, &measured)))
    }

    /// Counts the system calls of an allocator that has figures. If that fails the count is
    /// unknown, and the figures stay.
    fn count(&mut self, row: &Row<'_>, entry: &Entry, cell: &mut Cell) {
        let Some(spec) = &entry.counted else { return };
        if !cell.runs.is_empty() && cell.failure.is_none() && !self.stop.requested() {
            let name = &entry.allocator;
            self.progress
                .running(&format!("{} · {name} · counting system calls", row.what));
            if let Some(Ok(measured)) = self.process(row, spec, Purpose::Syscalls) {
                let well = matches!(measured.end, End::Code(0));
                let calls = measured.syscalls.filter(|_| well);
                cell.runs.iter_mut().for_each(|run| run.syscalls = calls);
            }
        }
        self.progress.advance(row.counting_weight);
    }

    /// Cold memory only worsens the figures, so a failure is reported and measuring goes on.
    fn warm_memory(&mut self, peak: u64) {
        let warmed = reporting::until_undisturbed(|| self.launcher.warm(memory::warm_up(peak)));
        if let (Err(error), false) = (warmed, self.stop.requested()) {
            let line =
                format!("cannot warm memory, so the remaining runs start without it: {error}");
            self.progress.say(&line);
            self.warm = false;
        }
    }

    /// Whether an entry gets no more turns because it failed or has enough runs.
    fn done(&self, cells: &[Cell], entry: usize, spent: Duration) -> bool {
        let seconds = |cell: &Cell| cell.runs.iter().map(|run| run.seconds).collect();
        // The subject of all ratios never drops out: its figure must be accurate even if it is far
        // behind. The ratios compare it with the best of the others, so that one never drops out
        // either.
        let is_subject = cells[entry].allocator == SUBJECT;
        let racing = (cells.iter())
            .filter(|cell| !is_subject && cell.allocator != SUBJECT && cell.failure.is_none());
        let all: Vec<Vec<f64>> = racing.map(seconds).collect();
        let own: Vec<f64> = seconds(&cells[entry]);
        cells[entry].failure.is_some() || self.runs.done(&own, spent.as_secs_f64(), &all)
    }

    /// Ends the progress after all rows.
    pub fn finish(&self) {
        if self.repeated > 0 {
            let (runs, them) = match self.repeated {
                1 => ("1 run was".to_owned(), "it"),
                many => (format!("{many} runs were"), "them"),
            };
            self.progress.say(&format!(
                "{runs} repeated because the machine gave free memory back to its host during {them}"
            ));
        }
        self.progress.finish();
    }

    /// The weight of a row in the progress.
    pub fn weight(&self, row_weight: f64, entries: &[Entry]) -> f64 {
        row_weight * (self.expected(row_weight) * runners(entries)) as f64
    }

    /// The expected number of runs of an entry, including warm-up runs.
    fn expected(&self, row_weight: f64) -> usize {
        self.warm_up_runs + self.runs.expected(row_weight)
    }

    fn announce(&self, row: &Row<'_>, entry: &Entry, counted: Option<usize>) {
        let run = match counted {
            Some(run) => match self.runs {
                Runs::Fixed(runs) => format!("run {} of {runs}", run + 1),
                Runs::ByTime { .. } | Runs::AtLeast(_) => format!("run {}", run + 1),
            },
            None => "warm-up".to_owned(),
        };
        self.progress
            .running(&format!("{} · {} · {run}", row.what, entry.allocator));
    }

    /// Runs one measured process; returns `None` if a stop ended it.
    fn once(
        &mut self,
        row: &Row<'_>,
        spec: &Spec,
        part: &mut Part,
    ) -> Option<Result<Measurement, Failure>> {
        let mut tries = 1;
        let measured = loop {
            let (measured, lost) = self.warm_and_run(row, spec, part.peak)?;
            let counts = lost && row.beside.is_none_or(Beside::may_repeat) && self.warm;
            let hurt = counts
                && (measured.as_ref())
                    .is_ok_and(|run| is_hurt(run.wall, part.least, self.long, run.peak_rss_bytes));
            if !hurt || tries == TRIES_MAX {
                break measured;
            }
            tries += 1;
            self.repeated += 1;
        };
        if let Ok(measured) = &measured {
            part.peak = Some(measured.peak_rss_bytes.max(part.peak.unwrap_or(0)));
            part.least = measured.wall.min(part.least);
        }
        Some(measured)
    }

    /// Runs a process and reports whether the machine gave memory back meanwhile.
    fn warm_and_run(
        &mut self,
        row: &Row<'_>,
        spec: &Spec,
        peak: Option<u64>,
    ) -> Option<(Result<Measurement, Failure>, bool)> {
        if self.warm {
            self.warm_memory(peak.unwrap_or(row.peak_bytes));
        }
        let before = (self.reports)();
        let measured = self.process(row, spec, Purpose::Cost)?;
        Some((measured, (self.reports)() != before))
    }

    fn process(
        &self,
        row: &Row<'_>,
        spec: &Spec,
        purpose: Purpose,
    ) -> Option<Result<Measurement, Failure>> {
        let failure = |reason: String| {
            Some(Err(Failure {
                reason,
                exit: None,
                last_lines: Vec::new(),
            }))
        };
        if let Some(Err(reason)) = row.beside.map(|beside| beside.before(purpose)) {
            return failure(reason);
        }
        let drive = |pid| match row.beside {
            Some(beside) => beside.drive(pid, purpose),
            None => Ok(()),
        };
        match self.launcher.run_beside(spec, purpose, drive) {
            Ok((measured, driven)) => {
                // A stop makes the driver of a server fail too.
                let was_cut = measured.end == End::Stopped || driven.is_err();
                (!(was_cut && self.stop.requested())).then_some(Ok(measured))
            }
            Err(mallard_runner::Error::Stopped) => None,
            Err(error) => failure(error.to_string()),
        }
    }
}

/// Whether memory that the machine gave back may have slowed a run noticeably, and a repetition may
/// avoid that. If an earlier run was shorter, its time (`least`) decides, because this run may be
/// `long` only because of that memory.
fn is_hurt(wall: Duration, least: Duration, long: Duration, peak_rss_bytes: u64) -> bool {
    wall.min(least) < long && peak_rss_bytes >= HURT_BYTES_MIN
}

/// The time since this was first asked.
fn clock() -> Duration {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    FIRST.elapsed()
}

/// The number of entries that can run.
pub fn runners(entries: &[Entry]) -> usize {
    let runs = |entry: &&Entry| matches!(entry.start, Start::Run(_));
    entries.iter().filter(runs).count()
}

/// Leaves the rounds in which all that did not drop out have a run.
fn keep_common_rounds(cells: &mut [Cell], parts: &[Part]) {
    let took = |(cell, _): &(&Cell, &Part)| cell.failure.is_none() && !cell.runs.is_empty();
    let rounds = cells.iter().zip(parts).filter(took);
    let rounds: Vec<&Vec<usize>> = rounds.map(|(_, part)| &part.rounds).collect();
    let most = rounds.iter().filter_map(|rounds| rounds.last()).min();
    let Some(most) = most.copied() else { return };
    let is_common = |round: &usize| {
        // Rounds after the end of one, which a stop cut, are no gaps.
        *round > most || rounds.iter().all(|rounds| rounds.contains(round))
    };
    for (cell, part) in cells.iter_mut().zip(parts) {
        let mut own = part.rounds.iter();
        cell.runs.retain(|_| own.next().is_none_or(is_common));
    }
}

fn cell(entry: &Entry) -> Cell {
    let failure = match &entry.start {
        Start::Impossible(reason) => Some(Failure {
            reason: reason.clone(),
            exit: None,
            last_lines: Vec::new(),
        }),
        Start::Run(_) | Start::Absent => None,
    };
    Cell {
        allocator: entry.allocator.clone(),
        runs: Vec::new(),
        failure,
        attempts: None,
    }
}

/// The figures of a measurement, compared by its wall time.
pub fn figures(measured: &Measurement) -> Run {
    Run {
        seconds: measured.wall.as_secs_f64(),
        ops_per_second: None,
        wall_seconds: measured.wall.as_secs_f64(),
        user_seconds: measured.user.as_secs_f64(),
        system_seconds: measured.system.as_secs_f64(),
        peak_rss_bytes: measured.peak_rss_bytes,
        minor_faults: measured.minor_faults,
        major_faults: measured.major_faults,
        exit: exit(measured.end).unwrap_or_default(),
        ..Run::default()
    }
}

/// The peak RSS of a process, of which `read` was read while it ran. The kernel records a peak from
/// counters that miss pages at random; a value from its page tables is exact and can be above.
pub fn peak(measured: &Measurement, read: Option<u64>) -> u64 {
    measured.peak_rss_bytes.max(read.unwrap_or(0))
}

/// How the process ended, if it ended on its own.
pub fn exit(end: End) -> Option<Exit> {
    match end {
        End::Code(code) => Some(Exit::Code(code)),
        End::Signal(signal) => Some(Exit::Signal(signal)),
        End::TimedOut | End::Stopped => None,
    }
}

/// Why a run does not count that was killed at its time limit.
pub const NOT_IN_TIME: &str = "it did not finish within the time limit";

/// A failure with the last lines of the program's output.
pub fn failure(reason: String, measured: &Measurement) -> Failure {
    let said =
        |output: &mallard_runner::Output| output.last_lines(FAILURE_LINES).unwrap_or_default();
    let mut last_lines = said(&measured.stderr);
    if last_lines.is_empty() {
        last_lines = said(&measured.stdout);
    }
    Failure {
        reason,
        exit: exit(measured.end),
        last_lines,
    }
}

#[cfg(test)]
mod tests;
