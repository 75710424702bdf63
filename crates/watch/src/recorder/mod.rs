//! Empties the probe's chunks into a recording while the program runs.
//!
//! [`Drain`] looks at the pools of all processes about every millisecond. It turns each full chunk
//! ([`pool`]) into events ([`decode`]), writes them as one chunk of the file, and gives the chunk
//! back. The few events of short threads share a chunk of the file; they wait for that a tenth of a
//! second at most. When a process has ended, by itself or by a signal, what its threads have begun
//! to fill is read too. So nothing is lost but what `--lossy` drops.

mod clock;
mod decode;
mod pool;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use mallard_formats::variables;
use mallard_procfs::memory::resident;
use mallard_procfs::{about, is_alive, mapping};
use mallard_trace::description::{self, End, Sample};
use mallard_trace::event::UNIT_NS;
use mallard_trace::{Event, Writer};

pub use clock::Clock;
use decode::Threads;
use pool::Pool;

use crate::probe::chunks::{FULL, TAKEN};
use crate::probe::segments::{self, Segment};

const MEMORY_INTERVAL: Duration = Duration::from_millis(100);
/// Samples of memory in one chunk of the file.
const CHUNK_SAMPLES: usize = 100;
/// The drain sleeps this long if it has found nothing to do. A thread that records ten million
/// events a second fills five chunks of hundreds meanwhile.
const IDLE_INTERVAL: Duration = Duration::from_millis(2);
/// A chunk that waits for an earlier one of its thread does so for this many looks.
const HELD_LOOKS_MAX: u32 = 3;
/// How long a record may take from its stamp to its chunk.
const SETTLE_TIME: Duration = Duration::from_millis(5);

/// When to end, besides the end of the program.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    pub time: Option<Duration>,
    /// Bytes of the file.
    pub bytes: Option<u64>,
}

/// Why a recording ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// With the program.
    Program,
    /// The time or the length that was asked for.
    Time,
    Length,
    /// The user's wish.
    Stopped,
    /// The file could not be written.
    Refused(String),
}

/// How a recording went.
#[derive(Debug)]
pub struct RecordingOutcome {
    pub ended: Ended,
    pub end: End,
    pub processes: u32,
    pub threads: u64,
    pub bytes: u64,
}

/// A process that is being recorded.
#[derive(Debug)]
struct Source {
    segment: Segment,
    pool: Pool,
    number: u32,
    threads: Threads,
    /// Looks that chunks have waited for earlier ones, by chunk.
    held: std::collections::HashMap<usize, u32>,
}

pub struct Drain<'a, W> {
    folder: &'a Path,
    clock: Clock,
    writer: Writer<W>,
    sources: Vec<Source>,
    /// Segments without a pool, so that they are looked at once.
    without: Vec<PathBuf>,
    processes: u32,
    /// The number of the last process with each id.
    by_pid: std::collections::HashMap<u32, u32>,
    samples: Vec<Sample>,
    end: End,
    threads: u64,
    /// Events after this are left out.
    until: u64,
    /// Why the file could not be written.
    refused: Option<String>,
}

