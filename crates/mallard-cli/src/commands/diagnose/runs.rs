//! The runs of a diagnosis: with the probe, without it, and once more to count system calls.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use mallard_allocators::program::Program;
use mallard_judge::diagnose::thresholds::{BUSY_CPUS_MIN, WAITING_SECONDS_MIN, WANTED_SAMPLES};
use mallard_procfs::{Stat, is_alive};
use mallard_runner::{Launcher, Measurement, Purpose, Spec, Stop};
use mallard_service::Ready;
use mallard_watch::folder::Ask;
use mallard_watch::perf::Code;
use mallard_watch::syscalls::{self, Syscalls};
use mallard_watch::{Findings, Folder, PROBE, PROBE_NAME, Settings, Watch, layout};

use super::kernel::{Kernel, Report};
use super::options::{Options, Way};
use crate::race::Beside;
use crate::service::work::{self, Work};

/// Timer signals per second of CPU time: below the rate of the kernel's clock, so that none is
/// lost.
pub const TIMER_HZ: u32 = 197;
/// The runs of a program that is too short for one.
pub const RUNS_MAX: u32 = 200;
/// The time for further runs of a short program.
const FURTHER_RUNS_TIME: Duration = Duration::from_secs(10);
/// Fewer runs vary too much. For these there is more time, which a busy machine takes.
const FEW_RUNS: u32 = 3;
const FEW_RUNS_TIME: Duration = Duration::from_secs(30);
/// The runs without the probe, for its cost, of a program that is run several times with it.
const PLAIN_RUNS: usize = 3;
/// Programs below this are run as often if one run with the probe was enough.
const SHORT_TIME_MAX: Duration = Duration::from_secs(2);
/// The limit of the run that counts system calls, over the time of an ordinary one.
const COUNTING_LIMIT: Duration = Duration::from_secs(20);
/// How long a program may take to end when it is asked to.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// What the runs have shown.
#[derive(Debug)]
pub struct Runs {
    /// Each run with the probe.
    pub observed: Vec<(Measurement, Findings)>,
    /// Runs without it.
    pub plain: Vec<Measurement>,
    /// Why there is none, where there is none.
    pub syscalls: Result<Syscalls, String>,
    /// Why the segments are not in `/dev/shm`, if they are not.
    pub elsewhere: Option<String>,
    /// Whether the program was ended by `--for`.
    pub ended_by_us: bool,
    /// Requests a second that a service answered in the run with the probe, and without it.
    pub observed_rate: Option<f64>,
    pub plain_rate: Option<f64>,
    /// Where page faults lie, in all runs with the probe.
    pub faults: Report,
}

/// Whether there is time for one more run, after so many of which the first took so long.
pub fn has_time(begun: Instant, runs: u32, first: Duration) -> bool {
    let time = match runs {
        ..FEW_RUNS => FEW_RUNS_TIME,
        _ => FURTHER_RUNS_TIME,
    };
    begun.elapsed() + first <= time
}

/// Runs the program.
pub struct Runner<'a> {
    pub launcher: &'a Launcher,
    pub stop: &'a Stop,
    pub options: &'a Options,
    pub program: &'a Program,
    pub arguments: &'a [OsString],
    pub probe: PathBuf,
    /// The service, if it is one: its load decides how long a run takes, and ends it.
    pub service: Option<&'a Work<'a>>,
}

