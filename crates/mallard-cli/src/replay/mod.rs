//! `mallard replay`: a recording on every allocator.
//!
//! The recording is compiled into a plan ([`mallard_trace::plan`]), which the workload `replay`
//! executes. Allocators take turns as in any [`race`]. [`fidelity`] tells how true it was, and
//! [`alone`] is a recording for commands that run it by themselves.

pub mod alone;
mod cached;
mod fidelity;
pub mod options;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use mallard_allocators::program::{self, Program};
use mallard_allocators::{Allocator, environment};
use mallard_measure::{Cpus, End, Launcher, Measurement, Spec, Stop};
use mallard_report::model::{Cell, Experiment, Kind, Metric, Row, Run};
use mallard_report::units;
use mallard_trace::Recording;
use mallard_trace::plan::{self, Family, Plan};

use crate::conditions::LIMIT_SECONDS;
use crate::exit::usage;
use crate::progress::{Progress, Spinner};
use crate::race::{self, Entry, Race, Start};
use crate::recording::{open, processes, tell_state};
use crate::runs::Runs;
use crate::session::Session;
use crate::workloads::{self, MAX_ANSWER_BYTES, Workloads};
use fidelity::{Fidelity, Pair, Seen};
use options::{Options, Speed, Touch};

const RUNS: u32 = 6;
const TIMED_RUNS: u32 = 3;
/// Recordings up to this keep their own time in the row of memory; longer ones run faster.
const OWN_TIME_US: u64 = 20_000_000;
const FASTER_PERCENT: u32 = 400;
/// Runs without an allocator, of which the middle one counts.
const BASE_RUNS: usize = 3;
/// Runs of the program itself on each allocator.
const CHECK_RUNS: usize = 3;

pub fn run(options: &Options) -> Result<ExitCode> {
    let path = &options.file;
    if options.program.is_empty() && options.check {
        return Err(usage("--check needs the program behind --"));
    }
    let checked = match options.program.first() {
        Some(name) => Some(program::check(&name.to_string_lossy())?),
        None => None,
    };
    let mut recording = open(path)?;
    tell_state(path, &recording);
    let wanted = options.process.unwrap_or_default();
    let (replayed, left) = processes::chosen(wanted, path, &mut recording)?;
    let processes: usize = replayed.iter().map(|subject| subject.processes.len()).sum();
    if options.check && processes > 1 {
        return Err(usage(
            "--check is for one process, --process all for several",
        ));
    }
    let label = path
        .file_stem()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned();
    let session = Session::open("replay", &label, &options.common, options.conf.as_deref())?;
    let workloads = Workloads::install(session.launcher.folder())?;
    let mut rows = Vec::new();
    let mut told = Vec::new();
    for subject in &replayed {
        if session.stop.requested() {
            break;
        }
        let family = &subject.family;
        let own = (session.launcher.folder()).join(format!("plan-{}", family.processes[0]));
        let (plan_path, plan) = compile(options.serial, &mut recording, path, family, &own)?;
        let replay = Replay {
            options,
            session: &session,
            program: workloads.plain("replay"),
            plan_path,
            plan: &plan,
            label: (processes > 1).then(|| subject.label()),
        };
        told.push(replay.run(checked.as_ref(), &mut rows)? + &subject.apart());
        // The next one may need the room.
        let _ = std::fs::remove_file(&own);
    }
    let description = told.join(" ") + &processes::left_out(&replayed, &left);
    let experiment = Experiment {
        name: "replay".to_owned(),
        title: format!("replay of {label}"),
        description,
        claim: String::new(),
        parameters: Vec::new(),
        axis: "speed".to_owned(),
        rows,
    };
    let numbers: Vec<String> = replayed.iter().map(|subject| subject.numbers()).collect();
    let settings = settings(options, numbers.join("; "));
    let title = format!("replay {}", path.display());
    session.close(
        &options.common.exports,
        Kind::Bench,
        title,
        settings,
        vec![experiment],
    )
}