impl<'a, W: Write> Drain<'a, W> {
    pub fn new(folder: &'a Path, clock: Clock, writer: Writer<W>) -> Drain<'a, W> {
        Drain {
            folder,
            clock,
            writer,
            sources: Vec::new(),
            without: Vec::new(),
            processes: 0,
            by_pid: Default::default(),
            samples: Vec::new(),
            end: End::default(),
            threads: 0,
            until: u64::MAX,
            refused: None,
        }
    }

    /// Records until the process `main` ends, a limit is reached, or `stop` says so. `look` gets
    /// the calls and the bytes so far.
    pub fn until_end_of(
        mut self,
        main: u32,
        limits: Limits,
        stop: impl Fn() -> bool,
        mut look: impl FnMut(u64, u64),
    ) -> (RecordingOutcome, Option<W>) {
        let begun = Instant::now();
        let (mut segments_at, mut memory_at) = (begun, begun);
        let ended = loop {
            let now = Instant::now();
            let mut last = false;
            if now >= segments_at {
                // Asked before the last look, so that nothing is missed.
                last = !is_alive(main);
                self.find_segments();
                segments_at = now + segments::LISTING_INTERVAL;
            }
            if now >= memory_at {
                self.look_at_memory();
                // Few events wait for others to share a chunk with, but not for long.
                if let Err(error) = self.writer.settle() {
                    break Ended::Refused(error.to_string());
                }
                look(self.writer.events(), self.writer.written());
                memory_at = now + MEMORY_INTERVAL;
            }
            let emptied = match self.empty(&[FULL]) {
                Ok(emptied) => emptied,
                Err(error) => break Ended::Refused(error.to_string()),
            };
            if let Some(problem) = self.refused.take() {
                break Ended::Refused(problem);
            }
            let written = self.writer.written();
            if limits.bytes.is_some_and(|most| written >= most) {
                break Ended::Length;
            }
            if last {
                break Ended::Program;
            }
            if limits.time.is_some_and(|time| begun.elapsed() >= time) {
                break Ended::Time;
            }
            if stop() {
                break Ended::Stopped;
            }
            if emptied == 0 {
                thread::sleep(IDLE_INTERVAL);
            }
        };
        self.end.seconds = begun.elapsed().as_secs_f64();
        self.finish(ended)
    }

    fn finish(mut self, mut ended: Ended) -> (RecordingOutcome, Option<W>) {
        // Also processes that outlive the program: they must not wait for a drain that is gone.
        if !self.sources.is_empty() {
            self.until = self.clock.now();
            for source in &self.sources {
                source.pool.stop();
            }
            thread::sleep(SETTLE_TIME);
        }
        if !matches!(ended, Ended::Refused(_))
            && let Err(error) = self.finish_sources()
        {
            ended = Ended::Refused(error.to_string());
        }
        for source in std::mem::take(&mut self.sources) {
            self.let_go(source);
        }
        self.end.events = self.writer.events();
        self.end.ended = match &ended {
            Ended::Program => "with the program".to_owned(),
            Ended::Time => "after the time that was asked for".to_owned(),
            Ended::Length => "at the length that was asked for".to_owned(),
            Ended::Stopped => "by the user".to_owned(),
            Ended::Refused(error) => format!("the file could not be written: {error}"),
        };
        let mut outcome = RecordingOutcome {
            ended,
            processes: self.processes,
            threads: self.threads,
            bytes: self.writer.written(),
            end: self.end,
        };
        let refused = matches!(outcome.ended, Ended::Refused(_));
        if !refused && !self.samples.is_empty() {
            // Without its last samples a recording is still one.
            let _ = self.writer.memory(&self.samples);
        }
        if refused {
            return (outcome, None);
        }
        let written = self.writer.finish(&outcome.end);
        match written {
            Ok(out) => (outcome, Some(out)),
            Err(error) => {
                outcome.ended = Ended::Refused(error.to_string());
                (outcome, None)
            }
        }
    }

    /// What processes that ended, or are no longer recorded, have begun to fill.
    fn finish_sources(&mut self) -> mallard_trace::Result<()> {
        self.find_segments();
        // Two looks: chunks of one thread may lie in any order.
        self.empty(&[FULL])?;
        self.empty(&[FULL, TAKEN])?;
        Ok(())
    }

    fn find_segments(&mut self) {
        let known = |file: &Path| {
            let sources = self.sources.iter();
            sources
                .map(|source| source.segment.file())
                .any(|known| known == file)
                || self.without.iter().any(|known| known == file)
        };
        let Ok(found) = segments::find(self.folder, known) else {
            return;
        };
        for segment in found {
            let file = segment.file().to_owned();
            match Pool::of(&file) {
                Ok(Some(pool)) => self.begin(segment, pool),
                // It is being made, or there was no room for it.
                Ok(None) if is_alive(segment.pid) => {}
                Ok(None) | Err(_) => {
                    self.without.push(file);
                    self.end.not_recorded.push(format!(
                        "process {} ({}): no room for its chunks",
                        segment.pid,
                        segment.program()
                    ));
                }
            }
        }
        self.let_ended_go();
    }

    fn begin(&mut self, segment: Segment, pool: Pool) {
        self.processes += 1;
        let header = segment.header();
        let forked_from = header.forked_from.load(Ordering::Relaxed);
        let forked_at = pool.header().forked_at.load(Ordering::Relaxed);
        let parent = self.by_pid.get(&forked_from).copied();
        let pid = segment.pid;
        let process = description::Process {
            number: self.processes,
            pid,
            forked_from: parent.filter(|_| forked_from != 0),
            since: match forked_at {
                0 => self.clock.now(),
                stamp => self.clock.units(stamp),
            },
            program: segment.program(),
            allocator: segment.allocator(),
            options: options(pid),
            mapped: mapping::files(segment.pid),
        };
        // A file that cannot be written is noticed by the next chunk.
        let _ = self.writer.process(&process);
        self.by_pid.insert(pid, self.processes);
        self.sources.push(Source {
            segment,
            pool,
            number: self.processes,
            threads: Threads::default(),
            held: Default::default(),
        });
    }

    /// Reads the rest of processes that are no more, and releases their memory.
    fn let_ended_go(&mut self) {
        let sources = std::mem::take(&mut self.sources);
        let latest = |source: &Source| self.by_pid.get(&(source.segment.pid)).copied();
        let (alive, ended): (Vec<_>, Vec<_>) = sources.into_iter().partition(|source| {
            latest(source) == Some(source.number) && is_alive(source.segment.pid)
        });
        self.sources = alive;
        for mut source in ended {
            let emptied = self
                .empty_one(&mut source, &[FULL])
                .and_then(|_| self.empty_one(&mut source, &[FULL, TAKEN]));
            if let Err(error) = emptied {
                self.refused.get_or_insert(error.to_string());
            }
            self.let_go(source);
        }
    }

    fn let_go(&mut self, source: Source) {
        let header = source.pool.header();
        self.end.dropped += header.dropped.load(Ordering::Relaxed);
        self.end.stalls += header.stalls.load(Ordering::Relaxed);
        let stalled = self.clock.length(header.stalled.load(Ordering::Relaxed));
        self.end.stalled_seconds += (stalled * UNIT_NS) as f64 / 1e9;
        self.threads += source.threads.count();
        source.pool.unlink();
        source.segment.unlink();
    }

    /// Writes the chunks in these states. Returns how many there were.
    fn empty(&mut self, states: &[u32]) -> mallard_trace::Result<usize> {
        let mut sources = std::mem::take(&mut self.sources);
        let mut emptied = Ok(0);
        for source in &mut sources {
            match (self.empty_one(source, states), &mut emptied) {
                (Ok(more), Ok(sum)) => *sum += more,
                (Err(error), Ok(_)) => emptied = Err(error),
                (_, Err(_)) => break,
            }
        }
        self.sources = sources;
        emptied
    }

    fn empty_one(&mut self, source: &mut Source, states: &[u32]) -> mallard_trace::Result<usize> {
        let Source {
            pool,
            threads,
            held,
            number,
            ..
        } = source;
        let last = states.contains(&TAKEN);
        let mut found: Vec<(u64, usize)> = pool
            .in_states(states)
            .into_iter()
            .map(|index| (pool.place(index).2, index))
            .collect();
        found.sort_unstable();
        let mut emptied = 0;
        for (_, index) in found {
            let (thread, serial, _) = pool.place(index);
            let waits = held.entry(index).or_insert(0);
            if !last && !threads.is_next(thread, serial) && *waits < HELD_LOOKS_MAX {
                *waits += 1;
                continue;
            }
            held.remove(&index);
            let chunk = pool.read(index);
            for (thread, mut events) in threads.events(&chunk, self.clock) {
                if self.until != u64::MAX {
                    events.retain(|event| event.when <= self.until);
                }
                sort(&mut events);
                if !events.is_empty() {
                    self.writer.events_of(*number, thread, &events)?;
                }
            }
            pool.release(&chunk);
            emptied += 1;
        }
        Ok(emptied)
    }

    fn look_at_memory(&mut self) {
        let when = self.clock.now();
        for source in &self.sources {
            if let Some(rss) = resident(source.segment.pid) {
                self.samples.push(Sample {
                    process: source.number,
                    when,
                    rss,
                });
            }
        }
        if self.samples.len() >= CHUNK_SAMPLES {
            // A file that cannot be written is noticed by the next chunk.
            let _ = self.writer.memory(&self.samples);
            self.samples.clear();
        }
    }
}

/// Stamps of a thread rise, unless its clock was set back between two CPUs.
fn sort(events: &mut [Event]) {
    let mut reached = 0;
    for event in events {
        event.when = event.when.max(reached);
        reached = event.when;
    }
}

/// The option variables of allocators in a process's environment.
fn options(pid: u32) -> String {
    let mut variables = about::environment(pid);
    variables.retain(|variable| variables::is_option(variable));
    variables.join(" ")
}
