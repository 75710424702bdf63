//! `mallard diagnose --pid`: a process that runs already. Nothing is put into it, so what happens
//! inside of malloc is not known unless the allocator tells; states, memory and faults are.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use mallard_measure::Cpus;
use mallard_observe::proc::{self, Doing, Wait};
use mallard_observe::who::{self, Family};
use mallard_report::diagnosis::{Answer, Diagnosis, Evidence, Figures, Moment, SCHEMA, Trouble};

use super::options::Options;
use crate::{machine, session};

const DURATION: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(10);
const MEMORY_EVERY: Duration = Duration::from_millis(100);

pub fn run(options: &Options, pid: u32) -> Result<ExitCode> {
    let process = i32::try_from(pid).unwrap_or(0);
    if process <= 0 || !proc::is_alive(process) {
        bail!("there is no process {pid}");
    }
    let stop = session::stop_on_signals()?;
    let started = SystemTime::now();
    let executable = fs::read_link(format!("/proc/{pid}/exe"));
    let Ok(executable) = executable else {
        bail!("process {pid} belongs to another user; watch it as that user or as root");
    };
    let loaded = proc::mapped_files(process);
    let duration = options.duration.unwrap_or(DURATION);
    let mut seen = Seen::default();
    let begun = Instant::now();
    let cpu_before = proc::cpu_seconds(process).unwrap_or_default();
    let mut memory_at = begun;
    while begun.elapsed() < duration && !stop.requested() && proc::is_alive(process) {
        seen.look(process);
        if Instant::now() >= memory_at {
            memory_at += MEMORY_EVERY;
            seen.timeline.push(Moment {
                seconds: begun.elapsed().as_secs_f64(),
                live: 0,
                rss: proc::rss(process).unwrap_or(0),
                lazy: None,
                calls_per_second: 0.0,
            });
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let cpu_after = proc::cpu_seconds(process).unwrap_or(cpu_before);
    let f = Figures {
        wall_seconds: begun.elapsed().as_secs_f64(),
        user_seconds: cpu_after.0 - cpu_before.0,
        system_seconds: cpu_after.1 - cpu_before.1,
        ..seen.figures()
    };
    let mut d = diagnosis(f, &executable, &loaded);
    d.timeline = seen.timeline;
    d.program = format!("{} (process {pid})", executable.display());
    d.command = std::env::args().collect();
    d.started = humantime::format_rfc3339_seconds(started).to_string();
    d.machine = machine::describe(&Cpus::allowed());
    d.thin();
    super::show(options, &d, Path::new(&format!("pid-{pid}")))
}

/// What the looks have shown.
#[derive(Default)]
struct Seen {
    looks: u64,
    running: u64,
    waiting: BTreeMap<Wait, u64>,
    threads: u64,
    timeline: Vec<Moment>,
}

impl Seen {
    fn look(&mut self, process: i32) {
        let threads = proc::threads(process);
        self.threads = self.threads.max(threads.len() as u64);
        for thread in threads {
            match proc::doing(process, thread) {
                Doing::Running => self.running += 1,
                Doing::Sleeping | Doing::Blocked => {
                    let wait = proc::waiting_for(process, thread);
                    *self.waiting.entry(wait).or_default() += 1;
                }
                Doing::Gone => continue,
            }
            self.looks += 1;
        }
    }

    fn figures(&self) -> Figures {
        let share = |count: u64| count as f64 / self.looks.max(1) as f64;
        let mut waits: Vec<(String, f64)> = self
            .waiting
            .iter()
            .map(|(wait, count)| (wait.name().to_owned(), share(*count)))
            .collect();
        waits.sort_by(|a, b| b.1.total_cmp(&a.1));
        Figures {
            runs: 1,
            processes: 1,
            threads: self.threads,
            samples: self.looks,
            running: share(self.running),
            waits_outside: waits,
            peak_rss: self
                .timeline
                .iter()
                .map(|moment| moment.rss)
                .max()
                .unwrap_or(0),
            exit: "runs".to_owned(),
            ..Figures::default()
        }
    }
}

fn diagnosis(mut f: Figures, executable: &Path, loaded: &[String]) -> Diagnosis {
    let served = loaded
        .iter()
        .find(|file| !matches!(Family::of_object(file), Family::Other | Family::Glibc));
    let content = fs::read(executable).unwrap_or_default();
    let libc = loaded
        .iter()
        .find(|file| Family::of_object(file) == Family::Glibc);
    (f.allocator, f.linkage) = match (served, who::is_go(&content), libc) {
        (Some(object), _, _) => (
            super::named(Family::of_object(object), object),
            "dynamic".to_owned(),
        ),
        (None, true, _) => ("Go’s own".to_owned(), "static".to_owned()),
        (None, false, Some(object)) => (super::named(Family::Glibc, object), "dynamic".to_owned()),
        (None, false, None) => {
            let family = Family::of_program(&content).map_or("not known", Family::name);
            (family.to_owned(), "static".to_owned())
        }
    };
    let busy = (f.user_seconds + f.system_seconds) / f.wall_seconds.max(1e-3);
    let pool = who::pool_of(&executable.to_string_lossy(), loaded);
    f.pool = pool.map(|pool| pool.name.to_owned());
    let idle = busy < 0.02;
    let takes = f
        .waits_outside
        .first()
        .filter(|_| idle)
        .map(|(kind, share)| Trouble {
            key: "idle".to_owned(),
            what: "the process waits".to_owned(),
            because: format!("{:.0} % of thread time, {kind}", share * 100.0),
        });
    let (answer, sentence) = if idle {
        let text = format!(
            "The process uses {:.1} % of one CPU: it waits, and no allocator makes it faster.",
            busy * 100.0
        );
        (Answer::No, text)
    } else {
        let text = format!(
            "The process uses {busy:.1} CPUs. What share of that is malloc’s is not known from \
             outside: start it with `mallard diagnose -- PROGRAM`."
        );
        (Answer::CannotTell, text)
    };
    Diagnosis {
        schema: SCHEMA,
        program: String::new(),
        command: Vec::new(),
        started: String::new(),
        machine: mallard_report::model::Machine::default(),
        answer,
        sentence,
        bound: None,
        troubles: Vec::new(),
        takes,
        notes: pool
            .map(|pool| format!("{}.", pool.advice))
            .into_iter()
            .collect(),
        next: Vec::new(),
        ways: vec![Evidence {
            what: "everything".to_owned(),
            how: "/proc, a hundred looks a second; nothing was put into the process".to_owned(),
        }],
        figures: f,
        timeline: Vec::new(),
    }
}
