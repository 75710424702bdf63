//! Size classes: which block a request gets.
//!
//! jemalloc's table: 8; the multiples of 16 up to 128; then four steps to each doubling, so that
//! above 128 bytes at most a fifth of a block is waste. Requests up to [`SLAB_MAX`] are regions of
//! a slab; larger ones are runs of whole pages. Thread caches can keep classes up to
//! [`CACHED_MAX`]. All this is computed at compile time. Beside the table there is room for some
//! slab classes that are added at run time, cut to what the process asks for ([`tailored`]).
//!
//! A [`Class`] is a byte, 1 for the smallest. 0 means "none", which the page map says of pages that
//! caches cannot hold: the cache's stack number 0 is never filled, so a free into such a page finds
//! it full and takes the slow path without a test of its own. The table's classes are in the order
//! of their sizes; the tailored ones have the numbers between slab and run classes.

pub mod hidden;
mod late_values;
mod shape;
pub mod tailored;

pub use shape::SlabShape;

use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::page::{LINE, PAGE};
use shape::Shapes;

/// Largest request that a slab serves.
pub const SLAB_MAX: usize = 14 * 1024;
/// Number of slab classes in the table.
pub const TABLED: usize = 36;
/// Number of classes that can be tailored, limited by the byte in the page map.
pub const TAILORED: usize = 10;
/// Number of slab classes.
pub const SLAB_CLASSES: usize = TABLED + TAILORED;
/// Largest class that a thread cache can hold.
pub const CACHED_MAX: usize = 256 * 1024;
/// Number of classes that a thread cache can hold.
pub const CACHED_CLASSES: usize = 63;
/// Number of classes that blocks can have, and of those above the slab classes. (The class of
/// requests up to [`MAX`] is larger than any address space.)
pub const CLASSES: usize = compute(MAX) as usize - 1;
pub const LARGE_CLASSES: usize = CLASSES - SLAB_CLASSES;
/// Largest request: beyond it, sizes and differences of addresses would not fit their types.
pub const MAX: usize = isize::MAX as usize;
/// Requests up to this size find their class in a table of steps of 8 bytes.
pub const TABLE_MAX: usize = 1024;
/// Larger ones up to this size find it in a table of coarser steps.
pub const MEDIUM_MAX: usize = 32 * 1024;

/// Number of slab classes now.
pub fn slab_classes() -> usize {
    TABLED + tailored::count()
}

/// A size class; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Class(pub u8);

/// The table's class for a request of `n` bytes, computed.
const fn compute(n: usize) -> u8 {
    if n <= 8 {
        return 1;
    }
    if n <= 128 {
        return 1 + n.div_ceil(16) as u8;
    }
    let m = n - 1;
    let doubling = usize::BITS - 1 - m.leading_zeros();
    let step = (m >> (doubling - 2)) & 3;
    let class = 10 + (doubling as usize - 7) * 4 + step;
    if n <= SLAB_MAX {
        class as u8
    } else {
        (class + TAILORED) as u8
    }
}

/// The size of a class of the table, computed; 0 for a tailored one.
const fn size(class: u8) -> usize {
    const FIRST_TAILORED: u8 = TABLED as u8 + 1;
    const LAST_TAILORED: u8 = SLAB_CLASSES as u8;
    let place = match class {
        0 | FIRST_TAILORED..=LAST_TAILORED => return 0,
        1 => return 8,
        2..=9 => return 16 * (class as usize - 1),
        _ if class > LAST_TAILORED => class as usize - TAILORED - 10,
        _ => class as usize - 10,
    };
    let base = 128usize << (place / 4);
    base + base / 4 * (place % 4 + 1)
}

/// Distance in bytes between two stacks in a thread cache.
pub const STRIDE: usize = 32;

/// A class as the fast paths use it: the offset in bytes of its stack in a thread cache. The tables
/// hold this to avoid a multiplication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackOffset(usize);

/// The page map has a byte for it, in this unit: a scale that x86 addressing applies for free.
const UNIT: usize = 8;
const _: () = assert!(CACHED_CLASSES * STRIDE / UNIT <= u8::MAX as usize);

impl StackOffset {
    /// The offset of the stack of a class that caches can hold, or of no class.
    #[inline(always)]
    pub const fn of(class: Class) -> StackOffset {
        debug_assert!(class.index() <= CACHED_CLASSES);
        StackOffset(class.index() * STRIDE)
    }

    /// The offset with this byte in the page map.
    #[inline(always)]
    pub const fn from_byte(byte: u8) -> StackOffset {
        StackOffset(byte as usize * UNIT)
    }

    #[inline(always)]
    pub const fn byte(self) -> u8 {
        (self.0 / UNIT) as u8
    }

    /// Bytes from the first stack to this one.
    #[inline(always)]
    pub const fn bytes(self) -> usize {
        self.0
    }

    #[inline(always)]
    pub const fn class(self) -> Class {
        Class((self.0 / STRIDE) as u8)
    }