impl Runner<'_> {
    pub fn all(&self, say: &mut dyn FnMut(&str)) -> Result<Runs> {
        let mut runs = Runs {
            observed: Vec::new(),
            plain: Vec::new(),
            syscalls: Err("not counted (--quick)".to_owned()),
            elsewhere: None,
            ended_by_us: false,
            observed_rate: None,
            plain_rate: None,
            faults: Report::default(),
        };
        let begun = Instant::now();
        let within = self.options.duration.map(humantime::format_duration);
        let within = within.map_or(String::new(), |time| format!(" for {time}"));
        say(&format!("running with the probe{within}"));
        self.observe(&mut runs)?;
        let first = runs.observed[0].0.wall;
        if self.options.quick {
            return Ok(runs);
        }
        let limited = self.options.duration.is_some();
        if let Some(work) = self.service {
            say("running without the probe");
            self.serve_plainly(work, &mut runs)?;
        } else if !limited && !self.stop.requested() {
            self.repeat(&mut runs, begun, first, say)?;
            let wanted = if first < SHORT_TIME_MAX {
                PLAIN_RUNS
            } else {
                (runs.plain.len() + 1).min(PLAIN_RUNS)
            };
            while runs.plain.len() < wanted && !self.stop.requested() {
                self.run_plainly(&mut runs, say)?;
            }
        }
        runs.syscalls = if self.options.no_syscalls {
            Err("not counted (--no-syscalls)".to_owned())
        } else if self.stop.requested() {
            Err("not counted (interrupted)".to_owned())
        } else {
            say("running once more to count system calls");
            self.count_syscalls(first)
        };
        Ok(runs)
    }

    /// A run of a server without the probe, for what the probe costs.
    fn serve_plainly(&self, work: &Work, runs: &mut Runs) -> Result<()> {
        if self.stop.requested() {
            return Ok(());
        }
        work.before(Purpose::Cost).map_err(anyhow::Error::msg)?;
        let drive = |pid| work.drive(pid, Purpose::Cost);
        let spec = self.spec(Vec::new());
        let (measured, _) = self.launcher.run_beside(&spec, Purpose::Cost, drive)?;
        if !self.stop.requested() {
            let run = work
                .judge(&measured)
                .map_err(|failure| work::failed(&failure))?;
            runs.plain_rate = run.ops_per_second;
            runs.plain.push(measured);
        }
        Ok(())
    }

    fn run_plainly(&self, runs: &mut Runs, say: &mut dyn FnMut(&str)) -> Result<()> {
        say("running without the probe");
        runs.plain.push(self.launcher.run(&self.spec(Vec::new()))?);
        Ok(())
    }

    /// More runs of a short program, until there are enough samples. The first of them take turns
    /// with runs without the probe, so that a machine that becomes busy slows down both.
    fn repeat(
        &self,
        runs: &mut Runs,
        begun: Instant,
        first: Duration,
        say: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let (measured, _) = &runs.observed[0];
        let cpu = measured.cpu_seconds();
        // More runs of a program that waits show the same.
        if first.as_secs_f64() >= WAITING_SECONDS_MIN && cpu < first.as_secs_f64() * BUSY_CPUS_MIN {
            return Ok(());
        }
        loop {
            let count = runs.observed.len() as u32;
            let enough = samples(runs) >= WANTED_SAMPLES || count >= RUNS_MAX;
            if enough || !has_time(begun, count, first) || self.stop.requested() {
                return Ok(());
            }
            if runs.plain.len() < PLAIN_RUNS {
                self.run_plainly(runs, say)?;
            }
            if self.stop.requested() {
                return Ok(());
            }
            say(&format!("running with the probe, {count} so far"));
            self.observe(runs)?;
        }
    }

    fn observe(&self, runs: &mut Runs) -> Result<()> {
        let timer_hz = if self.options.way == Some(Way::Proc) {
            0
        } else {
            TIMER_HZ
        };
        let ask = Ask {
            timer_hz,
            trim_at_exit: true,
            record: None,
        };
        let folder = Folder::new(ask, self.launcher.folder())
            .map_err(|error| anyhow!("cannot make the folder of the probe: {error}"))?;
        let spec = self.spec(self.environment(folder.path()));
        if let Some(work) = self.service {
            work.before(Purpose::Cost).map_err(anyhow::Error::msg)?;
        }
        let until = self
            .options
            .duration
            .map(|duration| Instant::now() + duration);
        let mut ended_by_us = false;
        let beside = |pid: u32| -> Result<Box<Seen>, Box<Seen>> {
            let watch = Watch::new(folder.path(), Settings::default());
            let faults = Faults::of(pid);
            let enough = || until.is_some_and(|until| Instant::now() >= until);
            if let Some(work) = self.service {
                return beside_service(work, pid, watch, faults);
            }
            let findings = watch.until_end_of(pid, || faults.take() || enough());
            let seen = Box::new((findings, faults.report()));
            if !enough() || !is_alive(pid) {
                return Ok(seen);
            }
            // An error has the launcher kill what does not end by itself.
            if ends(pid) { Ok(seen) } else { Err(seen) }
        };
        let (measured, found) = self.launcher.run_beside(&spec, Purpose::Cost, beside)?;
        if self.service.is_none() && until.is_some_and(|until| Instant::now() >= until) {
            ended_by_us = true;
        }
        if let (Some(work), false) = (self.service, self.stop.requested()) {
            // The figures of its load are not those of the service: the probe is beside it. But
            // they show what a request costs.
            let run = work
                .judge(&measured)
                .map_err(|failure| work::failed(&failure))?;
            runs.observed_rate = run.ops_per_second;
        }
        let (found, faults) = *found.unwrap_or_else(|seen| seen);
        runs.ended_by_us |= ended_by_us;
        runs.elsewhere = folder.elsewhere.clone();
        runs.faults.add(faults);
        runs.observed.push((measured, found));
        Ok(())
    }

    fn count_syscalls(&self, first: Duration) -> Result<Syscalls, String> {
        let folder = Folder::new(Ask::default(), self.launcher.folder())
            .map_err(|error| error.to_string())?;
        let spec = self.spec(self.environment(folder.path()));
        let usual = first.saturating_mul(3) + COUNTING_LIMIT;
        let drive;
        let (limit, beside): (_, Option<&(dyn Fn(u32) + Sync)>) = match self.service {
            Some(work) if matches!(work.stage.service.ready, Ready::Log(_)) => {
                return Err(
                    "not counted: the output that shows when the service is ready is not \
                            read in that run"
                        .to_owned(),
                );
            }
            Some(work) => {
                work.before(Purpose::Syscalls)?;
                drive = |pid| {
                    // The run with the probe reports a load that fails.
                    let _ = work.drive(pid, Purpose::Syscalls);
                };
                (usual, Some(&drive))
            }
            None => (self.options.duration.unwrap_or(usual), None),
        };
        let spec = syscalls::Spec {
            program: Path::new(&spec.program),
            arguments: &spec.arguments,
            environment: &spec.environment,
            input: spec.input.as_deref(),
            folder: folder.path(),
            within: spec.folder.as_deref(),
            limit,
            beside,
        };
        syscalls::count(&spec, || self.stop.requested())
            .map_err(|error| format!("refused (seccomp: {error})"))
    }

    fn environment(&self, folder: &Path) -> Vec<(String, String)> {
        let probe = self.probe.display();
        let preload = match std::env::var("LD_PRELOAD") {
            Ok(present) if !present.is_empty() => format!("{probe}:{present}"),
            _ => probe.to_string(),
        };
        vec![
            ("LD_PRELOAD".to_owned(), preload),
            (layout::VARIABLE.to_owned(), folder.display().to_string()),
        ]
    }

    fn spec(&self, environment: Vec<(String, String)>) -> Spec {
        if let Some(work) = self.service {
            return work.stage.spec(environment);
        }
        Spec {
            program: self.program.path.clone().into(),
            arguments: self.arguments.to_vec(),
            environment,
            without: Vec::new(),
            cpus: None,
            timeout: None,
            exact_peak: false,
            input: self.options.input.clone(),
            folder: None,
        }
    }
}

