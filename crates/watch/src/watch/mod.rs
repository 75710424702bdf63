//! Looks at all threads every millisecond while a program runs.
//!
//! A look reads the thread's cell, then its state from `/proc`, then its cell again. If the cell
//! says "inside the allocator" and has not changed, the state belongs to that call; if it has
//! changed, the thread ran. The same word in two looks means one call that lasts.
//!
//! A look at a thread on the watch's own CPU says nothing about its CPU time. The kernel lets the
//! thread go on until its next system call before the watch gets the CPU, and system calls lie
//! outside the allocator more often than not.

pub mod findings;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use mallard_procfs::memory::{Rollup, resident};
use mallard_procfs::{Stat, is_alive, mapping, stat};

use crate::clock::{cpu_time, ticks_and_monotonic_ns};
use crate::probe::layout::{Cell, State};
use crate::probe::segments::{self, Segment};
use crate::threads::{self, Doing, Wait};
use crate::waits::Thread;
use findings::{Findings, Image, Memory};

/// How the share of CPU time inside the allocator is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Samples of the kernel.
    Perf,
    /// Timer signals of each thread's CPU time.
    Signals,
    /// Looks at the cells and at `/proc`.
    Proc,
}

/// How to watch.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Between two looks at the threads.
    pub every: Duration,
    /// The most threads in one look; of more, each look takes the next ones.
    pub most_threads: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            every: Duration::from_millis(1),
            most_threads: 8,
        }
    }
}

const MEMORY_INTERVAL: Duration = Duration::from_millis(50);
const LAZY_INTERVAL: Duration = Duration::from_secs(1);
/// Reading the sum over all mappings disturbs the program if it takes more CPU time than this.
const LAZY_TIME_MAX: Duration = Duration::from_millis(5);
/// Calls that last longer are counted one by one.
const LONG_CALL_TIME: Duration = Duration::from_millis(1);

/// Looks further apart than this do not show where a thread is between them.
const LOOK_GAP_MAX: Duration = Duration::from_millis(50);
const REALLOC: u8 = State::Realloc as u8;
const FREE: u8 = State::Free as u8;
const SIZED_FREE: u8 = State::SizedFree as u8;
/// The time in which a process answers a request.
const ANSWER_TIME: Duration = Duration::from_millis(300);

/// A call that was seen twice.
#[derive(Debug)]
struct Lasting {
    word: u64,
    since: Instant,
    /// The CPU time of its thread at that time.
    computed: Duration,
    counted: bool,
}

/// What one thread was seen to do.
#[derive(Debug, Default)]
struct Seen {
    /// The time of the last look at which it ran, and its CPU time then.
    computed: Option<(Instant, Duration)>,
    thread: Thread,
}

/// A watch of one program and its children.
pub struct Watch<'a> {
    folder: &'a Path,
    settings: Settings,
    segments: Vec<Segment>,
    peaks: HashMap<u32, u64>,
    found: Findings,
    begun: Instant,
    /// The call in which a thread was seen last.
    calls: HashMap<(u32, u32), Lasting>,
    threads: HashMap<(u32, u32), Seen>,
    /// Where the next look begins, if there are too many threads for one.
    next_thread: usize,
    lazy_too_slow: bool,
}