/// The plan of a family of the recording in `file`: one that was kept, or else compiled. Returns
/// its path, which is `path` if it is not kept.
pub fn compile(
    serial: bool,
    recording: &mut Recording<File>,
    file: &Path,
    family: &Family,
    path: &Path,
) -> Result<(PathBuf, Plan)> {
    let spinner = Spinner::new();
    spinner.show("compiling the recording".to_owned());
    let how = plan::Options { serial };
    let kept = cached::Kept::of(recording, file, family, how);
    if let Some(found) = kept.as_ref().and_then(cached::Kept::find) {
        return Ok(found);
    }
    if let Some(kept) = kept
        && let Ok(made) = kept.make(|file| plan::compile(recording, family, how, file))
    {
        return Ok(made);
    }
    // A recording that cannot be compiled says so here, and a folder that is full does not matter.
    let to = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path);
    let to = to.with_context(|| format!("cannot write {}", path.display()))?;
    let plan = plan::compile(recording, family, how, &to)?;
    if plan.calls == 0 {
        bail!("process {} made no calls", family.processes[0]);
    }
    Ok((path.to_owned(), plan))
}

/// What a reader should doubt.
fn doubts(plan: &Plan) -> String {
    let mut text = String::new();
    let lives = plan.lives;
    if lives.lost + lives.unknown > 0 {
        text += &format!(
            " Of the recording, {} blocks never end although another took their address, and {} ends \
             have no block.",
            lives.lost, lives.unknown
        );
    }
    if plan.queries_left_out > 0 {
        text += &format!(
            " {} questions for usable sizes are left out, because another thread freed the block.",
            plan.queries_left_out
        );
    }
    if plan.stalled_us * 100 > plan.span_us {
        text += &format!(
            " {} in which threads waited for the recorder are taken out.",
            units::seconds(plan.stalled_us as f64 / 1e6)
        );
    }
    text
}

fn speeds(options: &Options, plan: &Plan) -> Vec<Speed> {
    if !options.speed.is_empty() {
        return options.speed.clone();
    }
    let timed = if plan.span_us <= OWN_TIME_US {
        100
    } else {
        FASTER_PERCENT
    };
    vec![Speed(None), Speed(Some(timed))]
}

/// A replay that is ready to run.
struct Replay<'a> {
    options: &'a Options,
    session: &'a Session,
    program: PathBuf,
    plan_path: PathBuf,
    plan: &'a Plan,
    /// The process in the labels of rows, if there are several.
    label: Option<String>,
}

/// What the replay itself costs.
#[derive(Debug, Clone, Default)]
struct Base {
    seconds: f64,
    cpu: f64,
    peak: u64,
    /// Of a family, the largest sum of its processes' RSS.
    rss_sum: u64,
    end: u64,
    /// Its RSS over the recorded time, in one of the runs.
    curve: Vec<(f64, u64)>,
}

impl Base {
    /// The RSS at a recorded time.
    fn rss(&self, seconds: f64) -> u64 {
        let before = self.curve.iter().take_while(|(at, _)| *at <= seconds);
        before.last().map_or(0, |(_, bytes)| *bytes)
    }
}

/// The live bytes of the recorded program over its time.
fn live(plan: &Plan) -> Vec<(f64, u64)> {
    let seconds = plan.curve_us.iter().map(|us| *us as f64 / 1e6);
    seconds.zip(plan.curve.iter().copied()).collect()
}

/// The workload's arguments.
fn arguments(
    plan: &Path,
    speed: Speed,
    window_us: u128,
    touch: Touch,
    pollute: u64,
    none: bool,
) -> Vec<String> {
    vec![
        format!("plan={}", plan.display()),
        format!("speed={}", speed.0.unwrap_or(0)),
        format!("window={window_us}"),
        format!("touch={}", touch.number()),
        format!("pollute={pollute}"),
        format!("none={}", u32::from(none)),
    ]
}

