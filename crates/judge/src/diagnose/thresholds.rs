//! The thresholds of all verdicts. `mallard diagnose --explain` shows them.

/// Below this factor, no allocator is worth the change. An interval that lies on both sides decides
/// nothing.
pub const BOUND_FACTOR_MIN: f64 = 1.03;
/// Share of their time that busy threads wait inside the allocator.
pub const LOCK_WAIT_SHARE_MIN: f64 = 0.03;
/// CPU share of the allocator from which its work matters.
pub const WORK_CPU_SHARE_MIN: f64 = 0.05;
/// Share of requested bytes in requests that thread caches do not keep.
pub const MIDDLE_BYTES_SHARE_MIN: f64 = 0.10;
/// Share of page faults on pages that had been there before.
pub const REFAULT_SHARE_MIN: f64 = 0.20;
/// System calls a second by which the allocator gives memory back.
pub const GIVING_CALLS_PER_SECOND_MIN: f64 = 100.0;
/// Fewer such calls are those of any start, and with fewer faults of that kind memory only grows.
pub const GIVING_CALLS_MIN: f64 = 100.0;
pub const GIVING_REFAULT_SHARE_MIN: f64 = 0.05;
/// Share of CPU time in page faults.
pub const FAULT_CPU_SHARE_MIN: f64 = 0.05;
/// Share of CPU time in page faults below which they are left out of the bound.
pub const FAULT_SHARE_MIN: f64 = 0.005;
/// Fewer page faults are those of any start.
pub const FAULTS_MIN: u64 = 5000;
/// Frees a second that spend more than a millisecond in the kernel.
pub const SLOW_FREES_PER_SECOND_MIN: f64 = 0.5;
/// Share of blocks that another thread frees.
pub const HAND_OFF_SHARE_MIN: f64 = 0.20;
/// Memory over live bytes at the end, and the least excess that matters.
pub const HELD_FACTOR_MIN: f64 = 1.5;
pub const HELD_BYTES_MIN: u64 = 16 << 20;
/// A process on Mallard publishes its figures about four times a second while it allocates. Older
/// ones may be out of date.
pub const FRESH_SECONDS_MAX: f64 = 3.0;
/// Growth of live bytes over the run as a share of their peak, how well a line fits, and the least
/// that matters.
pub const GROWTH_SHARE_MIN: f64 = 0.5;
pub const GROWTH_FIT_MIN: f64 = 0.95;
pub const GROWTH_BYTES_MIN: u64 = 8 << 20;
/// Share of thread time from which a wait outside the allocator is what takes the time.
pub const OUTSIDE_WAIT_SHARE_MIN: f64 = 0.30;
/// Share of its time that a thread runs, from which the program waits for that thread.
pub const BUSY_THREAD_SHARE_MIN: f64 = 0.5;
/// Share of wall time that the program sleeps, from which the sentence on the bound says so.
pub const ASLEEP_SHARE_MIN: f64 = 0.05;
/// CPUs that a program uses below which it only waits, and how long it must have been seen to.
pub const BUSY_CPUS_MIN: f64 = 0.05;
pub const WAITING_SECONDS_MIN: f64 = 0.2;
/// Samples below which nothing is said about time.
pub const SAMPLES_MIN: u64 = 30;
/// Samples that the runs are repeated for.
pub const WANTED_SAMPLES: u64 = 2000;
