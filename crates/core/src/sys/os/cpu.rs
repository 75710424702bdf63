//! CPUs: which one the calling thread runs on, how many there are, which of them it may use, and
//! which share a core.
//!
//! If the C library has registered restartable sequences for its threads (glibc from 2.35 on), the
//! kernel writes the CPU's number into each thread's memory whenever it moves the thread, and a
//! query is one load. Otherwise the C library asks the vDSO. The symbol that locates the number is
//! looked up weakly, so that the library also loads under older C libraries.

use crate::sys::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sys::errno::KeepErrno;
use crate::sys::proc::{self, DIGITS, digits};
use crate::sys::spread::SPREAD_FACTOR;
use crate::sys::tls;

// From the kernel's `struct rseq`.
const CPU_ID: usize = 4;

/// The value of a weak symbol of this type; `None` if there is no such symbol.
macro_rules! weak {
    ($name:literal as $type:ty) => {{
        let symbol = crate::symbol_address!(weak $name) as *const $type;
        // SAFETY: null, or a constant of the C library of this type.
        unsafe { symbol.as_ref() }.copied()
    }};
}

/// The CPU that the calling thread runs on at this moment; `None` if it is unknown.
pub fn current() -> Option<usize> {
    registered().or_else(asked)
}

/// The number that the kernel has written for the thread.
fn registered() -> Option<usize> {
    let size = weak!("__rseq_size" as u32)?;
    let offset = weak!("__rseq_offset" as isize)?;
    if size == 0 {
        // A tunable of the C library turned registration off.
        return None;
    }
    let at = tls::thread().wrapping_add_signed(offset) + CPU_ID;
    // SAFETY: the C library's area for this thread, which only the kernel writes, at any moment.
    let cpu = unsafe { (at as *const i32).read_volatile() };
    // Negative if the kernel refused to register this thread.
    usize::try_from(cpu).ok()
}

/// The answer of the C library.
fn asked() -> Option<usize> {
    let _keep = KeepErrno::new();
    // SAFETY: no preconditions.
    usize::try_from(unsafe { asked!(Cpu or -1, libc::sched_getcpu()) }).ok()
}

/// One more than the highest number of an online CPU.
pub fn numbers() -> usize {
    let mut text = [0; 256];
    last_number(proc::start_of(c"/sys/devices/system/cpu/online", &mut text))
        .map_or_else(allowed, |last| last + 1)
}

/// What the process's first thread was allowed at its start: the number of CPUs, and a hash of the
/// set.
static ALLOWED: AtomicUsize = AtomicUsize::new(0);
static WHICH: AtomicU64 = AtomicU64::new(0);

/// Records the allowed CPUs, before a thread can have been restricted to some of them.
pub fn begin() {
    let (count, which) = ask_allowed();
    ALLOWED.store(count, Ordering::Relaxed);
    WHICH.store(which, Ordering::Relaxed);
}

/// CPUs that this process may run on, at least one.
pub fn allowed() -> usize {
    match ALLOWED.load(Ordering::Relaxed) {
        0 => ask_allowed().0.max(1),
        count => count,
    }
}

/// Whether the calling thread may use exactly the CPUs that the process could use at its start.
pub fn is_free() -> bool {
    ask_allowed().1 == WHICH.load(Ordering::Relaxed)
}

/// The number of CPUs that the calling thread may run on, and a hash of the set; zeros if they are
/// unknown.
// Not part of its callers: their frames would hold the mask.
#[inline(never)]
fn ask_allowed() -> (usize, u64) {
    let _keep = KeepErrno::new();
    let mut mask = [0u64; 128];
    // SAFETY: the kernel writes at most the given number of bytes. This is the plain system call
    // because the C library's sysconf may allocate.
    let n = unsafe {
        asked!(
            Cpu or -1,
            libc::syscall(
                libc::SYS_sched_getaffinity,
                0,
                size_of_val(&mask),
                mask.as_mut_ptr(),
            )
        )
    };
    let (mut count, mut which) = (0, 0u64);
    for &word in mask.iter().take(n.max(0) as usize / 8) {
        which = (which ^ word).wrapping_mul(SPREAD_FACTOR);
        let mut rest = word;
        // Every process runs this at its start: a loop is less code than counting without one.
        while rest != 0 {
            rest &= rest - 1;
            count += 1;
        }
    }
    (count, which)
}

/// The lowest number of a CPU that shares a core with this one; `cpu` itself if that is unknown.
pub fn first_of_core(cpu: usize) -> usize {
    let (mut path, mut number) = ([0; 80], [0; DIGITS]);
    let parts: [&[u8]; 3] = [
        b"/sys/devices/system/cpu/cpu",
        digits(cpu, &mut number),
        b"/topology/thread_siblings_list",
    ];
    let mut text = [0; 256];
    let told = proc::joined(parts, &mut path).map(|path| proc::start_of(path, &mut text));
    told.and_then(first_number).unwrap_or(cpu)
}

/// The first number in a CPU list of the kernel, such as `0-3,8`.
fn first_number(list: &[u8]) -> Option<usize> {
    number(list.split(|c| !c.is_ascii_digit()).next()?)
}

/// The last number in such a list.
fn last_number(list: &[u8]) -> Option<usize> {
    let mut numbers = list.split(|c| !c.is_ascii_digit());
    number(numbers.rfind(|part| !part.is_empty())?)
}

fn number(text: &[u8]) -> Option<usize> {
    proc::number(text, 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_are_read() {
        for (list, first, last) in [
            ("0\n", Some(0), Some(0)),
            ("0-3\n", Some(0), Some(3)),
            ("2,66\n", Some(2), Some(66)),
            ("0-1,8-127\n", Some(0), Some(127)),
            ("", None, None),
            ("\n", None, None),
        ] {
            assert_eq!(first_number(list.as_bytes()), first, "{list:?}");
            assert_eq!(last_number(list.as_bytes()), last, "{list:?}");
        }
    }

    #[test]
    fn both_ways_of_asking_name_a_cpu_that_the_thread_may_run_on() {
        // Restricted to one CPU, the thread cannot move between the two queries.
        let (mut all, mut one) = ([0u64; 16], [0u64; 16]);
        let held = asked().expect("Linux tells");
        one[held / 64] |= 1 << (held % 64);
        // SAFETY: the kernel reads and writes masks of the lengths given, for this thread.
        unsafe {
            libc::sched_getaffinity(0, size_of_val(&all), all.as_mut_ptr().cast());
            libc::sched_setaffinity(0, size_of_val(&one), one.as_ptr().cast());
        }
        assert_eq!((current(), asked()), (Some(held), Some(held)));
        assert!(registered().is_none_or(|cpu| cpu == held));
        assert!(held < numbers() && first_of_core(held) <= held);
        // SAFETY: as above.
        unsafe { libc::sched_setaffinity(0, size_of_val(&all), all.as_ptr().cast()) };
    }
}
