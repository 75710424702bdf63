//! `mallard diagnose --explain`: how evidence is obtained, and the thresholds of all verdicts.

use std::process::ExitCode;

use anyhow::Result;
use mallard_judge::diagnose::thresholds as limit;
use mallard_report::units;

use crate::terminal::output::say;

pub fn explain() -> Result<ExitCode> {
    say!("Evidence, how it is obtained, and the fallback:")?;
    for (what, how) in [
        (
            "calls, sizes, live bytes",
            "the probe; a program that takes none (static, setuid, 32-bit, musl, its own malloc): not known",
        ),
        (
            "CPU share (--how perf, --pid)",
            "samples of the kernel with the stack; for programs that take no probe and running processes",
        ),
        (
            "CPU share (--how ptrace)",
            "with --pid: each running thread is stopped for a moment, 100 times a second; on request only",
        ),
        (
            "CPU share (--how signals)",
            "timer signals of each thread’s CPU time; the probe says whether it is inside",
        ),
        (
            "CPU share (--how proc)",
            "the probe’s cells and /proc, read 1,000 times a second; used if the program uses that signal itself",
        ),
        (
            "waits, calls > 1 ms",
            "the same readings: a call that is in two of them lasts; /proc/PID/task/TID/syscall says what for",
        ),
        (
            "system calls",
            "a separate run with seccomp’s user notification; where that is refused: not counted",
        ),
        (
            "system calls (--pid)",
            "the kernel’s tracepoint, with the stack of each call; needs root and tracefs",
        ),
        (
            "page faults",
            "the kernel’s count; its price is measured on this machine",
        ),
        (
            "page faults by kind (--pid)",
            "samples of the kernel with addresses: heaps, files, stacks",
        ),
        (
            "live bytes (--pid)",
            "a process on Mallard publishes them; of any other: not known",
        ),
        (
            "held back or pinned",
            "at exit the allocator is asked for its free memory, and RSS is read before and after",
        ),
    ] {
        say!("  {what:<26} {how}")?;
    }
    say!("")?;
    say!("The thresholds:")?;
    for (what, threshold, verdict) in thresholds() {
        say!("  {what:<76} {threshold:<24} {verdict}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The thresholds for readers: what, threshold, verdict.
fn thresholds() -> [(String, String, &'static str); 15] {
    let percent = |share: f64| format!("{} %", (share * 100.0).round());
    let from = |share: f64| format!("≥ {}", percent(share));
    let works = percent(limit::WORK_CPU_SHARE_MIN);
    let bytes = |bytes: u64| units::bytes(bytes as f64);
    [
        (
            "bound, if malloc and free cost nothing: the whole interval".to_owned(),
            format!("≥ {}", limit::BOUND_FACTOR_MIN),
            "time: YES",
        ),
        (
            "the same".to_owned(),
            format!("< {}", limit::BOUND_FACTOR_MIN),
            "time: NO, look elsewhere; PERHAPS in between",
        ),
        (
            "time that busy threads wait inside the allocator".to_owned(),
            from(limit::LOCK_WAIT_SHARE_MIN),
            "locks",
        ),
        (
            format!("requested bytes in requests of 32 to 256 KiB, and CPU share ≥ {works}"),
            from(limit::MIDDLE_BYTES_SHARE_MIN),
            "caches too small",
        ),
        (
            "page faults on pages that had been there before".to_owned(),
            from(limit::REFAULT_SHARE_MIN),
            "memory is returned and needed again",
        ),
        (
            format!(
                "madvise, munmap, brk by the allocator, where {} of faults are on such pages",
                from(limit::GIVING_REFAULT_SHARE_MIN)
            ),
            format!("≥ {} a second", limit::GIVING_CALLS_PER_SECOND_MIN),
            "the same",
        ),
        (
            "CPU time of page faults, while the heap grows".to_owned(),
            from(limit::FAULT_CPU_SHARE_MIN),
            "growth",
        ),
        (
            "frees that spend more than 1 ms in the kernel".to_owned(),
            format!("≥ {} a second", limit::SLOW_FREES_PER_SECOND_MIN),
            "slow purge",
        ),
        (
            format!("blocks that another thread frees, and CPU share ≥ {works}"),
            from(limit::HAND_OFF_SHARE_MIN),
            "hand-off",
        ),
        (
            format!(
                "memory over live bytes at the end (and ≥ {} more), falls on a trim",
                bytes(limit::HELD_BYTES_MIN)
            ),
            format!("≥ {}", limit::HELD_FACTOR_MIN),
            "held back, if so in the last quarter of the run too",
        ),
        (
            "the same, does not fall".to_owned(),
            format!("≥ {}", limit::HELD_FACTOR_MIN),
            "pinned",
        ),
        (
            "the same at the peak of RSS only".to_owned(),
            format!("≥ {}", limit::HELD_FACTOR_MIN),
            "memory: PERHAPS",
        ),
        (
            format!(
                "live bytes grow steadily (and ≥ {})",
                bytes(limit::GROWTH_BYTES_MIN)
            ),
            format!("{} of their peak", from(limit::GROWTH_SHARE_MIN)),
            "the program's own growth",
        ),
        (
            "time that threads wait outside the allocator".to_owned(),
            from(limit::OUTSIDE_WAIT_SHARE_MIN),
            "names what they wait for: locks, other threads, files, events, sleep",
        ),
        (
            "samples".to_owned(),
            format!("< {}", limit::SAMPLES_MIN),
            "cannot tell",
        ),
    ]
}
