//! One run of a server: from its start to its end, with the load between.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mallard_procfs::{Stat, is_alive};
use mallard_runner::{End, Error, FAILURE_LINES, Launcher, Measurement, Purpose, Spec};
use rustix::process::Signal;

use crate::command;
use crate::file::{Service, signal_name};
use crate::memory::{self, Curve};
use crate::metrics::SEARCHED_BYTES_MAX;
use crate::port::free_port;
use crate::words::{Placeholders, Words};

/// A failure of the server or of its load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Trouble {
    pub reason: String,
    /// The last lines of what failed; none means those of the server.
    pub lines: Option<Vec<String>>,
}

impl Trouble {
    fn of_server(reason: impl Into<String>) -> Trouble {
        Trouble {
            reason: reason.into(),
            lines: None,
        }
    }
}

/// The figures of one run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Driven {
    /// The metrics of the description, in its order.
    pub metrics: Vec<(String, f64)>,
    /// From the load's start to its end.
    pub load_seconds: f64,
    /// CPU time of the server during the load.
    pub cpu_seconds: f64,
    /// Page faults of the server during the load.
    pub faults: u64,
    /// RSS over time, from the load's start. No RSS counts pages that the kernel may take at will.
    pub curve: Vec<(f64, u64)>,
    pub rss_peak: u64,
    pub rss_mean: f64,
    /// RSS after the load has gone and the server was idle for a while.
    pub rss_end: u64,
    /// Pages that the kernel could take at the end, and when the most memory was resident.
    pub lazy_free: u64,
    pub lazy_free_at_most: u64,
}

impl Driven {
    /// All figures by their names: the metrics, then those that every run has.
    pub fn figures(&self) -> Vec<(String, f64)> {
        let own = [
            ("cpu", self.cpu_seconds),
            ("rss_peak", self.rss_peak as f64),
            ("rss_mean", self.rss_mean),
            ("rss_end", self.rss_end as f64),
            ("faults", self.faults as f64),
            ("load_time", self.load_seconds),
        ];
        let own = own.map(|(name, figure)| (name.to_owned(), figure));
        self.metrics.iter().cloned().chain(own).collect()
    }
}

/// The time between two looks for the sign that the server is ready.
const READY_INTERVAL: Duration = Duration::from_millis(20);
/// How often the server is checked while its load runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A service in its place: everything that its runs share.
#[derive(Debug)]
pub struct Stage<'a> {
    pub service: &'a Service,
    pub place: Placeholders,
    launcher: &'a Launcher,
    path: String,
}

