//! Samples of the kernel: what the threads of a process compute, seen from outside.
//!
//! The kernel stops a thread after each millisecond of its CPU time (`perf_event_open`, the
//! software clock, so that no counter of the processor is needed) and copies its registers and the
//! top of its stack. [`code`] walks that stack and says whether a frame belongs to the allocator.
//! Nothing is put into the process, and it need not have been started in any special way.
//!
//! The same events also report page faults, with their addresses ([`memory`] says what lies there),
//! and the system calls that change the address space, with the stacks that made them.
//!
//! One event is opened for each thread and CPU, and threads and children that begin later inherit
//! it. The kernel refuses where `perf_event_paranoid` is above 2 and the caller has no
//! `CAP_PERFMON`; above 1, it shows only time in user mode.

pub mod code;
mod entries;
pub mod memory;

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::{fs, io};

use perf_event::data::Record;
use perf_event::events::{Software, Tracepoint};
use perf_event::{Builder, SampleFlag, Sampler};

pub use crate::arch::Registers;
use crate::arch::{REGISTER_BITS, sampled};
use crate::syscalls::KINDS;
pub use code::Code;

/// CPU time between two samples of a thread: 997 in a second, which no periodic work of the
/// program follows.
const SAMPLE_PERIOD_NS: u64 = 1_003_009;
/// The stack that is copied. Frames of an allocator are small; the entry point lies within this.
const SAMPLED_STACK_BYTES: u32 = 4096;
/// The same of a thread that makes a system call, which may be made often.
const SAMPLED_CALL_STACK_BYTES: u32 = 2048;
/// A buffer of a thread and CPU.
const BUFFER_BYTES: usize = 128 << 10;
/// The same for system calls, where there are few such buffers.
const CALL_BUFFER_BYTES: usize = 512 << 10;
const FEW_BUFFERS: usize = 32;
/// Page faults between two samples.
pub const FAULTS_EACH: u64 = 13;
/// Where the system shows its tracepoints.
const TRACING_FOLDERS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const TRACEPOINT: &str = "events/raw_syscalls/sys_enter/id";
/// Where a sample of that tracepoint has the number of the call.
const CALL_NUMBER_AT_BYTE: usize = 8;
/// More threads than this, times CPUs, would need more descriptors than a process usually has.
const EVENTS_MAX: usize = 512;

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
    #[error("{0}")]
    Tracepoint(String),
    #[error("not asked for")]
    Unwanted,
}

/// What is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// CPU time.
    Time,
    /// Page faults, one in [`FAULTS_EACH`].
    Faults,
    /// The system calls of [`KINDS`], each of them.
    Calls,
}

/// One sample.
#[derive(Debug)]
pub struct Sample {
    pub pid: u32,
    /// None where a thread of the kernel ran.
    pub registers: Option<Registers>,
    /// The stack from the stack pointer upwards.
    pub stack: Vec<u8>,
    /// The address of a page fault.
    pub address: u64,
    /// The name of a system call.
    pub call: Option<&'static str>,
}

/// The events of one process and of all that it starts.
pub struct Samples {
    events: Vec<Sampler>,
    kernel: bool,
}

/// How often threads are listed again because some began while the events were opened.
const LISTINGS_MAX: usize = 5;

impl Samples {
    /// Begins to sample a process and all threads and processes that it will start.
    pub fn of(pid: u32, what: What) -> Result<Samples, Refused> {
        with_or_without_kernel(what, |kernel| {
            // A thread that begins meanwhile may or may not inherit the event of its parent.
            let mut threads = mallard_procfs::threads(pid);
            for _ in 0..LISTINGS_MAX {
                let samples = Samples::open(what, &threads, kernel, true)?;
                let now = mallard_procfs::threads(pid);
                if now == threads {
                    return Ok(samples);
                }
                threads = now;
            }
            Samples::open(what, &threads, kernel, true)
        })
    }

    /// Samples the programs that the calling thread will start, from their first instruction.
    pub fn of_children(what: What) -> Result<Samples, Refused> {
        with_or_without_kernel(what, |kernel| Samples::open(what, &[0], kernel, false))
    }

    fn open(what: What, threads: &[u32], kernel: bool, enabled: bool) -> Result<Samples, Refused> {
        let cpus = cpus();
        let tracepoint = match what {
            What::Calls => tracepoint()?,
            What::Time | What::Faults => 0,
        };
        let opening = Opening {
            what,
            tracepoint,
            kernel,
            enabled,
            is_one_of_few: threads.len() * cpus.len() <= FEW_BUFFERS,
        };
        if threads.len() * cpus.len() > EVENTS_MAX {
            return Err(Refused::Threads(threads.len()));
        }
        let mut events = Vec::new();
        for &thread in threads {
            for &cpu in &cpus {
                match opening.open(thread, cpu) {
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
                        pid: sample.pid().unwrap_or(0),
                        registers: sample.regs_user().and_then(|r| sampled(&r.regs)),
                        stack: sample.stack_user().unwrap_or_default().to_vec(),
                        address: sample.addr().unwrap_or(0),
                        call: sample.raw().and_then(call),
                    }),
                    Ok(Record::Lost(dropped)) => lost += dropped.lost,
                    _ => {}
                }
            }
        }
        lost
    }
}

