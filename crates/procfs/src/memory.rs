//! Resident memory.

use std::{fs, io};

/// Resident bytes, which the kernel counts as it goes: read in microseconds, and inexact by some
/// pages a CPU. None if the process is gone.
pub fn resident(pid: u32) -> Option<u64> {
    let text = super::text(super::path(pid, "statm"))?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * crate::page_bytes())
}

/// The sums of all mappings, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rollup {
    pub rss: u64,
    /// Each page divided by the number of processes that have it mapped.
    pub pss: u64,
    /// Pages that the kernel may take at any time (`MADV_FREE`).
    pub lazy_free: u64,
    /// Anonymous memory in huge pages.
    pub huge: u64,
}

impl Rollup {
    /// Reads `smaps_rollup`, for which the kernel walks the page tables: milliseconds for a process
    /// of some GiB, and other threads of the process cannot map memory meanwhile.
    ///
    /// # Errors
    /// The process is gone or may not be read, or the file has no RSS.
    pub fn of(pid: u32) -> io::Result<Rollup> {
        let text = fs::read_to_string(super::path(pid, "smaps_rollup"))?;
        Rollup::parse(&text).ok_or_else(|| {
            let message = "there is no `Rss:` in smaps_rollup";
            io::Error::new(io::ErrorKind::InvalidData, message)
        })
    }

    fn parse(text: &str) -> Option<Rollup> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
            kib.checked_mul(1024)
        };
        Some(Rollup {
            rss: field("Rss:")?,
            pss: field("Pss:").unwrap_or(0),
            lazy_free: field("LazyFree:").unwrap_or(0),
            huge: field("AnonHugePages:").unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_are_read_in_bytes() {
        let text = "\
00400000-7ffc0000 ---p 00000000 00:00 0                          [rollup]
Rss:                1556 kB
Pss:                 241 kB
Pss_Dirty:           100 kB
LazyFree:              8 kB
AnonHugePages:      2048 kB
";
        let rollup = Rollup {
            rss: 1556 << 10,
            pss: 241 << 10,
            lazy_free: 8 << 10,
            huge: 2 << 20,
        };
        assert_eq!(Rollup::parse(text), Some(rollup));
        assert_eq!(Rollup::parse("Pss: 1 kB"), None);
    }

    #[test]
    fn this_process_has_memory_and_an_impossible_one_has_none() {
        let me = std::process::id();
        assert!(resident(me) > Some(0) && Rollup::of(me).unwrap().rss > 0);
        assert!(resident(u32::MAX).is_none() && Rollup::of(u32::MAX).is_err());
    }
}
