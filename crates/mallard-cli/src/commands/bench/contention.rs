//! `mallard bench contention`: counts how often threads contend for locks.
//!
//! Two CPUs cannot show how fast an allocator is on 64. But with the counting build of Mallard
//! (`mallard_allocators::counting`) the lab can count how often threads take each lock, find it
//! taken and sleep for it, and how many atomic read-modify-writes they execute. The total work
//! stays the same as the number of threads grows, so a row shows what the threads add. How often
//! threads contend still depends on the CPUs, but how often they take each kind of lock does not.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow, bail};
use mallard_allocators::counting;
use mallard_formats::variables::{MALLARD_CONF, MALLOC_CONF};
use mallard_measure::{Cpus, End, Launcher, Spec, Stop};

use super::Options;
use crate::session::folder::Folder;
use crate::terminal::exit::usage;
use crate::terminal::output::{self, say};
use crate::workloads::conditions::LIMIT_SECONDS;
use crate::workloads::{ANSWER_BYTES_MAX, Answer, Workloads};

const THREAD_COUNTS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const RUNS_PER_POINT: u32 = 3;
const FILE_NAME: &str = "contention.csv";

/// A workload that divides its work among its threads.
struct Load {
    name: &'static str,
    /// The total work of all threads, in the workload's own units; `--quick` does a tenth of it.
    work: u64,
    arguments: fn(threads: u32, work: u64) -> Vec<String>,
    /// The workload needs at least this many threads.
    least_threads: u32,
}

const LOADS: [Load; 5] = [
    Load {
        name: "batch",
        work: 1_000_000,
        arguments: |threads, work| shared(threads, work, 1, &["together=1".to_owned()]),
        least_threads: 1,
    },
    Load {
        name: "larson",
        work: 4_000_000,
        arguments: |threads, work| shared(threads, work, 4, &["rounds=4".to_owned()]),
        least_threads: 1,
    },
    Load {
        name: "handoff",
        work: 30_000,
        arguments: |threads, work| {
            vec![
                format!("producers={}", threads / 2),
                format!("consumers={}", threads / 2),
                format!("count={work}"),
            ]
        },
        least_threads: 2,
    },
    Load {
        name: "mixed",
        work: 4_000_000,
        arguments: |threads, work| shared(threads, work, 1, &[]),
        least_threads: 1,
    },
    Load {
        name: "many",
        work: 4_000_000,
        arguments: |threads, work| shared(threads, work, 1, &[]),
        least_threads: 1,
    },
];

/// The parameters of a workload whose `count` is the work of one thread, or of one thread in one of
/// its `rounds`.
fn shared(threads: u32, work: u64, rounds: u64, others: &[String]) -> Vec<String> {
    let count = (work / (u64::from(threads) * rounds)).max(1);
    let own = [format!("threads={threads}"), format!("count={count}")];
    [&own[..], others].concat()
}

/// The counts by lock and event.
#[derive(Debug, Default, PartialEq)]
struct Counts(BTreeMap<(String, String), u64>);

impl Counts {
    /// Adds the lines `lock event count` that a process wrote. An error is a sentence.
    fn add(&mut self, text: &str) -> Result<(), String> {
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [lock, event, count] = words[..] else {
                return Err(format!("a line of counts is {line:?}"));
            };
            let count: u64 = count
                .parse()
                .map_err(|_| format!("a line of counts is {line:?}"))?;
            *self
                .0
                .entry((lock.to_owned(), event.to_owned()))
                .or_default() += count;
        }
        Ok(())
    }

    /// The number of events of one kind, over all locks.
    fn sum(&self, event: &str) -> u64 {
        let of_event = self.0.iter().filter(|((_, e), _)| e == event);
        of_event.map(|(_, count)| count).sum()
    }

    fn of(&self, lock: &str, event: &str) -> u64 {
        let key = (lock.to_owned(), event.to_owned());
        self.0.get(&key).copied().unwrap_or(0)
    }

    /// The locks that a thread found taken, the most contended first.
    fn contended(&self) -> Vec<(&str, u64)> {
        let mut locks: Vec<_> = self
            .0
            .iter()
            .filter(|((_, event), count)| event == "contended" && **count > 0)
            .map(|((lock, _), count)| (lock.as_str(), *count))
            .collect();
        locks.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        locks
    }
}