/// What a replay without an allocator costs.
fn base(launcher: &Launcher, stop: &Stop, spec: &dyn Fn() -> Spec) -> Result<Base> {
    let mut all = Vec::new();
    for _ in 0..BASE_RUNS {
        let measured = match launcher.run(&spec()) {
            Err(mallard_measure::Error::Stopped) => break,
            measured => measured?,
        };
        if measured.end == End::Stopped {
            stop.request();
            break;
        }
        let text = measured.stdout.head(MAX_ANSWER_BYTES)?;
        let answer = workloads::Answer::read(&text).filter(|_| measured.end == End::Code(0));
        let Some(answer) = answer else {
            let said = measured.stderr.last_lines(1)?.pop().unwrap_or_default();
            bail!("the replay without an allocator failed: {said}");
        };
        all.push(Base {
            seconds: answer.seconds,
            cpu: cpu(&measured),
            peak: answer.child_rss_bytes.unwrap_or(measured.peak_rss_bytes),
            rss_sum: answer.family_rss_bytes.unwrap_or(0),
            end: answer.end_rss_bytes.unwrap_or(0),
            curve: answer.curve,
        });
    }
    let middle = |of: fn(&Base) -> f64| {
        let mut values: Vec<f64> = all.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    Ok(Base {
        seconds: middle(|base| base.seconds),
        cpu: middle(|base| base.cpu),
        peak: middle(|base| base.peak as f64) as u64,
        rss_sum: middle(|base| base.rss_sum as f64) as u64,
        end: middle(|base| base.end as f64) as u64,
        curve: all.pop().map_or_else(Vec::new, |base| base.curve),
    })
}

impl Replay<'_> {
    /// Adds a row for each speed, and returns what a reader should know of them.
    fn run(&self, checked: Option<&Program>, rows: &mut Vec<Row>) -> Result<String> {
        let (plan, stop) = (self.plan, &self.session.stop);
        let mut fidelity = Fidelity::default();
        for speed in speeds(self.options, plan) {
            if !stop.requested() {
                rows.push(self.row(speed, &mut fidelity)?);
            }
        }
        let mut description = match &self.label {
            Some(label) => format!("{label}: "),
            None => String::new(),
        };
        description += &format!(
            "{} calls by {}{}, {} at most at once, in {}; live at most {}. {}{}",
            units::count(plan.calls as f64),
            match plan.processes {
                1 => String::new(),
                several => format!("{several} processes with "),
            },
            units::plural(plan.threads as usize, "thread"),
            plan.lanes,
            units::seconds(plan.span_us as f64 / 1e6),
            units::bytes(plan.peak_bytes as f64),
            self.memory_of_a_family(rows.last()),
            fidelity.told(plan),
        );
        if let Some(program) = checked.filter(|_| self.options.check && !stop.requested()) {
            let pairs = self.check(&program.path, rows.last())?;
            description += &format!(" {}", fidelity::checked(&pairs));
        }
        Ok(description + &doubts(plan))
    }

    /// What the figures of memory mean if there are several processes, and what they are in the
    /// last row if shared pages count in each.
    fn memory_of_a_family(&self, row: Option<&Row>) -> String {
        if self.plan.processes == 1 {
            return String::new();
        }
        let summed = |cell: &Cell| {
            let all = cell.runs.iter();
            let all = all.filter_map(|run| run.metric(workloads::RSS_SUM));
            let most = all.reduce(f64::max)?;
            Some(format!("{} {}", cell.allocator, units::bytes(most)))
        };
        let cells = row.map_or(&[][..], |row| &row.cells);
        let summed: Vec<String> = cells.iter().filter_map(summed).collect();
        format!(
            "Forks replay as forks. RSS is the sum of the processes' Pss, in which a page that they \
             share counts once; it is read at each hundredth of the time, or at full speed where most \
             bytes lived. Summed RSS at most: {}. Live bytes count a block that was inherited in \
             each process. ",
            summed.join(", ")
        )
    }

    fn spec(&self, speed: Speed, environment: Vec<(String, String)>, none: bool) -> Spec {
        let window = self
            .options
            .window
            .map_or(0, |window| window.as_micros().max(1));
        let pollute = self.options.pollute.map_or(0, |bytes| bytes.0);
        let touch = self.options.touch;
        let arguments = arguments(&self.plan_path, speed, window, touch, pollute, none);
        Spec {
            program: self.program.clone().into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment,
            without: crate::conditions::foreign_settings(),
            cpus: self.session.cpus.clone(),
            timeout: self.options.common.limit(Some(LIMIT_SECONDS)),
            exact_peak: true,
            input: None,
            folder: None,
        }
    }

    /// Runs the plan without an allocator.
    fn base(&self, speed: Speed) -> Result<Base> {
        let spec = || self.spec(speed, Vec::new(), true);
        base(&self.session.launcher, &self.session.stop, &spec)
    }

    fn row(&self, speed: Speed, fidelity: &mut Fidelity) -> Result<Row> {
        let base = self.base(speed)?;
        let allocators = self.session.allocators();
        let entries: Vec<Entry> = allocators
            .iter()
            .map(|allocator| {
                let conf = conf(allocator, self.options.conf.as_deref(), speed);
                let environment = environment(allocator, conf.as_deref());
                Entry {
                    allocator: allocator.name.clone(),
                    start: Start::Run(Box::new(self.spec(speed, environment, false))),
                    counted: None,
                }
            })
            .collect();
        let default = if speed.0.is_none() { RUNS } else { TIMED_RUNS };
        let runs = self.options.runs.unwrap_or(default) as usize;
        let mut race = Race::new(
            &self.session.launcher,
            &self.session.stop,
            usize::from(speed.0.is_none()),
            Runs::Fixed(runs),
            !self.options.common.no_warm,
        );
        race.progress = Progress::new(race.weight(1.0, &entries));
        let mut label = speed.to_string();
        if let Some(process) = &self.label {
            label = format!("{process}, {label}");
        }
        race.progress.say(&format!(
            "replay at {} on {}, {}",
            match speed.0 {
                None => "full speed".to_owned(),
                Some(_) => format!("{speed} the recorded speed"),
            },
            units::plural(entries.len(), "allocator"),
            race.runs.each()
        ));
        let row = race::Row {
            what: &label,
            entries: &entries,
            peak_bytes: self.plan.peak_bytes,
            weight: 1.0,
            beside: None,
            counting_weight: 0.0,
        };
        let cells = race.row(&row, &mut |name, measured| {
            let allocator = allocators
                .iter()
                .find(|allocator| allocator.name == name)
                .expect("the race runs what was asked for");
            let run = workloads::judge(allocator, measured)?;
            let text = measured.stdout.head(MAX_ANSWER_BYTES).unwrap_or_default();
            if let Some(seen) = Seen::read(&text) {
                fidelity.add(&seen, self.plan);
            }
            Ok(self.less_base(run, measured, speed, &base))
        });
        race.finish();
        Ok(Row {
            threads: self.plan.lanes as u32,
            seconds_are: speed.0.map(|_| "CPU time".to_owned()),
            metrics: match self.plan.processes {
                1 => Vec::new(),
                _ => vec![Metric {
                    name: workloads::RSS_SUM.to_owned(),
                    unit: "bytes".to_owned(),
                    higher_is_better: false,
                }],
            },
            live: match speed.0 {
                // The RSS at full speed is not over the recorded time.
                None => Vec::new(),
                Some(_) => live(self.plan),
            },
            ..Row::plain(label, cells)
        })
    }

    /// A run's figures without what the replay itself costs. In a row that keeps the recorded time,
    /// CPU time is compared.
    fn less_base(&self, run: Run, measured: &Measurement, speed: Speed, base: &Base) -> Run {
        let (whole, own) = match speed.0 {
            None => (run.seconds, base.seconds),
            Some(_) => (cpu(measured), base.cpu),
        };
        let (seconds, is_told) = alone::without(whole, own);
        Run {
            seconds,
            ops_per_second: is_told.then(|| self.plan.calls as f64 / seconds),
            peak_rss_bytes: run.peak_rss_bytes.saturating_sub(base.peak),
            end_rss_bytes: run.end_rss_bytes.map(|end| end.saturating_sub(base.end)),
            metrics: (run.metrics.iter())
                .map(|(name, value)| (name.clone(), (value - base.rss_sum as f64).max(0.0)))
                .collect(),
            curve: (run.curve.iter())
                .map(|(at, bytes)| (*at, bytes.saturating_sub(base.rss(*at))))
                .collect(),
            ..run
        }
    }

    /// Runs the program itself on each allocator and pairs its figures with the replay's.
    fn check(&self, program: &Path, row: Option<&Row>) -> Result<Vec<Pair>> {
        let mut pairs = Vec::new();
        let spinner = Spinner::new();
        for allocator in self.session.allocators() {
            let cell = row.and_then(|row| {
                row.cells
                    .iter()
                    .find(|cell| cell.allocator == allocator.name)
            });
            let Some((replayed_rss, replayed_cpu)) = cell.and_then(middle) else {
                continue;
            };
            let (mut rss, mut time) = (Vec::new(), Vec::new());
            for _ in 0..CHECK_RUNS {
                spinner.show(format!("the program itself on {}", allocator.name));
                let spec = Spec {
                    program: program.into(),
                    arguments: self.options.program[1..].to_vec(),
                    environment: environment(&allocator, self.options.conf.as_deref()),
                    cpus: self.session.cpus.clone(),
                    timeout: self.options.common.limit(None),
                    ..Spec::default()
                };
                let measured = self.session.launcher.run(&spec)?;
                if measured.end == End::Stopped {
                    self.session.stop.request();
                    return Ok(pairs);
                }
                rss.push(measured.peak_rss_bytes as f64);
                time.push(cpu(&measured));
            }
            rss.sort_by(f64::total_cmp);
            time.sort_by(f64::total_cmp);
            pairs.push(Pair {
                allocator: allocator.name.clone(),
                replayed_rss,
                own_rss: rss[rss.len() / 2],
                replayed_cpu,
                own_cpu: time[time.len() / 2],
            });
        }
        Ok(pairs)
    }
}

