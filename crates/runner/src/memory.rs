//! How much memory may be warmed before a measured run.
//!
//! In a virtual machine the host backs memory lazily: the first process that touches a page pays
//! for the host's fault, and the next one does not. A helper touches as much memory as the workload
//! will and exits right before it, so that no candidate pays. The helper must never take so much
//! that the machine or the lab's control group runs out of memory and kills a process.

use std::fs;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// The minimum: touching this much takes only milliseconds. A smaller workload gets its memory from
/// these pages, in whatever order the kernel hands them out.
const WARM_BYTES_MIN: u64 = 64 * MIB;

/// The largest excess over the peak. A quarter of the peak was too little: in about one of fifteen
/// runs the process got memory that had not been warmed, and took five times as long.
const EXCESS_BYTES_MAX: u64 = 512 * MIB;

/// How much to warm for a workload whose peak is about `peak` bytes: at least `WARM_BYTES_MIN`,
/// above that twice the peak but at most `EXCESS_BYTES_MAX` more than it, and never more than two
/// thirds of what is available.
pub fn warm_up(peak: u64) -> u64 {
    let wanted = if peak <= WARM_BYTES_MIN {
        WARM_BYTES_MIN
    } else {
        peak.saturating_add(peak.min(EXCESS_BYTES_MAX))
    };
    wanted.min(available() / 3 * 2)
}

/// The memory that can be taken without displacing anything: the machine's estimate, or what is
/// left of the control groups' limits if that is less.
pub fn available() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| meminfo(&text, "MemAvailable"))
        .unwrap_or(0);
    let limits = fs::read_to_string("/proc/self/cgroup")
        .map(|text| group_limits(&text, Path::new("/sys/fs/cgroup")))
        .unwrap_or_default();
    limits.into_iter().fold(machine, u64::min)
}

/// The machine's memory in bytes.
pub fn total() -> u64 {
    fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| meminfo(&text, "MemTotal"))
        .unwrap_or(0)
}

/// A line such as `MemAvailable:   23680 kB`, in bytes.
fn meminfo(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find(|line| {
        line.strip_prefix(field)
            .is_some_and(|rest| rest.starts_with(':'))
    })?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The memory left to each limited control group (version 2) around this process.
fn group_limits(own: &str, mount: &Path) -> Vec<u64> {
    let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    let read =
        |file: PathBuf| -> Option<u64> { fs::read_to_string(file).ok()?.trim().parse().ok() };
    Path::new(path)
        .ancestors()
        .filter_map(|group| {
            let folder = mount.join(group);
            let limit = read(folder.join("memory.max"))?;
            let used = read(folder.join("memory.current"))?;
            Some(limit.saturating_sub(used))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_meminfo_is_read_in_bytes() {
        let text = "MemTotal:       24683880 kB\nMemAvailable:   100 kB\nMem: 3 kB\n";
        assert_eq!(meminfo(text, "MemAvailable"), Some(102_400));
        assert_eq!(meminfo(text, "Mem"), Some(3072));
        assert_eq!(meminfo(text, "MemFree"), None);
    }

    #[test]
    fn the_warm_up_exceeds_the_peak_and_stays_within_the_available_memory() {
        let there = available();
        assert!(there > 0 && there <= total());
        assert!(warm_up(u64::MAX / 2) <= there);
        if there > 1 << 30 {
            assert_eq!(warm_up(0), WARM_BYTES_MIN);
            assert_eq!(warm_up(60 * MIB), WARM_BYTES_MIN);
            assert_eq!(warm_up(200 * MIB), 400 * MIB);
        }
    }

    #[test]
    fn the_limits_of_all_enclosing_groups_count() {
        let mount = tempfile::tempdir().unwrap();
        let inner = mount.path().join("user/lab");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        fs::write(inner.join("memory.current"), "5\n").unwrap();
        fs::write(mount.path().join("user/memory.max"), "100\n").unwrap();
        fs::write(mount.path().join("user/memory.current"), "30\n").unwrap();
        assert_eq!(group_limits("0::/user/lab\n", mount.path()), [70]);
        assert_eq!(group_limits("4:memory:/user/lab\n", mount.path()), []);
    }
}