impl<'a> Stage<'a> {
    /// Checks that the programs are there, and runs `setup`.
    ///
    /// # Errors
    /// A program is missing, or `setup` failed.
    pub fn new(
        service: &'a Service,
        launcher: &'a Launcher,
        seconds: u32,
    ) -> Result<Stage<'a>, Trouble> {
        // Two services may share a launcher.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = launcher.folder().join(format!("service-{number}"));
        let (folder, base) = (root.join("run"), root.join("base"));
        for path in [&folder, &base] {
            fs::create_dir_all(path)
                .map_err(|e| Trouble::of_server(format!("cannot make {}: {e}", path.display())))?;
        }
        let here = service.here.clone().unwrap_or_else(|| folder.clone());
        let path = search_path(&service.path);
        let port = free_port().map_err(Trouble::of_server)?;
        let stage = Stage {
            service,
            place: Placeholders {
                folder,
                base,
                port,
                seconds,
                here,
            },
            launcher,
            path,
        };
        stage.check()?;
        stage.empty()?;
        if let Some(setup) = &service.setup {
            stage.command("setup", setup, ("setup_within", service.setup_within))?;
        }
        Ok(stage)
    }

    /// Refuses a service whose programs are not there.
    fn check(&self) -> Result<(), Trouble> {
        let missing = |(name, _): &&(String, String)| find(name, &self.path).is_none();
        let missing: Vec<_> = self.service.needs.iter().filter(missing).collect();
        if !missing.is_empty() {
            let names: Vec<&str> = missing.iter().map(|(name, _)| name.as_str()).collect();
            let mut packages: Vec<&str> = missing
                .iter()
                .map(|(_, package)| package.as_str())
                .collect();
            packages.dedup();
            return Err(Trouble::of_server(format!(
                "{} needs {}, which {} not installed (apt install {})",
                self.service.name,
                names.join(" and "),
                if names.len() == 1 { "is" } else { "are" },
                packages.join(" ")
            )));
        }
        for (key, words) in [("start", &self.service.start), ("load", &self.service.load)] {
            if let Some(program) = words.program().map(|program| self.place.fill(program))
                && find_from(&program, &self.path, &self.place.here).is_none()
            {
                return Err(Trouble::of_server(format!(
                    "service.{key}: there is no program {program}"
                )));
            }
        }
        Ok(())
    }

    /// The program that the allocator must serve: a path, if the description names it.
    pub fn program(&self) -> Option<PathBuf> {
        let named = self
            .service
            .program
            .as_deref()
            .or(self.service.start.program())?;
        let named = self.place.fill(named);
        find_from(&named, &self.path, &self.place.here)
    }

    /// The process to be measured, with an allocator's variables in its environment.
    pub fn spec(&self, environment: Vec<(String, String)>) -> Spec {
        let mut words = self.service.start.filled(&self.place);
        let program = words.remove(0);
        let mut all = self.variables();
        all.extend(environment);
        Spec {
            program: program.into(),
            arguments: words.into_iter().map(Into::into).collect(),
            environment: all,
            folder: Some(self.place.here.clone()),
            ..Spec::default()
        }
    }

    fn variables(&self) -> Vec<(String, String)> {
        let own = self.service.environment.iter();
        let own = own.map(|(name, value)| (name.clone(), self.place.fill(value)));
        std::iter::once(("PATH".to_owned(), self.path.clone()))
            .chain(own)
            .collect()
    }

    /// Makes the folder of a run anew. Call before each run.
    ///
    /// # Errors
    /// A file cannot be written, or `prepare` failed.
    pub fn reset(&self) -> Result<(), Trouble> {
        self.empty()?;
        match &self.service.prepare {
            Some(prepare) => {
                let limit = ("prepare_within", self.service.prepare_within);
                self.command("prepare", prepare, limit)
            }
            None => Ok(()),
        }
    }

    fn empty(&self) -> Result<(), Trouble> {
        let fail = |path: &Path, error: std::io::Error| {
            Trouble::of_server(format!("cannot write {}: {error}", path.display()))
        };
        let folder = &self.place.folder;
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).map_err(|error| fail(folder, error))?;
        for (name, text) in &self.service.files {
            let path = folder.join(name);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(|error| fail(parent, error))?;
            }
            fs::write(&path, self.place.fill(text)).map_err(|error| fail(&path, error))?;
        }
        Ok(())
    }

    /// Runs a command of the description to its end, within a time that has this key.
    fn command(
        &self,
        key: &str,
        words: &Words,
        (within, limit): (&str, Duration),
    ) -> Result<(), Trouble> {
        let shown = words.shown();
        let ended = command::run(words, &self.place, &self.variables(), limit);
        let ended = ended.map_err(|error| {
            Trouble::of_server(format!("cannot run service.{key} ({shown}): {error}"))
        })?;
        let how = match ended.status {
            Some(status) if status.success() => return Ok(()),
            Some(status) => format!("failed ({status})"),
            None => format!(
                "did not end within {} (service.{within})",
                humantime::format_duration(limit)
            ),
        };
        Err(Trouble {
            reason: format!("service.{key} ({shown}) {how}"),
            lines: Some(last_lines(&(ended.stdout + &ended.stderr))),
        })
    }

    /// Drives the server that was just started as process `pid`: waits, loads, reads, stops. An
    /// error means that the server must be killed. `check` judges the server when its load has
    /// gone.
    ///
    /// # Errors
    /// The server or its load failed.
    pub fn drive(
        &self,
        pid: u32,
        check: &mut dyn FnMut(u32) -> Result<(), Trouble>,
    ) -> Result<Driven, Trouble> {
        self.await_ready(pid)?;
        let driven = self.load(pid)?;
        check(pid)?;
        self.stop(pid)?;
        Ok(driven)
    }

    fn await_ready(&self, pid: u32) -> Result<(), Trouble> {
        let (ready, within) = (&self.service.ready, self.service.ready_within);
        let begun = Instant::now();
        let (streams, variables) = (streams(pid), self.variables());
        loop {
            let left = within.saturating_sub(begun.elapsed());
            if ready.is_there(&self.place, &variables, left, || text_of(&streams)) {
                // The address may be another server's.
                return if is_alive(pid) {
                    Ok(())
                } else {
                    Err(Trouble::of_server("the server ended before it was ready"))
                };
            }
            if !is_alive(pid) {
                return Err(Trouble::of_server("the server ended before it was ready"));
            }
            if begun.elapsed() > within {
                return Err(Trouble::of_server(format!(
                    "the server was not ready within {}: {}",
                    humantime::format_duration(within),
                    ready.shown(&self.place)
                )));
            }
            std::thread::sleep(READY_INTERVAL);
        }
    }

    /// Runs the load beside the server, and then waits while the server is idle.
    fn load(&self, pid: u32) -> Result<Driven, Trouble> {
        let mut words = self.service.load.filled(&self.place);
        let shown = self.service.load.shown();
        let program = words.remove(0);
        let spec = Spec {
            program: program.into(),
            arguments: words.into_iter().map(Into::into).collect(),
            environment: self.variables(),
            timeout: Some(self.service.load_within),
            folder: Some(self.place.here.clone()),
            ..Spec::default()
        };
        let before = memory::used(pid);
        let begun = Instant::now();
        let mut curve = Curve::default();
        let watch = |load: u32| {
            while is_alive(load) {
                if !is_alive(pid) {
                    return Err(());
                }
                curve.look(pid, begun.elapsed());
                std::thread::sleep(LOOK_INTERVAL);
            }
            Ok(())
        };
        let ran = self.launcher.run_beside(&spec, Purpose::Cost, watch);
        let (measured, watched) = match ran {
            Ok(ran) => ran,
            Err(Error::Stopped) => return Err(Trouble::of_server("stopped")),
            Err(error) => {
                return Err(Trouble::of_server(format!(
                    "service.load ({shown}): {error}"
                )));
            }
        };
        if watched.is_err() || !is_alive(pid) {
            return Err(Trouble::of_server("the server ended under its load"));
        }
        let after = memory::used(pid);
        check_load(&measured, &shown, self.service.load_within)?;
        let metrics = self.metrics(&measured)?;
        let load_seconds = measured.wall.as_secs_f64();
        let settling = Instant::now();
        while settling.elapsed() < self.service.settle {
            curve.look(pid, begun.elapsed());
            std::thread::sleep(LOOK_INTERVAL.min(self.service.settle));
            if !is_alive(pid) {
                return Err(Trouble::of_server("the server ended after its load"));
            }
        }
        let end = memory::memory(pid);
        Ok(Driven {
            metrics,
            load_seconds,
            cpu_seconds: after.cpu_seconds - before.cpu_seconds,
            faults: after.faults.saturating_sub(before.faults),
            rss_peak: curve.peak().max(end.bytes),
            rss_mean: curve.mean(),
            lazy_free_at_most: curve.lazy_free_at_most(),
            curve: curve.points,
            rss_end: end.bytes,
            lazy_free: end.lazy_free,
        })
    }

    fn metrics(&self, load: &Measurement) -> Result<Vec<(String, f64)>, Trouble> {
        let said = load.stdout.head(SEARCHED_BYTES_MAX).unwrap_or_default();
        let complained = load.stderr.head(SEARCHED_BYTES_MAX).unwrap_or_default();
        let read = |metric: &crate::Metric| {
            let found = metric.read(&said);
            // Some loads report on standard error.
            let found = found.or_else(|mismatch| metric.read(&complained).map_err(|_| mismatch));
            found.map(|figure| (metric.name.clone(), figure))
        };
        let all = self
            .service
            .metrics
            .iter()
            .map(read)
            .collect::<Result<_, _>>();
        all.map_err(|mismatch| Trouble {
            reason: mismatch.to_string(),
            lines: Some(last_lines(&said)),
        })
    }

    fn stop(&self, pid: u32) -> Result<(), Trouble> {
        let stop = &self.service.stop;
        let how = match &stop.command {
            Some(command) => {
                self.command("stop.command", command, ("stop.within", stop.within))?;
                format!("'{}'", command.shown())
            }
            None => {
                if let Some(signal) = Signal::from_named_raw(stop.signal) {
                    command::send(pid, signal);
                }
                signal_name(stop.signal)
            }
        };
        let asked = Instant::now();
        while is_alive(pid) {
            if asked.elapsed() > stop.within {
                return Err(Trouble::of_server(format!(
                    "the server did not stop within {} of {how}",
                    humantime::format_duration(stop.within)
                )));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// What is wrong with how the server ended, after [`Stage::drive`] stopped it.
    pub fn judge_end(&self, measured: &Measurement) -> Option<Trouble> {
        if !measured.left.is_empty() {
            return Some(Trouble::of_server(format!(
                "the server left processes behind, which were killed: {}",
                measured.left.join(", ")
            )));
        }
        // A server may report the signal that stopped it as its end, or as a code.
        match measured.end {
            End::Signal(signal) if signal != self.service.stop.signal => Some(Trouble::of_server(
                format!("the server was killed by signal {signal} while it stopped"),
            )),
            _ => None,
        }
    }
}

fn check_load(measured: &Measurement, shown: &str, within: Duration) -> Result<(), Trouble> {
    let problem = match measured.end {
        End::Code(0) => return Ok(()),
        End::Code(code) => format!("ended with code {code}"),
        End::Signal(signal) => format!("was killed by signal {signal}"),
        End::TimedOut => format!(
            "did not end within {} (service.load_within)",
            humantime::format_duration(within)
        ),
        End::Stopped => "was stopped".to_owned(),
    };
    let mut lines = measured
        .stderr
        .last_lines(FAILURE_LINES)
        .unwrap_or_default();
    if lines.is_empty() {
        lines = measured
            .stdout
            .last_lines(FAILURE_LINES)
            .unwrap_or_default();
    }
    Err(Trouble {
        reason: format!("the load ({shown}) {problem}"),
        lines: Some(lines),
    })
}

fn last_lines(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let from = lines.len().saturating_sub(FAILURE_LINES);
    lines[from..]
        .iter()
        .map(|line| (*line).to_owned())
        .collect()
}

/// The streams to which a just started server writes: its launcher's, which never change.
fn streams(pid: u32) -> Vec<PathBuf> {
    let launcher = Stat::of(pid).map_or(pid, |stat| stat.parent);
    [1, 2]
        .map(|fd| PathBuf::from(format!("/proc/{launcher}/fd/{fd}")))
        .to_vec()
}

fn text_of(streams: &[PathBuf]) -> String {
    let read = |path: &PathBuf| fs::read(path).unwrap_or_default();
    let text = streams
        .iter()
        .map(|path| String::from_utf8_lossy(&read(path)).into_owned());
    text.collect()
}

/// PATH with the folders of a description before it and those of servers after it. A `*` stands for
/// one part of a folder's path; of several, the last is taken.
fn search_path(own: &[String]) -> String {
    let mut folders: Vec<String> = own.iter().filter_map(|folder| newest(folder)).collect();
    folders.extend(std::env::var("PATH"));
    folders.extend(["/usr/sbin", "/sbin"].map(str::to_owned));
    folders.join(":")
}

fn newest(pattern: &str) -> Option<String> {
    let Some((before, after)) = pattern.split_once('*') else {
        return Some(pattern.to_owned());
    };
    let (parent, prefix) = before.rsplit_once('/')?;
    let (suffix, rest) = after.split_once('/').unwrap_or((after, ""));
    let names = fs::read_dir(parent).ok()?.flatten();
    let mut found: Vec<String> = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix) && name.ends_with(suffix))
        .map(|name| format!("{parent}/{name}/{rest}"))
        .filter(|folder| Path::new(folder).is_dir())
        .collect();
    // The longer number is the newer: 9 before 15.
    found.sort_by_key(|folder| (folder.len(), folder.clone()));
    found.pop()
}

/// The file of a program by its name, in the folders of `path`.
fn find(name: &str, path: &str) -> Option<PathBuf> {
    find_from(name, path, Path::new("/"))
}

fn find_from(name: &str, path: &str, here: &Path) -> Option<PathBuf> {
    if name.contains('/') {
        let file = here.join(name);
        return file.is_file().then_some(file);
    }
    let folders = path.split(':');
    folders
        .map(|folder| Path::new(folder).join(name))
        .find(|file| file.is_file())
}