    /// The offset that the tables of requests hold while offsets are [`hidden`]: that of a stack
    /// that stays empty. Blocks can have the offset of no class, but never this one.
    pub const HIDDEN: StackOffset = StackOffset((CACHED_CLASSES + 1) * STRIDE);

    #[inline(always)]
    pub const fn is_hidden(self) -> bool {
        self.0 == Self::HIDDEN.0
    }

    /// Whether this is the offset of no class.
    #[inline(always)]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether the class is one of the table's slab classes.
    #[inline(always)]
    pub const fn is_tabled(self) -> bool {
        self.0 <= TABLED * STRIDE
    }

    /// Bytes of a block of the class; 0 for none.
    #[inline(always)]
    pub fn size(self) -> usize {
        // Goes through the byte, so that the compiler sees that the index is in bounds.
        TABLES.sizes[(self.byte() as usize * UNIT) / STRIDE].load(Ordering::Relaxed) as usize
    }
}

/// Steps of the tables of requests, in bytes.
const SMALL_GRAIN: usize = 8;
const MEDIUM_GRAIN: usize = LINE;

/// Entries of [`Tables::sizes`]: as many classes as a byte can address.
const SIZES: usize = u8::MAX as usize * UNIT / STRIDE + 1;
/// Entries of [`Tables::small`].
const SMALL: usize = TABLE_MAX / SMALL_GRAIN + 1;
/// Entries of [`Tables::medium`].
const MEDIUM: usize = MEDIUM_MAX / MEDIUM_GRAIN + 1;

/// What the fast paths look up, and details of the classes. Written when a class is tailored, and
/// shares no cache line with other data. The table for small requests comes after the sizes and
/// shapes, since its position in its page matters: `docs/design/classes.md` has figures.
#[repr(C, align(64))]
struct Tables {
    sizes: [AtomicU32; SIZES],
    shapes: Shapes,
    /// For each request of up to [`TABLE_MAX`] bytes, the offset of its stack; that of no class for
    /// 0 bytes.
    small: [AtomicU32; SMALL],
    /// For each request of up to [`MEDIUM_MAX`] bytes, the offset of its stack.
    medium: [AtomicU32; MEDIUM],
}

static TABLES: Tables = Tables::new();

impl Tables {
    const fn new() -> Tables {
        let mut t = Tables {
            small: [const { AtomicU32::new(0) }; SMALL],
            sizes: [const { AtomicU32::new(0) }; SIZES],
            shapes: shape::tabled(),
            medium: [const { AtomicU32::new(0) }; MEDIUM],
        };
        let mut i = 0;
        while i < t.small.len() {
            t.small[i] = AtomicU32::new(TABLED_SMALL[i] as u32);
            i += 1;
        }
        // Requests of 0 bytes take the slow path.
        t.small[0] = AtomicU32::new(StackOffset::of(Class::NONE).0 as u32);
        i = 0;
        while i < t.sizes.len() {
            t.sizes[i] = AtomicU32::new(size(i as u8) as u32);
            i += 1;
        }
        i = 0;
        while i < t.medium.len() {
            t.medium[i] =
                AtomicU32::new(StackOffset::of(Class(compute(i * MEDIUM_GRAIN))).0 as u32);
            i += 1;
        }
        t
    }
}

/// Like [`Tables::small`], with the table's classes only.
static TABLED_SMALL: [u16; SMALL] = {
    let mut t = [0; SMALL];
    let mut i = 0;
    while i < t.len() {
        t[i] = StackOffset::of(Class(compute(i * SMALL_GRAIN))).0 as u16;
        i += 1;
    }
    t
};

/// The offset of the stack that serves a request of up to [`TABLE_MAX`] bytes.
#[inline(always)]
pub fn offset_of_small(n: usize) -> StackOffset {
    debug_assert!(n <= TABLE_MAX);
    // SAFETY: n is at most TABLE_MAX, so the index is inside the table.
    let offset = unsafe {
        TABLES
            .small
            .get_unchecked((n + SMALL_GRAIN - 1) >> SMALL_GRAIN.trailing_zeros())
    };
    StackOffset(offset.load(Ordering::Relaxed) as usize)
}

/// The same with the table's classes only, which are aligned as their sizes are.
#[inline(always)]
pub fn tabled_offset_of_small(n: usize) -> StackOffset {
    debug_assert!(n <= TABLE_MAX);
    // SAFETY: n is at most TABLE_MAX, so the index is inside the table.
    let offset = unsafe {
        *TABLED_SMALL.get_unchecked((n + SMALL_GRAIN - 1) >> SMALL_GRAIN.trailing_zeros())
    };
    StackOffset(offset as usize)
}