fn settings(options: &Options, processes: String) -> Vec<(String, String)> {
    let cpus = options.common.cpus.clone().unwrap_or_else(Cpus::allowed);
    let settings = [
        ("recording", options.file.display().to_string()),
        ("process", processes),
        (
            "threads",
            match options.serial {
                true => "one, in the recorded order".to_owned(),
                false => "as recorded".to_owned(),
            },
        ),
        (
            "window",
            options
                .window
                .map_or("as the recording".to_owned(), |window| {
                    format!("{window:?}")
                }),
        ),
        ("touched", format!("{:?}", options.touch).to_lowercase()),
        (
            "taken off",
            "time and memory of the same replay without an allocator".to_owned(),
        ),
        ("CPUs", cpus.to_string()),
    ];
    let owned = settings.into_iter();
    owned
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The middle peak RSS and CPU time of a cell.
fn middle(cell: &Cell) -> Option<(f64, f64)> {
    let middle = |of: fn(&Run) -> f64| {
        let mut values: Vec<f64> = cell.runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    Some((
        middle(|run| run.peak_rss_bytes as f64)?,
        middle(|run| run.user_seconds + run.system_seconds)?,
    ))
}

fn cpu(measured: &Measurement) -> f64 {
    (measured.user + measured.system).as_secs_f64()
}

/// The time after which an allocator that reads option strings gives memory back, by default.
const DECAY_MS: u64 = 10_000;

/// The option string at a speed: where recorded time passes faster than the clock, memory must go
/// back as much sooner.
fn conf(allocator: &Allocator, conf: Option<&str>, speed: Speed) -> Option<String> {
    let hundredths = match speed.0 {
        Some(hundredths) if hundredths > 100 && allocator.reads_conf() => u64::from(hundredths),
        _ => return conf.map(str::to_owned),
    };
    let given = [allocator.options.as_deref(), conf];
    let given: Vec<&str> = given.into_iter().flatten().collect();
    let given = given.join(",");
    let mut scaled: Vec<String> = conf.iter().map(|conf| (*conf).to_owned()).collect();
    for (name, default) in [("dirty_decay_ms", Some(DECAY_MS)), ("muzzy_decay_ms", None)] {
        let told = given
            .split(',')
            .filter_map(|one| one.trim().strip_prefix(name)?.strip_prefix(':'))
            .next_back()
            .map(|value| value.parse::<i64>().unwrap_or(-1));
        let value = match (told, default) {
            (Some(value), _) => u64::try_from(value).ok(),
            (None, default) => default,
        };
        if let Some(value) = value {
            scaled.push(format!("{name}:{}", value * 100 / hundredths));
        }
    }
    (!scaled.is_empty()).then(|| scaled.join(","))
}