/// A line of a workload's table.
#[derive(Debug)]
struct Line {
    threads: u32,
    operations: f64,
    counts: Counts,
}

impl Line {
    fn per_million(&self, count: u64) -> f64 {
        count as f64 / self.operations * 1e6
    }
}

pub fn run(options: &Options, names: &[String]) -> Result<ExitCode> {
    let loads = select(names)?;
    if let Some(option) = options.work.given_beside_threads() {
        return Err(usage(format!("{option} does not apply to contention")));
    }
    if options.common.choice.is_given() {
        return Err(usage(
            "contention is counted in Mallard only: leave out -a, --add and --variant",
        ));
    }
    let output = options.common.output.as_deref();
    let folder = Folder::open(output, "bench", "contention", SystemTime::now())?;
    let cpus = options.common.cpus.clone().map(Cpus::usable).transpose();
    eprintln!("Building the counting library");
    let library = counting::counting_library(None).map_err(|error| anyhow!(error))?;
    let launcher = Launcher::new(Stop::default())?;
    let workloads = Workloads::install(launcher.folder())?;
    let counter = Counter {
        counts: launcher.folder().join("counts"),
        launcher: &launcher,
        library: &library,
        cpus: cpus.context("--cpus")?,
        options,
    };
    let mut csv = String::from("workload,threads,operations,lock,event,count,per_million\n");
    for load in loads {
        let lines = counter.table(load, &workloads.plain(load.name))?;
        output::text(&table(load.name, &lines))?;
        for line in &lines {
            write_csv(&mut csv, load.name, line);
        }
    }
    let path = folder.text(FILE_NAME, &csv)?;
    say!("Data: {}", path.display())?;
    Ok(ExitCode::SUCCESS)
}

/// The workloads with these names, or all.
fn select(names: &[String]) -> Result<Vec<&'static Load>> {
    let known = || LOADS.iter().map(|load| load.name);
    if let Some(unknown) = names.iter().find(|name| !known().any(|k| k == **name)) {
        let known = known().collect::<Vec<_>>().join(", ");
        return Err(usage(format!(
            "contention cannot be counted in `{unknown}`; choose from {known}"
        )));
    }
    let chosen = |load: &&Load| names.is_empty() || names.iter().any(|name| name == load.name);
    Ok(LOADS.iter().filter(chosen).collect())
}

struct Counter<'a> {
    launcher: &'a Launcher,
    library: &'a Path,
    /// The file to which the library appends its counts.
    counts: PathBuf,
    cpus: Option<Cpus>,
    options: &'a Options,
}

impl Counter<'_> {
    fn table(&self, load: &Load, program: &Path) -> Result<Vec<Line>> {
        let asked = &self.options.work.threads[..];
        let threads = if asked.is_empty() {
            &THREAD_COUNTS[..]
        } else {
            asked
        };
        let possible = threads.iter().filter(|&&n| n >= load.least_threads);
        possible
            .map(|&threads| {
                eprintln!("{} · {threads} threads", load.name);
                self.line(load, program, threads)
                    .with_context(|| format!("{} with {threads} threads", load.name))
            })
            .collect()
    }

    /// Runs a workload several times and sums the counts and operations.
    fn line(&self, load: &Load, program: &Path, threads: u32) -> Result<Line> {
        let (quick, runs) = (self.options.work.quick, self.options.runs);
        let work = if quick { load.work / 10 } else { load.work };
        let mut line = Line {
            threads,
            operations: 0.0,
            counts: Counts::default(),
        };
        for _ in 0..runs.unwrap_or(if quick { 1 } else { RUNS_PER_POINT }) {
            let (operations, reported) = self.once(program, (load.arguments)(threads, work))?;
            line.operations += operations;
            line.counts.add(&reported).map_err(|error| anyhow!(error))?;
        }
        Ok(line)
    }

    /// Runs one process and returns its operations and the text of its counts.
    fn once(&self, program: &Path, arguments: Vec<String>) -> Result<(f64, String)> {
        let _ = fs::remove_file(&self.counts);
        let library = self.library.display().to_string();
        let spec = Spec {
            program: program.into(),
            arguments: arguments.iter().map(Into::into).collect(),
            environment: vec![
                ("LD_PRELOAD".to_owned(), library.clone()),
                (
                    counting::VARIABLE.to_owned(),
                    self.counts.display().to_string(),
                ),
            ],
            without: ["LD_LIBRARY_PATH", MALLOC_CONF, MALLARD_CONF]
                .map(str::to_owned)
                .to_vec(),
            cpus: self.cpus.clone(),
            timeout: self.options.common.limit(Some(LIMIT_SECONDS)),
            input: None,
            folder: None,
            exact_peak: false,
        };
        let measured = self.launcher.run(&spec)?;
        if measured.end != End::Code(0) {
            let said = measured.stderr.head(ANSWER_BYTES_MAX).unwrap_or_default();
            bail!("the workload failed: {:?}\n{said}", measured.end);
        }
        let text = measured.stdout.head(ANSWER_BYTES_MAX).unwrap_or_default();
        let answer =
            Answer::read(&text).ok_or_else(|| anyhow!("the workload did not print its result"))?;
        let reported = fs::read_to_string(&self.counts)
            .with_context(|| format!("the library {library} wrote no counts"))?;
        Ok((answer.operations, reported))
    }
}