impl<'a> Watch<'a> {
    pub fn new(folder: &'a Path, settings: Settings) -> Watch<'a> {
        Watch {
            folder,
            settings,
            segments: Vec::new(),
            peaks: HashMap::new(),
            found: Findings::default(),
            begun: Instant::now(),
            calls: HashMap::new(),
            threads: HashMap::new(),
            next_thread: 0,
            lazy_too_slow: false,
        }
    }

    /// Watches until the process `main` ends, or `enough` says so.
    pub fn until_end_of(mut self, main: u32, enough: impl Fn() -> bool) -> Findings {
        let mut segments_at = self.begun;
        let mut memory_at = self.begun;
        let mut lazy_at = self.begun + LAZY_INTERVAL / 4;
        let mut look_at = self.begun;
        let mut last_look = self.begun;
        loop {
            let now = Instant::now();
            if now >= segments_at {
                let Some(stat) = Stat::of(main).filter(|stat| !stat.has_ended()) else {
                    break;
                };
                if stat.is_held() {
                    self.found.held_seconds += segments::LISTING_INTERVAL.as_secs_f64();
                }
                if enough() {
                    self.ask_for_free_memory();
                    break;
                }
                self.find_segments();
                segments_at = now + segments::LISTING_INTERVAL;
            }
            if now >= memory_at {
                let with_lazy = now >= lazy_at && !self.lazy_too_slow;
                if with_lazy {
                    lazy_at = now + LAZY_INTERVAL;
                }
                self.look_at_memory(with_lazy);
                memory_at = now + MEMORY_INTERVAL;
            }
            let since = now.duration_since(last_look);
            last_look = now;
            self.look_at_threads(since);
            look_at = (look_at + self.settings.every).max(now);
            thread::sleep(look_at.saturating_duration_since(Instant::now()));
        }
        self.finish()
    }

    /// Asks the allocators of all processes to return memory, as at their end. A process that makes
    /// no call meanwhile does not.
    fn ask_for_free_memory(&mut self) {
        for segment in &self.segments {
            segment.request_trim();
        }
        thread::sleep(ANSWER_TIME);
    }

    fn find_segments(&mut self) {
        let Ok(new) = segments::find_new(self.folder, &self.segments) else {
            return;
        };
        let first = new.is_empty();
        self.segments.extend(new);
        if !first {
            self.let_ended_go();
        }
    }

    /// Keeps the results of processes that are no more, and releases their memory.
    fn let_ended_go(&mut self) {
        let segments = std::mem::take(&mut self.segments);
        let latest: HashMap<u32, usize> = segments
            .iter()
            .enumerate()
            .map(|(index, segment)| (segment.pid, index))
            .collect();
        for (index, segment) in segments.into_iter().enumerate() {
            if latest[&segment.pid] == index && is_alive(segment.pid) {
                self.segments.push(segment);
            } else {
                self.keep(segment);
            }
        }
    }

    fn keep(&mut self, segment: Segment) {
        let header = segment.header();
        self.found.images.push(Image {
            pid: segment.pid,
            program: segment.program(),
            allocator: segment.allocator(),
            counts: segment.counts(),
            end: segment.end(),
            ended: segment.ended(),
            forked_from: header.forked_from.load(Ordering::Relaxed),
            peak_rss: self.peaks.get(&segment.pid).copied().unwrap_or(0),
            peak_live: segment.peak_live(),
            no_timer: header.no_timer.load(Ordering::Relaxed) != 0,
            ticks_per_second: ticks_per_second(
                header.tsc.load(Ordering::Relaxed),
                header.clock_ns.load(Ordering::Relaxed),
            ),
        });
        segment.unlink();
    }

    fn look_at_memory(&mut self, with_lazy: bool) {
        let mut memory = Memory {
            seconds: self.begun.elapsed().as_secs_f64(),
            ..Memory::default()
        };
        let seconds = memory.seconds;
        for segment in &self.segments {
            let Some(rss) = resident(segment.pid) else {
                continue;
            };
            let calls = segment.slots().iter().flat_map(|slot| &slot.cell.calls);
            let own = Memory {
                seconds,
                live: segment.live(),
                rss,
                lazy: None,
                calls: calls.map(|calls| calls.load(Ordering::Relaxed)).sum(),
            };
            memory.rss += own.rss;
            memory.live += own.live;
            memory.calls += own.calls;
            let peak = self.peaks.entry(segment.pid).or_default();
            *peak = rss.max(*peak);
            let process = self.found.processes.entry(segment.pid).or_default();
            if process.memory.is_empty() {
                process.first_seconds = seconds;
            }
            process.last_seconds = seconds;
            process.memory.push(own);
            if let Some(stat) = Stat::of(segment.pid) {
                process.user = stat::time_of(stat.user_ticks);
                process.system = stat::time_of(stat.system_ticks);
                process.faults = stat.faults;
                // Once its parent has ended it has another one.
                if process.parent == 0 {
                    process.parent = stat.parent;
                }
            }
        }
        if with_lazy {
            let begun = cpu_time();
            let mut read = |segment: &Segment| {
                let lazy = Rollup::of(segment.pid).ok()?.lazy_free;
                let process = self.found.processes.get_mut(&segment.pid);
                if let Some(own) = process.and_then(|process| process.memory.last_mut()) {
                    own.lazy = Some(lazy);
                }
                Some(lazy)
            };
            memory.lazy = self.segments.iter().map(&mut read).sum();
            self.lazy_too_slow = cpu_time().saturating_sub(begun) > LAZY_TIME_MAX;
            if let Some(segment) = self.segments.last() {
                self.found.mapped = mapping::files(segment.pid);
            }
        }
        self.found.memory.push(memory);
    }

    fn look_at_threads(&mut self, since: Duration) {
        let threads: Vec<(u32, u32, *const Cell)> = self
            .segments
            .iter()
            .flat_map(|segment| {
                segment
                    .slots()
                    .iter()
                    .skip(1)
                    .map(move |slot| (segment, slot))
            })
            .filter_map(|(segment, slot)| {
                let thread = slot.cell.owner.load(Ordering::Relaxed);
                (thread != 0).then_some((segment.pid, thread, &raw const slot.cell))
            })
            .collect();
        let count = threads.len();
        let look = count.min(self.settings.most_threads);
        self.found.thread_seconds += since.as_secs_f64() * count as f64;
        for offset in 0..look {
            let (pid, thread, cell) = threads[(self.next_thread + offset) % count];
            // SAFETY: the segments stay mapped during a look.
            self.look_at_thread(pid, thread, unsafe { &*cell });
        }
        self.next_thread = if count > look {
            self.next_thread + look
        } else {
            0
        };
    }

    fn look_at_thread(&mut self, pid: u32, thread: u32, cell: &Cell) {
        let word = cell.word.load(Ordering::Relaxed);
        let inside = word & 0xff != 0;
        let doing = threads::doing(pid, thread);
        let waits = matches!(doing, Doing::Sleeping | Doing::Blocked);
        let wait = waits.then(|| threads::waiting_for(pid, thread));
        let moved_on = cell.word.load(Ordering::Relaxed) != word;
        if matches!(doing, Doing::Gone | Doing::Stopped) {
            return;
        }
        let looks = &mut self.found.processes.entry(pid).or_default().looks;
        let seen = self.threads.entry((pid, thread)).or_default();
        seen.thread.look(pid, thread);
        if let Doing::Running { cpu } = doing {
            let (now, computed) = (Instant::now(), threads::computed(pid, thread));
            let before = seen.computed.replace((now, computed));
            let on_cpu = before.is_some_and(|(then, before)| {
                let lasted = now.duration_since(then);
                lasted < LOOK_GAP_MAX && computed.saturating_sub(before) * 2 >= lasted
            });
            let seen_at_work = on_cpu && cpu != threads::own_cpu();
            looks.computing_inside += u64::from(seen_at_work && inside);
            looks.computing_outside += u64::from(seen_at_work && !inside);
        }
        let waited = wait.filter(|_| !moved_on);
        match (inside, waited) {
            (true, Some(wait)) => *seen.thread.inside.entry(wait).or_default() += 1,
            (false, Some(wait)) => *seen.thread.outside.entry(wait).or_default() += 1,
            (true, None) => seen.thread.running += 1,
            (false, None) => {
                seen.thread.running += u64::from(matches!(doing, Doing::Running { .. }));
            }
        }
        if inside && !moved_on {
            self.note_call((pid, thread), word, wait);
        } else {
            self.calls.remove(&(pid, thread));
        }
    }

    /// A thread is in the same call as before, or in a new one.
    fn note_call(&mut self, (pid, thread): (u32, u32), word: u64, wait: Option<Wait>) {
        let now = Instant::now();
        let begun = || Lasting {
            word,
            since: now,
            computed: threads::computed(pid, thread),
            counted: false,
        };
        let looks = &mut self.found.processes.entry(pid).or_default().looks;
        let call = self.calls.entry((pid, thread)).or_insert_with(begun);
        if call.word != word {
            *call = begun();
            return;
        }
        let lasted = now.duration_since(call.since);
        if lasted < LONG_CALL_TIME {
            return;
        }
        let frees = matches!((word & 0xff) as u8, FREE | SIZED_FREE | REALLOC);
        let gives_back = frees
            && match wait {
                Some(wait) => wait == Wait::Mapping,
                // A thread that waits for a CPU does not run: its own time shows that.
                None => {
                    let computed = threads::computed(pid, thread).saturating_sub(call.computed);
                    computed >= LONG_CALL_TIME
                }
            };
        if !call.counted && gives_back {
            looks.long_frees += 1;
        } else if let Some(wait) = wait.filter(|_| !call.counted) {
            *looks.long_calls.entry(wait).or_default() += 1;
        }
        let ended = gives_back || wait.is_some();
        call.counted |= ended;
        if ended {
            looks.longest_call = looks.longest_call.max(lasted);
        }
    }

    fn finish(mut self) -> Findings {
        self.found.seconds = self.begun.elapsed().as_secs_f64();
        self.find_segments();
        for segment in std::mem::take(&mut self.segments) {
            self.keep(segment);
        }
        for ((pid, _), seen) in self.threads {
            let process = self.found.processes.entry(pid).or_default();
            process.looks.threads.push(seen.thread);
        }
        self.found
    }
}

/// The rate of the processor's counter since a segment was made.
fn ticks_per_second(tsc: u64, clock_ns: u64) -> f64 {
    let (now_tsc, now_ns) = ticks_and_monotonic_ns();
    let seconds = now_ns.saturating_sub(clock_ns).max(1) as f64 / 1e9;
    now_tsc.saturating_sub(tsc).max(1) as f64 / seconds
}
