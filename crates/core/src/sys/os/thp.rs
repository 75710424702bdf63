//! How long the system's huge pages are.

use super::mem::os_page;
use super::proc;
use crate::sys::atomic::{AtomicUsize, Ordering};
use crate::sys::page::{HUGE_PAGE, PAGE};

/// Bytes of a transparent huge page. With pages of 4 KiB that is known; otherwise the first call
/// reads it.
pub fn size() -> usize {
    if os_page() == PAGE { HUGE_PAGE } else { told() }
}

#[cold]
#[inline(never)]
fn told() -> usize {
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    let known = SIZE.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let path = c"/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
    let mut text = [0; 24];
    let told = proc::number(proc::start_of(path, &mut text).trim_ascii_end(), 10);
    let told = told.filter(|size| size.is_power_of_two());
    let size = told.unwrap_or_else(|| mapped_by_a_table(os_page()));
    SIZE.store(size, Ordering::Relaxed);
    size
}

/// What a table of addresses of pages maps: it takes one page.
fn mapped_by_a_table(page: usize) -> usize {
    page / size_of::<usize>() * page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_what_the_system_says_or_what_a_table_maps() {
        let sizes = [4, 16, 64].map(|kib| mapped_by_a_table(kib << 10) >> 20);
        assert_eq!(sizes, [2, 32, 512]);
        let path = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
        if let Ok(text) = std::fs::read_to_string(path) {
            assert_eq!(text.trim_end(), told().to_string());
        } else {
            assert_eq!(told(), mapped_by_a_table(os_page()));
        }
    }
}
