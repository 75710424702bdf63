//! Samples of the kernel: what the threads of a process compute, seen from outside.
//!
//! The kernel stops a thread after each millisecond of its CPU time (`perf_event_open`, the
//! software clock, so that no counter of the processor is needed) and copies its registers and the
//! top of its stack. [`code`] walks that stack and tells whether a frame belongs to the allocator.
//! Nothing is put into the process, and it need not have been started in any special way.
//!
//! One event is opened for each thread and CPU, and threads and children that begin later inherit
//! it. The kernel refuses where `perf_event_paranoid` is above 2 and the caller has no
//! `CAP_PERFMON`; above 1, it shows only time in user mode.

pub mod code;
mod entries;

use std::io;

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

use crate::proc;
pub use code::{Code, Registers};

/// CPU time between two samples of a thread: 997 in a second, which no periodic work of the
/// program follows.
const PERIOD_NS: u64 = 1_003_009;
/// The stack that is copied. Frames of an allocator are small; the entry point lies within this.
const STACK_BYTES: u32 = 4096;
/// A buffer of a thread and CPU.
const BUFFER_BYTES: usize = 128 << 10;
/// More threads than this, times CPUs, would need more descriptors than a process usually has.
const MOST_EVENTS: usize = 512;

/// Why there are no samples.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("the process has ended")]
    Gone,
    #[error(
        "the kernel refuses perf events (kernel.perf_event_paranoid is {0}; 2 or less, root, or \
         CAP_PERFMON would allow them)"
    )]
    Paranoid(String),
    #[error("perf events: {0}")]
    System(io::Error),
    #[error("{0} threads are too many for an event each")]
    Threads(usize),
    #[error("this processor’s stacks cannot be walked")]
    Processor,
}

/// One sample.
#[derive(Debug)]
pub struct Sample {
    pub pid: i32,
    /// None where a thread of the kernel ran.
    pub registers: Option<Registers>,
    /// The stack from the stack pointer upwards.
    pub stack: Vec<u8>,
}

/// The events of one process and of all that it starts.
pub struct Samples {
    events: Vec<Sampler>,
    kernel: bool,
}

/// How often threads are listed again because some began while the events were opened.
const LISTINGS: usize = 5;

impl Samples {
    /// Begins to sample a process and all threads and processes that it will start.
    pub fn of(pid: i32) -> Result<Samples, Refused> {
        with_or_without_kernel(|kernel| {
            // A thread that begins meanwhile may or may not inherit the event of its parent.
            let mut threads = proc::threads(pid);
            for _ in 0..LISTINGS {
                let samples = Samples::open(&threads, kernel, true)?;
                let now = proc::threads(pid);
                if now == threads {
                    return Ok(samples);
                }
                threads = now;
            }
            Samples::open(&threads, kernel, true)
        })
    }

    /// Samples the programs that the calling thread will start, from their first instruction.
    pub fn of_children() -> Result<Samples, Refused> {
        with_or_without_kernel(|kernel| Samples::open(&[0], kernel, false))
    }

    fn open(threads: &[u32], kernel: bool, enabled: bool) -> Result<Samples, Refused> {
        let cpus = cpus();
        if threads.len() * cpus.len() > MOST_EVENTS {
            return Err(Refused::Threads(threads.len()));
        }
        let mut events = Vec::new();
        for &thread in threads {
            for &cpu in &cpus {
                match open(thread, cpu, kernel, enabled) {
                    Ok(event) => events.push(event),
                    Err(error) => match error.raw_os_error() {
                        // The thread has ended, or the CPU is off.
                        Some(libc::ESRCH | libc::ENODEV) => {}
                        Some(libc::EACCES | libc::EPERM) => return Err(refused()),
                        _ => return Err(Refused::System(error)),
                    },
                }
            }
        }
        if events.is_empty() {
            return Err(Refused::Gone);
        }
        Ok(Samples { events, kernel })
    }

    /// Whether samples in kernel mode are among them.
    pub fn has_kernel(&self) -> bool {
        self.kernel
    }

    /// Takes the samples since the last call; returns how many the kernel dropped.
    pub fn drain(&mut self, mut each: impl FnMut(Sample)) -> u64 {
        let mut lost = 0;
        for event in &mut self.events {
            while let Some(record) = event.next_record() {
                match record.parse_record() {
                    Ok(Record::Sample(sample)) => each(Sample {
                        pid: sample.pid().map_or(0, |pid| pid as i32),
                        registers: sample.regs_user().and_then(|r| registers(&r.regs)),
                        stack: sample.stack_user().unwrap_or_default().to_vec(),
                    }),
                    Ok(Record::Lost(dropped)) => lost += dropped.lost,
                    _ => {}
                }
            }
        }
        lost
    }
}

/// The bits of the registers that a walk needs, in the kernel's numbers for x86-64: frame pointer,
/// stack pointer, instruction pointer. The kernel writes them in this order.
const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;

fn registers(values: &[u64]) -> Option<Registers> {
    let [bp, sp, ip] = *values else { return None };
    Some(Registers { ip, sp, bp })
}

/// The kernel's part of a call belongs to it (page faults, system calls), but not every user may
/// see it.
fn with_or_without_kernel(
    open: impl Fn(bool) -> Result<Samples, Refused>,
) -> Result<Samples, Refused> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err(Refused::Processor);
    }
    match open(true) {
        Err(Refused::Paranoid(_)) => open(false),
        opened => opened,
    }
}

/// Opens the event of one thread on one CPU, to count at once or from its children's first exec on.
fn open(thread: u32, cpu: usize, kernel: bool, enabled: bool) -> io::Result<Sampler> {
    let flags = SampleFlag::TID | SampleFlag::REGS_USER | SampleFlag::STACK_USER;
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder
        .observe_pid(thread as i32)
        .one_cpu(cpu)
        .inherit(true)
        .sample(flags)
        .sample_period(PERIOD_NS)
        .sample_regs_user(REGISTERS)
        .sample_stack_user(STACK_BYTES)
        .exclude_kernel(!kernel)
        .exclude_hv(true)
        .enabled(enabled)
        .enable_on_exec(!enabled);
    let sampler = builder.build()?.sampled(BUFFER_BYTES)?;
    Ok(sampler)
}

fn refused() -> Refused {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let level = level.map_or("not known".to_owned(), |level| level.trim().to_owned());
    Refused::Paranoid(level)
}

/// The CPUs that are on.
fn cpus() -> Vec<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            cpus.extend(first..=last);
        }
    }
    if cpus.is_empty() {
        cpus.push(0);
    }
    cpus
}
