//! Memory for our own records: caches, arenas, slab records, pointer stacks.
//!
//! A bump arena over mappings of its own, each between two guard pages, so that an overrun of user
//! memory cannot reach a record. What is taken here never goes back to the system nor to user
//! allocations; a record given back is kept in a list of its size for the next of that size. A
//! reference to a record therefore stays valid (as memory of that type, where the type is always
//! the same) for the life of the process.

use crate::sys::count::Kind;
use crate::sys::lock::Mutex;
use crate::sys::mem;
use core::ptr::NonNull;

/// Everything here is a multiple of a cache line.
const GRAIN: usize = 64;
/// Sizes up to this are kept in exact lists, larger ones in lists of powers of two.
const FINE_MAX: usize = 1024;
const FINE_LISTS: usize = FINE_MAX / GRAIN;
const COARSE_LISTS: usize = 16;
const FIRST_BLOCK: usize = 128 * 1024;
const LARGEST_BLOCK: usize = 4 * 1024 * 1024;

struct Meta {
    at: usize,
    end: usize,
    next_block: usize,
    lists: [usize; FINE_LISTS + COARSE_LISTS],
    mapped: usize,
    free: usize,
}

static META: Mutex<Meta> = Mutex::named(
    Kind::Meta,
    Meta {
        at: 0,
        end: 0,
        next_block: FIRST_BLOCK,
        lists: [0; FINE_LISTS + COARSE_LISTS],
        mapped: 0,
        free: 0,
    },
);

/// The size that a request takes, and its list.
fn fit(size: usize) -> (usize, usize) {
    if size <= FINE_MAX {
        let grains = size.div_ceil(GRAIN).max(1);
        (grains * GRAIN, grains - 1)
    } else {
        let size = size.next_power_of_two();
        let list = FINE_LISTS + (size.trailing_zeros() - FINE_MAX.trailing_zeros() - 1) as usize;
        (size, list)
    }
}

/// Memory for a record, aligned to a cache line; its contents are unspecified. None when the system
/// gives no more, or for more than 64 MiB.
pub fn take(size: usize) -> Option<NonNull<u8>> {
    let (size, list) = fit(size);
    let mut meta = META.lock();
    let head = *meta.lists.get(list)?;
    if head != 0 {
        // SAFETY: a listed record is ours and unused; its first word links to the next one.
        meta.lists[list] = unsafe { *(head as *const usize) };
        meta.free -= size;
        return NonNull::new(head as *mut u8);
    }
    if meta.end - meta.at < size {
        meta.grow(size)?;
    }
    let at = meta.at;
    meta.at += size;
    NonNull::new(at as *mut u8)
}

/// Gives back what [`take`] gave for the same `size`.
///
/// # Safety
/// The record came from `take` with this size, and nobody uses it any more.
pub unsafe fn give(record: NonNull<u8>, size: usize) {
    let (size, list) = fit(size);
    let mut meta = META.lock();
    // SAFETY: the record is unused and at least a grain long.
    unsafe { *record.cast::<usize>().as_ptr() = meta.lists[list] };
    meta.lists[list] = record.as_ptr().addr();
    meta.free += size;
}

impl Meta {
    fn grow(&mut self, size: usize) -> Option<()> {
        let page = mem::os_page();
        let mut len = self.next_block.max(mem::round_up(size, page));
        // Under a limit on address space a smaller block may still be had.
        let at = loop {
            if let Some(at) = mem::reserve(len + 2 * page) {
                break at;
            }
            if len / 2 < size || len / 2 < page {
                return None;
            }
            len = mem::round_up(len / 2, page);
        };
        if !mem::commit(at + page, len) {
            mem::release(at, len + 2 * page);
            return None;
        }
        // Records are small and many: huge pages here would cost a small program two megabytes.
        // A block below their size cannot get any.
        if len >= crate::space::chunk::CHUNK {
            mem::forbid_huge_pages(at + page, len);
        }
        self.at = at + page;
        self.end = self.at + len;
        self.mapped += len;
        self.next_block = (len * 2).min(LARGEST_BLOCK);
        Some(())
    }
}

/// Bytes mapped for records, and bytes of them that hold one.
pub fn totals() -> (usize, usize) {
    let meta = META.lock();
    (meta.mapped, meta.mapped - (meta.end - meta.at) - meta.free)
}

/// The lock of this floor, for `fork`.
pub fn lock() -> &'static crate::sys::lock::RawLock {
    META.raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_aligned_disjoint_and_reused() {
        let sizes = [1, 64, 65, 100, 1024, 1025, 5000, 70_000];
        let records: Vec<_> = sizes.iter().map(|&s| (take(s).unwrap(), s)).collect();
        for (i, &(r, s)) in records.iter().enumerate() {
            assert_eq!(r.as_ptr().addr() % GRAIN, 0);
            for &(q, t) in &records[i + 1..] {
                let (r, q) = (r.as_ptr().addr(), q.as_ptr().addr());
                assert!(r + s <= q || q + t <= r, "{s} and {t} overlap");
            }
        }
        for &(r, s) in &records {
            // SAFETY: taken above with this size, unused.
            unsafe { give(r, s) };
        }
        assert!(
            take(65 << 20).is_none(),
            "more than the largest list is refused"
        );
    }
}