/// What a run with the probe has shown.
type Seen = (Findings, Report);

/// The page faults of a program while it is watched.
struct Faults {
    kernel: RefCell<Kernel>,
    code: RefCell<Code>,
    started_by: u32,
}

impl Faults {
    fn of(pid: u32) -> Faults {
        Faults {
            kernel: RefCell::new(Kernel::faults_of(pid)),
            code: RefCell::default(),
            started_by: Stat::of(pid).map_or(0, |stat| stat.parent),
        }
    }

    /// Takes what has come. That is never a reason to end.
    fn take(&self) -> bool {
        let (mut kernel, mut code) = (self.kernel.borrow_mut(), self.code.borrow_mut());
        kernel.take(&mut code, self.started_by);
        false
    }

    fn report(self) -> Report {
        self.take();
        self.kernel.into_inner().report()
    }
}

/// Watches a server while its load runs. An error has the launcher kill what is left of it.
fn beside_service(
    work: &Work,
    pid: u32,
    watch: Watch,
    faults: Faults,
) -> Result<Box<Seen>, Box<Seen>> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let driver = scope.spawn(|| {
            let driven = work.drive(pid, Purpose::Cost);
            over.store(true, Ordering::Release);
            driven
        });
        let found = watch.until_end_of(pid, || faults.take() || over.load(Ordering::Acquire));
        let seen = Box::new((found, faults.report()));
        match driver.join() {
            Ok(Ok(())) => Ok(seen),
            Ok(Err(_)) => Err(seen),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Writes the probe to the folder of cached files.
pub fn install_probe() -> Result<PathBuf> {
    mallard_allocators::install(PROBE_NAME, PROBE).map_err(|problem| anyhow!("{problem}"))
}

/// Samples of CPU time in all runs.
pub fn samples(runs: &Runs) -> u64 {
    let of = |found: &Findings| {
        let total = found.total();
        let ticks = total.ticks_inside + total.ticks_outside;
        let (inside, outside) = found.computing();
        ticks.max(inside + outside)
    };
    runs.observed.iter().map(|(_, found)| of(found)).sum()
}

/// Asks a process to end, and waits.
pub fn ends(pid: u32) -> bool {
    let Some(process) = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    else {
        return false;
    };
    // It may have ended meanwhile.
    let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
    let asked = Instant::now();
    while asked.elapsed() < END_TIMEOUT {
        if !is_alive(pid) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}
