//! Whether a virtual machine gave memory back to its host while something ran.
//!
//! The kernel of a virtual machine may tell its host which pages are free (free page reporting of
//! `virtio_balloon`, every two seconds, the most recently freed first), and the host takes them. A
//! process that then gets such pages waits for the host at each of them, at up to thirty times a
//! page's usual cost, even if memory was warmed. The allocator does not cause this, so measurements
//! compare [`reports`] before and after, and warm memory [until it is
//! undisturbed](until_undisturbed).

use std::{fs, io};

/// The maximum number of warm-ups.
const WARM_UPS_MAX: usize = 4;

/// Warms memory, and repeats that if the machine gave some back meanwhile. The kernel does not hand
/// out pages that are on their way to the host, and they are cold when they return. The next report
/// is two seconds away, so one repetition is nearly always enough.
///
/// # Errors
/// The first error of `warm`.
pub fn until_undisturbed(warm: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    until_the_same(warm, reports)
}

/// Calls a function until a number does not change meanwhile, at most [`WARM_UPS_MAX`] times.
fn until_the_same(
    mut act: impl FnMut() -> io::Result<()>,
    number: impl Fn() -> u64,
) -> io::Result<()> {
    for _ in 0..WARM_UPS_MAX {
        let before = number();
        act()?;
        if number() == before {
            break;
        }
    }
    Ok(())
}

/// How often the machine has reported free pages to its host since it started; 0 if it never does.
pub fn reports() -> u64 {
    fs::read_to_string("/proc/interrupts").map_or(0, |text| count(&text))
}

/// The total number of interrupts, over all CPUs, with which the host confirms that it took pages.
fn count(interrupts: &str) -> u64 {
    let lines = interrupts.lines().filter(|line| {
        let name = line.split_ascii_whitespace().next_back();
        name.is_some_and(|name| name.ends_with("-reporting_vq"))
    });
    let numbers = lines.flat_map(|line| {
        let columns = line.split_ascii_whitespace().skip(1);
        columns.map_while(|column| column.parse::<u64>().ok())
    });
    numbers.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn memory_is_warmed_again_if_some_goes_back_meanwhile_but_not_for_ever() {
        // The number of warm-ups if the first `met` of them meet a report.
        let warmed = |met: usize| {
            let (times, reported) = (Cell::new(0), Cell::new(7));
            let warm = || {
                times.set(times.get() + 1);
                reported.set(reported.get() + u64::from(times.get() <= met));
                Ok(())
            };
            until_the_same(warm, || reported.get()).unwrap();
            times.get()
        };
        assert_eq!([0, 1, 2, 99].map(warmed), [1, 2, 3, WARM_UPS_MAX]);
    }

    #[test]
    fn warming_is_not_repeated_after_an_error() {
        let mut times = 0;
        let fails = || {
            times += 1;
            Err(io::ErrorKind::OutOfMemory.into())
        };
        assert!(until_undisturbed(fails).is_err());
        assert_eq!(times, 1);
    }

    #[test]
    fn reports_of_free_pages_are_counted_on_all_cpus_and_of_all_balloons() {
        let text = "           CPU0       CPU1       \n \
            31:          0       7324 PCI-MSIX-0000:00:01.0   3-edge      virtio0-stats\n \
            32:      18093          2 PCI-MSIX-0000:00:01.0   4-edge      virtio0-reporting_vq\n \
            33:          1          0 PCI-MSIX-0000:00:05.0   4-edge      virtio9-reporting_vq\n\
            LOC:    5765562    6358779   Local timer interrupts\n\
            ERR:          0\n";
        assert_eq!(count(text), 18_096);
        assert_eq!(count(""), 0);
    }
}