/// A table for a terminal, all figures per million operations.
fn table(name: &str, lines: &[Line]) -> String {
    let mut text = format!(
        "\n{name}, per million operations\n{:>7} {:>10} {:>11} {:>10} {:>8}  {}\n",
        "threads", "atomics", "locks taken", "contended", "waits", "contended locks"
    );
    for line in lines {
        let counts = &line.counts;
        let locks: Vec<String> = counts
            .contended()
            .into_iter()
            .map(|(lock, count)| format!("{lock} {:.1}", line.per_million(count)))
            .collect();
        let _ = writeln!(
            text,
            "{:>7} {:>10.0} {:>11.0} {:>10.1} {:>8.1}  {}",
            line.threads,
            line.per_million(counts.of("atomics", "all")),
            line.per_million(counts.sum("acquired")),
            line.per_million(counts.sum("contended")),
            line.per_million(counts.sum("waited")),
            locks.join(", ")
        );
    }
    text
}

fn write_csv(csv: &mut String, name: &str, line: &Line) {
    for ((lock, event), count) in &line.counts.0 {
        let _ = writeln!(
            csv,
            "{name},{},{},{lock},{event},{count},{:.3}",
            line.threads,
            line.operations,
            line.per_million(*count)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_several_processes_add_up() {
        let mut counts = Counts::default();
        let reported = "bin acquired 10\nbin contended 2\nheap contended 5\natomics all 40\n";
        counts.add(reported).unwrap();
        counts.add(reported).unwrap();
        assert_eq!((counts.sum("acquired"), counts.sum("contended")), (20, 14));
        assert_eq!(counts.of("atomics", "all"), 80);
        assert_eq!(counts.contended(), [("heap", 10), ("bin", 4)]);
        let error = counts.add("bin acquired\n").unwrap_err();
        assert!(error.contains("bin acquired"), "{error}");
    }

    #[test]
    fn a_table_shows_rates() {
        let mut counts = Counts::default();
        counts
            .add("bin acquired 10\nbin contended 3\nbin waited 1\natomics all 40\n")
            .unwrap();
        let line = Line {
            threads: 8,
            operations: 2e6,
            counts,
        };
        let text = table("batch", &[line]);
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last, ["8", "20", "5", "1.5", "0.5", "bin", "1.5"], "{text}");
    }

    #[test]
    fn the_threads_divide_the_work() {
        for load in &LOADS {
            for threads in THREAD_COUNTS
                .into_iter()
                .filter(|&threads| threads >= load.least_threads)
            {
                let arguments = (load.arguments)(threads, load.work);
                assert!(
                    arguments.iter().all(|word| !word.ends_with("=0")),
                    "{arguments:?}"
                );
            }
        }
        assert_eq!(
            (LOADS[1].arguments)(4, 3200),
            ["threads=4", "count=200", "rounds=4"]
        );
    }

    #[test]
    fn an_unknown_workload_is_rejected_with_the_known_ones() {
        let names = ["batch".to_owned(), "map".to_owned()];
        let error = select(&names).err().unwrap().to_string();
        assert!(
            error.contains("`map`") && error.contains("larson"),
            "{error}"
        );
        assert_eq!(select(&names[..1]).unwrap().len(), 1);
        assert_eq!(select(&[]).unwrap().len(), LOADS.len());
    }
}