/// The kernel's part of a call belongs to it (page faults, system calls), but not every user may
/// see it.
fn with_or_without_kernel(
    what: What,
    open: impl Fn(bool) -> Result<Samples, Refused>,
) -> Result<Samples, Refused> {
    match open(true) {
        Err(Refused::Paranoid(_)) if what != What::Calls => open(false),
        opened => opened,
    }
}

/// How events are opened.
struct Opening {
    what: What,
    /// The number of the tracepoint of system calls.
    tracepoint: u64,
    kernel: bool,
    /// Whether to count at once, or from the children's first exec on.
    enabled: bool,
    is_one_of_few: bool,
}

impl Opening {
    /// Opens the event of one thread on one CPU.
    fn open(&self, thread: u32, cpu: usize) -> io::Result<Sampler> {
        let (mut builder, mut buffer) = (self.builder(), BUFFER_BYTES);
        builder
            .observe_pid(thread as i32)
            .one_cpu(cpu)
            .inherit(true)
            .sample_regs_user(REGISTER_BITS)
            .exclude_kernel(!self.kernel)
            .exclude_hv(true)
            .enabled(self.enabled)
            .enable_on_exec(!self.enabled);
        if self.what == What::Calls && self.is_one_of_few {
            buffer = CALL_BUFFER_BYTES;
        }
        let counter = builder.build()?;
        if self.what == What::Calls {
            only_known_calls(counter.as_raw_fd())?;
        }
        counter.sampled(buffer)
    }

    /// What is sampled, and how often.
    fn builder(&self) -> Builder<'static> {
        let always = SampleFlag::TID | SampleFlag::REGS_USER;
        match self.what {
            What::Time => {
                let mut builder = Builder::new(Software::CPU_CLOCK);
                builder
                    .sample(always | SampleFlag::STACK_USER)
                    .sample_period(SAMPLE_PERIOD_NS)
                    .sample_stack_user(SAMPLED_STACK_BYTES);
                builder
            }
            What::Faults => {
                let mut builder = Builder::new(Software::PAGE_FAULTS);
                builder
                    .sample(always | SampleFlag::ADDR)
                    .sample_period(FAULTS_EACH);
                builder
            }
            What::Calls => {
                let mut builder = Builder::new(Tracepoint::with_id(self.tracepoint));
                builder
                    .sample(always | SampleFlag::STACK_USER | SampleFlag::RAW)
                    .sample_period(1)
                    .sample_stack_user(SAMPLED_CALL_STACK_BYTES);
                builder
            }
        }
    }
}

/// The number of the tracepoint at which each system call begins.
fn tracepoint() -> Result<u64, Refused> {
    let mut why = String::new();
    for folder in TRACING_FOLDERS {
        let file = format!("{folder}/{TRACEPOINT}");
        match fs::read_to_string(&file) {
            Ok(text) => {
                let number = text.trim().parse();
                return number.map_err(|_| Refused::Tracepoint(format!("{file} has no number")));
            }
            Err(error) if why.is_empty() => why = format!("{file}: {error}"),
            Err(_) => {}
        }
    }
    Err(Refused::Tracepoint(format!(
        "the kernel’s tracepoints cannot be read ({why}); root on a system with tracefs mounted can"
    )))
}

/// Has the kernel pass on the known calls only.
fn only_known_calls(event: i32) -> io::Result<()> {
    let known = KINDS.map(|(_, _, number)| format!("id == {number}"));
    let filter = CString::new(known.join(" || ")).expect("no zero");
    // SAFETY: the kernel reads the text, which ends with a zero.
    match unsafe { libc::ioctl(event, SET_FILTER, filter.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `PERF_EVENT_IOC_SET_FILTER`.
const SET_FILTER: libc::c_ulong = 0x4008_2406;

/// The name of the call that a sample of the tracepoint reports, if it is a known one.
fn call(raw: &[u8]) -> Option<&'static str> {
    let number = raw.get(CALL_NUMBER_AT_BYTE..CALL_NUMBER_AT_BYTE + 8)?;
    let number = i64::from_le_bytes(number.try_into().expect("8 bytes"));
    let known = KINDS.iter().find(|(_, _, known)| *known == number);
    known.map(|(_, name, _)| *name)
}

fn refused() -> Refused {
    let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let level = level.map_or("not known".to_owned(), |level| level.trim().to_owned());
    Refused::Paranoid(level)
}

/// The CPUs that are on.
fn cpus() -> Vec<usize> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = mallard_procfs::cpus::parse(text.trim());
    cpus.map_or(vec![0], Vec::from_iter)
}
