//! The units of memory: the page, the huge page and the cache line.

/// The page: the unit of slabs, runs and the page map. The system's own page may be larger
/// ([`super::mem::os_page`]).
pub const PAGE: usize = 4096;
/// log2 of [`PAGE`].
pub const PAGE_SHIFT: u32 = 12;
/// Bytes of a huge page, and its alignment.
pub const HUGE_PAGE: usize = 2 * 1024 * 1024;
/// The cache line. Blocks of whole pages start at one, if not at a page.
pub const LINE: usize = 64;