/// The least size that a block at a multiple of `align` can have for `n` bytes. The size of its
/// class is a multiple of `align` too: up to four times the alignment every multiple is a class,
/// and above, classes are at least that far apart.
#[inline(always)]
pub const fn aligned_size(n: usize, align: usize) -> usize {
    let n = if n == 0 { 1 } else { n };
    (n + align - 1) & !(align - 1)
}

/// The offset of the stack that serves a request above [`TABLE_MAX`], up to [`MEDIUM_MAX`] bytes.
#[inline(always)]
pub fn offset_of_medium(n: usize) -> StackOffset {
    debug_assert!((TABLE_MAX..=MEDIUM_MAX).contains(&n));
    // SAFETY: n is at most MEDIUM_MAX, so the index is inside the table.
    let offset = unsafe {
        TABLES
            .medium
            .get_unchecked((n + MEDIUM_GRAIN - 1) >> MEDIUM_GRAIN.trailing_zeros())
    };
    StackOffset(offset.load(Ordering::Relaxed) as usize)
}

impl Class {
    pub const NONE: Class = Class(0);

    /// The table's class for a request of `n` bytes, `n` at most [`MAX`].
    #[inline(always)]
    pub const fn of(n: usize) -> Class {
        Class(compute(n))
    }

    /// The class of the block that a request of `n` bytes gets now, `n` at most [`MAX`].
    pub fn for_request(n: usize) -> Class {
        let offset = if n <= TABLE_MAX {
            offset_of_small(n)
        } else if n <= MEDIUM_MAX {
            offset_of_medium(n)
        } else {
            return Class::of(n);
        };
        if offset.is_hidden() {
            return hidden::offset_of(n).class();
        }
        offset.class()
    }

    /// How many blocks of this class fit in `bytes`.
    #[inline]
    pub fn blocks_in(self, bytes: usize) -> usize {
        bytes.checked_div(self.size()).unwrap_or(0)
    }

    /// Bytes of a block of this class, which must be in the table.
    pub const fn tabled_size(self) -> usize {
        size(self.0)
    }

    /// Bytes of a block of this class.
    #[inline]
    pub fn size(self) -> usize {
        match TABLES.sizes.get(self.index()) {
            Some(size) => size.load(Ordering::Relaxed) as usize,
            None => self.size_beyond_caches(),
        }
    }

    #[cold]
    #[inline(never)]
    fn size_beyond_caches(self) -> usize {
        size(self.0)
    }

    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The table's class below this one, which must be in the table.
    pub fn below(self) -> Class {
        match self.index() - 1 {
            SLAB_CLASSES => Class(TABLED as u8),
            below => Class(below as u8),
        }
    }

    /// The number that programs see: from 0, without the unused numbers for tailored classes.
    pub fn number(self) -> usize {
        let room = SLAB_CLASSES - slab_classes();
        self.index() - 1 - if self.is_slab() { 0 } else { room }
    }

    /// Whether this is a slab class.
    #[inline]
    pub const fn is_slab(self) -> bool {
        self.0 as usize <= SLAB_CLASSES
    }

    /// Whether a thread cache can hold this class.
    #[inline]
    pub const fn is_cachable(self) -> bool {
        self.0 as usize <= CACHED_CLASSES
    }

    /// Its number among the classes above the slab classes; it must be one.
    #[inline]
    pub const fn large_index(self) -> usize {
        self.index() - SLAB_CLASSES - 1
    }

    /// Pages of a block of a class above the slab classes.
    #[inline]
    pub fn pages(self) -> usize {
        self.size().div_ceil(PAGE)
    }

    /// The shape of this class's slabs.
    #[inline]
    pub fn shape(self) -> &'static SlabShape {
        TABLES.shapes.get(self.index())
    }

    /// The most regions of a slab, and the most pages.
    pub const REGIONS_MAX: usize = shape::REGIONS_AND_PAGES_MAX.0;
    pub const PAGES_MAX: usize = shape::REGIONS_AND_PAGES_MAX.1;

    /// All slab classes now: those of the table, then the tailored ones in the order they were
    /// made.
    pub fn slabs() -> impl DoubleEndedIterator<Item = Class> {
        (1..=slab_classes() as u8).map(Class)
    }

    /// All classes above the slab classes.
    pub fn large() -> impl DoubleEndedIterator<Item = Class> {
        (SLAB_CLASSES as u8 + 1..=CLASSES as u8).map(Class)
    }

    /// The next class that a thread cache can hold now; the first follows the last, and
    /// [`Class::NONE`].
    #[inline]
    pub fn after(self) -> Class {
        let mut next = self.0;
        loop {
            next = if next as usize == CACHED_CLASSES {
                1
            } else {
                next + 1
            };
            if Class(next).size() > 0 {
                return Class(next);
            }
        }
    }

    /// All classes that a thread cache can hold now.
    pub fn cachable() -> impl DoubleEndedIterator<Item = Class> {
        let all = (1..=CACHED_CLASSES as u8).map(Class);
        all.filter(|class| class.size() > 0)
    }
}

#[cfg(test)]
mod tests;
