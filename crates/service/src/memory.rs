//! The memory and the use of a server's processes.

use mallard_procfs::memory::{Rollup, resident};
use mallard_procfs::{Stat, family, stat};
use std::time::{Duration, Instant};

/// What processes have used of the machine so far, together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Used {
    pub cpu_seconds: f64,
    /// Page faults, minor and major.
    pub faults: u64,
}

/// The use of a process and its descendants, including those that have ended and were waited for.
pub fn used(pid: u32) -> Used {
    let mut used = Used::default();
    for stat in family::of(pid).into_iter().filter_map(Stat::of) {
        let ticks = stat.cpu_ticks() + stat.child_ticks;
        used.cpu_seconds += stat::time_of(ticks).as_secs_f64();
        used.faults += stat.faults + stat.child_faults;
    }
    used
}

/// The resident memory of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Without the pages that the kernel may take at will. Pages that several of the server's
    /// processes share count once.
    pub bytes: u64,
    /// The pages that the kernel may take at will (`MADV_FREE`).
    pub lazy_free: u64,
}

/// The resident memory of a process and its descendants. Reads the page tables, which takes
/// milliseconds for large processes.
pub fn memory(pid: u32) -> Memory {
    let all = family::of(pid);
    // The share of each page that belongs to a process; exact for all of them together unless
    // other programs share pages.
    let is_single = all.len() == 1;
    let mut memory = Memory::default();
    for rollup in all.into_iter().flat_map(Rollup::of) {
        let bytes = if is_single { rollup.rss } else { rollup.pss };
        memory.lazy_free += rollup.lazy_free;
        memory.bytes += bytes.saturating_sub(rollup.lazy_free);
    }
    memory
}

/// RSS over time, without the pages that the kernel may take at will.
#[derive(Debug, Default)]
pub struct Curve {
    pub points: Vec<(f64, u64)>,
    /// When the next point is due, and when such pages of a single process are counted again.
    next: Duration,
    next_lazy: Duration,
    /// Such pages of a single process at the last look.
    lazy: u64,
    /// The point with the most resident memory, such pages included.
    most: Memory,
}

/// Ten points a second; one a second where a point takes long.
const POINT_INTERVAL: Duration = Duration::from_millis(100);
const SLOW_POINT_INTERVAL: Duration = Duration::from_secs(1);
/// A point that takes longer than this disturbs what it measures.
const POINT_TIME_MAX: Duration = Duration::from_millis(5);
/// The time between two searches for pages that the kernel may take at any time, as a multiple of
/// the time of one.
const LAZY_INTERVAL_FACTOR: u32 = 200;

impl Curve {
    /// Adds a point if one is due `since` the start.
    pub fn look(&mut self, pid: u32, since: Duration) {
        if since < self.next {
            return;
        }
        self.next = since + POINT_INTERVAL;
        let seen = if family::of(pid).len() > 1 {
            let begun = Instant::now();
            let seen = memory(pid);
            if begun.elapsed() > POINT_TIME_MAX {
                self.next = since + SLOW_POINT_INTERVAL;
            }
            Some(seen).filter(|seen| seen.bytes > 0)
        } else {
            self.single(pid, since)
        };
        let Some(seen) = seen else {
            return;
        };
        if seen.bytes + seen.lazy_free >= self.most.bytes + self.most.lazy_free {
            self.most = seen;
        }
        self.points.push((since.as_secs_f64(), seen.bytes));
    }

    /// The memory of a single process. Its RSS is read at every point, what the kernel may take of
    /// it once a second.
    fn single(&mut self, pid: u32, since: Duration) -> Option<Memory> {
        if since >= self.next_lazy {
            let begun = Instant::now();
            self.lazy = memory(pid).lazy_free;
            self.next_lazy =
                since + (begun.elapsed() * LAZY_INTERVAL_FACTOR).max(SLOW_POINT_INTERVAL);
        }
        let rss = resident(pid)?;
        let lazy_free = self.lazy.min(rss);
        Some(Memory {
            bytes: rss - lazy_free,
            lazy_free,
        })
    }

    /// The pages that the kernel could take when the most memory was resident.
    pub fn lazy_free_at_most(&self) -> u64 {
        self.most.lazy_free
    }

    pub fn peak(&self) -> u64 {
        self.points
            .iter()
            .map(|(_, bytes)| *bytes)
            .max()
            .unwrap_or(0)
    }

    pub fn mean(&self) -> f64 {
        let sum: f64 = self.points.iter().map(|(_, bytes)| *bytes as f64).sum();
        sum / self.points.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn descendants_are_found_and_their_memory_is_not_counted_twice() {
        let script = "sleep 60 & sleep 60 & wait";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::null());
        let mut shell = shell.spawn().unwrap();
        let begun = Instant::now();
        while family::of(shell.id()).len() < 3 && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let all = family::of(shell.id());
        assert_eq!(all.len(), 3);
        let shared = memory(shell.id()).bytes;
        let each: u64 = all.iter().filter_map(|process| resident(*process)).sum();
        assert!(shared > 0 && shared < each, "{shared} {each}");
        for child in &all[1..] {
            let pid = rustix::process::Pid::from_raw(*child as i32).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
    }

    #[test]
    fn pages_that_the_kernel_may_take_do_not_count() {
        const BLOCK_BYTES: usize = 64 << 20;
        // SAFETY: a fresh mapping, which only this test uses.
        let block = unsafe {
            use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let block = mmap_anonymous(
                std::ptr::null_mut(),
                BLOCK_BYTES,
                protection,
                MapFlags::PRIVATE,
            );
            let block = block.unwrap();
            std::slice::from_raw_parts_mut(block.cast::<u8>(), BLOCK_BYTES).fill(1);
            madvise(block, BLOCK_BYTES, Advice::LinuxFree).unwrap();
            block
        };
        let own = std::process::id();
        let lazy = memory(own).lazy_free;
        if lazy < BLOCK_BYTES as u64 / 2 {
            return mallard_testing::skipped("the kernel took the pages at once");
        }
        let mut curve = Curve::default();
        curve.look(own, Duration::ZERO);
        // Beside the children of other tests, the first point may have taken long.
        curve.look(own, SLOW_POINT_INTERVAL);
        assert_eq!(curve.points.len(), 2);
        let rss = resident(own).unwrap();
        assert!(
            curve.peak() + BLOCK_BYTES as u64 / 2 < rss,
            "{} {rss}",
            curve.peak()
        );
        assert!(curve.lazy_free_at_most() >= BLOCK_BYTES as u64 / 2);
        // SAFETY: the mapping from above.
        unsafe { rustix::mm::munmap(block, BLOCK_BYTES).unwrap() };
    }

    #[test]
    fn the_use_of_this_process_grows() {
        let before = used(std::process::id());
        let block = vec![1u8; 8 << 20];
        let after = used(std::process::id());
        assert!(after.faults > before.faults, "{}", block.len());
        assert!(after.cpu_seconds >= before.cpu_seconds);
    }
}
