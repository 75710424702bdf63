//! Size classes: which block a request gets.
//!
//! jemalloc's table: 8; the multiples of 16 up to 128; then four steps to each doubling, so that
//! above 128 bytes no more than a fifth of a block is waste. Requests up to [`SLAB_MAX`] are
//! regions of a slab; those above are runs of whole pages. Classes up to [`CACHED_MAX`] can be kept
//! in thread caches. All this is computed when the library is compiled. Beside the table there is
//! room for some classes that slabs serve which are cut to what the process asks for, while it runs
//! ([`tailored`]).
//!
//! A [`Class`] is a byte, 1 for the smallest. 0 stands for "none", which is what the page map says
//! of a page that is not ours to cache: the cache's stack number 0 is never filled, so a free of
//! such a page finds it full and takes the slow path without a test of its own. The table's classes
//! are in the order of their sizes; the tailored ones stand between those of slabs and those of
//! runs.

mod shape;
pub mod tailored;

pub use shape::SlabShape;

use crate::sys::atomic::{AtomicU32, Ordering};
use shape::Shapes;

/// The page: the unit of slabs, runs and the page map. The system's own page may be larger.
pub const PAGE: usize = 4096;
/// log2 of [`PAGE`].
pub const PAGE_SHIFT: u32 = 12;
/// The cache line, which blocks of whole pages begin with, if not with a page.
pub const LINE: usize = 64;
/// Largest request that a slab serves.
pub const SLAB_MAX: usize = 14 * 1024;
/// Number of classes of the table that slabs serve.
pub const TABLED: usize = 36;
/// Number of classes that can be tailored: what the byte of the page map has room for.
pub const TAILORED: usize = 10;
/// Number of classes that slabs serve.
pub const SLAB_CLASSES: usize = TABLED + TAILORED;
/// Largest class that a thread cache can hold.
pub const CACHED_MAX: usize = 256 * 1024;
/// Number of classes that a thread cache can hold.
pub const CACHED_CLASSES: usize = 63;
/// Number of classes that there can be blocks of, and of those above the slabs'. (The class of
/// requests up to [`MAX`] is larger than any address space.)
pub const CLASSES: usize = compute(MAX) as usize - 1;
pub const LARGE_CLASSES: usize = CLASSES - SLAB_CLASSES;
/// Largest request at all: beyond, sizes and differences of addresses would not fit their types.
pub const MAX: usize = isize::MAX as usize;
/// Requests up to this size find their class in a table of steps of 8 bytes.
pub const TABLE_MAX: usize = 1024;
/// Larger ones up to this size find it in a table of coarser steps.
pub const MEDIUM_MAX: usize = 32 * 1024;

/// Number of classes that slabs serve now.
pub fn slab_classes() -> usize {
    TABLED + tailored::count()
}

/// A size class; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Class(pub u8);

/// The table's class for a request of `n` bytes, by arithmetic.
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

/// The size of a class of the table, by arithmetic; 0 for a tailored one.
const fn size(class: u8) -> usize {
    const FIRST: u8 = TABLED as u8 + 1;
    const LAST: u8 = SLAB_CLASSES as u8;
    let place = match class {
        0 | FIRST..=LAST => return 0,
        1 => return 8,
        2..=9 => return 16 * (class as usize - 1),
        _ if class > LAST => class as usize - TAILORED - 10,
        _ => class as usize - 10,
    };
    let base = 128usize << (place / 4);
    base + base / 4 * (place % 4 + 1)
}

/// How many bytes apart two stacks stand in a thread cache.
pub const STRIDE: usize = 32;

/// A class as the fast paths have it: where its stack stands in a thread cache, in bytes from the
/// first. The tables hold this, so that they need no multiplication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(usize);

/// The page map has a byte for it, in units of this: what a processor multiplies by for nothing as
/// it makes an address.
const UNIT: usize = 8;
const _: () = assert!(CACHED_CLASSES * STRIDE / UNIT <= u8::MAX as usize);

impl Place {
    /// Of a class that caches can hold, or of none.
    #[inline(always)]
    pub const fn of(class: Class) -> Place {
        debug_assert!(class.index() <= CACHED_CLASSES);
        Place(class.index() * STRIDE)
    }

    /// As the page map has it.
    #[inline(always)]
    pub const fn from_byte(byte: u8) -> Place {
        Place(byte as usize * UNIT)
    }

    #[inline(always)]
    pub const fn byte(self) -> u8 {
        (self.0 / UNIT) as u8
    }

    /// Bytes from the first stack to this.
    #[inline(always)]
    pub const fn offset(self) -> usize {
        self.0
    }

    #[inline(always)]
    pub const fn class(self) -> Class {
        Class((self.0 / STRIDE) as u8)
    }

    /// Whether the class is one of the table's that slabs serve.
    #[inline(always)]
    pub const fn is_tabled(self) -> bool {
        self.0 <= TABLED * STRIDE
    }

    /// Bytes of a block of the class; 0 for none.
    #[inline(always)]
    pub fn size(self) -> usize {
        // By way of the byte: so the compiler sees that the table, as long as a byte can ask for,
        // has it.
        TABLES.sizes[(self.byte() as usize * UNIT) / STRIDE].load(Ordering::Relaxed) as usize
    }
}

/// Steps of the tables of requests, in bytes.
const SMALL_GRAIN: usize = 8;
const MEDIUM_GRAIN: usize = LINE;

/// What the fast paths look up, and what is behind it of classes: written where a class is
/// tailored, and on no cache line with anything else. What every small request reads comes after
/// the sizes and shapes, since its place in its page is felt: `docs/design/classes.md` has how
/// much.
#[repr(C, align(64))]
struct Tables {
    /// The sizes of as many classes as a byte has places for.
    sizes: [AtomicU32; u8::MAX as usize * UNIT / STRIDE + 1],
    shapes: Shapes,
    /// The places of requests up to [`TABLE_MAX`], as offsets.
    small: [AtomicU32; TABLE_MAX / SMALL_GRAIN + 1],
    /// The places of requests up to [`MEDIUM_MAX`], as offsets.
    medium: [AtomicU32; MEDIUM_MAX / MEDIUM_GRAIN + 1],
}

static TABLES: Tables = Tables::new();

impl Tables {
    const fn new() -> Tables {
        let mut t = Tables {
            small: [const { AtomicU32::new(0) }; _],
            sizes: [const { AtomicU32::new(0) }; _],
            shapes: Shapes::new(),
            medium: [const { AtomicU32::new(0) }; _],
        };
        let mut i = 0;
        while i < t.small.len() {
            t.small[i] = AtomicU32::new(TABLED_SMALL[i] as u32);
            i += 1;
        }
        i = 0;
        while i < t.sizes.len() {
            t.sizes[i] = AtomicU32::new(size(i as u8) as u32);
            i += 1;
        }
        i = 0;
        while i < t.medium.len() {
            t.medium[i] = AtomicU32::new(Place::of(Class(compute(i * MEDIUM_GRAIN))).0 as u32);
            i += 1;
        }
        t
    }
}

/// As [`Tables::small`], of the table's classes alone.
static TABLED_SMALL: [u16; TABLE_MAX / SMALL_GRAIN + 1] = {
    let mut t = [0; TABLE_MAX / SMALL_GRAIN + 1];
    let mut i = 0;
    while i < t.len() {
        t[i] = Place::of(Class(compute(i * SMALL_GRAIN))).0 as u16;
        i += 1;
    }
    t
};

/// The place of a request of up to [`TABLE_MAX`] bytes.
#[inline(always)]
pub fn place_of_small(n: usize) -> Place {
    debug_assert!(n <= TABLE_MAX);
    // SAFETY: n is at most TABLE_MAX, so the index is inside the table.
    let place = unsafe {
        TABLES
            .small
            .get_unchecked((n + SMALL_GRAIN - 1) >> SMALL_GRAIN.trailing_zeros())
    };
    Place(place.load(Ordering::Relaxed) as usize)
}

/// The same by the table alone, whose classes are aligned as their sizes are.
#[inline(always)]
pub fn tabled_place_of_small(n: usize) -> Place {
    debug_assert!(n <= TABLE_MAX);
    // SAFETY: n is at most TABLE_MAX, so the index is inside the table.
    let place = unsafe {
        *TABLED_SMALL.get_unchecked((n + SMALL_GRAIN - 1) >> SMALL_GRAIN.trailing_zeros())
    };
    Place(place as usize)
}

/// The least size that a block of a multiple of `align` can have for `n` bytes. Its class is of a
/// multiple of `align` too: up to four times the alignment every multiple of it is a class, and
/// above, classes are no closer than that.
#[inline(always)]
pub const fn aligned_size(n: usize, align: usize) -> usize {
    let n = if n == 0 { 1 } else { n };
    (n + align - 1) & !(align - 1)
}

/// The place of a request above [`TABLE_MAX`], up to [`MEDIUM_MAX`] bytes.
#[inline(always)]
pub fn place_of_medium(n: usize) -> Place {
    debug_assert!((TABLE_MAX..=MEDIUM_MAX).contains(&n));
    // SAFETY: n is at most MEDIUM_MAX, so the index is inside the table.
    let place = unsafe {
        TABLES
            .medium
            .get_unchecked((n + MEDIUM_GRAIN - 1) >> MEDIUM_GRAIN.trailing_zeros())
    };
    Place(place.load(Ordering::Relaxed) as usize)
}

impl Class {
    pub const NONE: Class = Class(0);

    /// The table's class for a request of `n` bytes, `n` at most [`MAX`].
    #[inline(always)]
    pub const fn of(n: usize) -> Class {
        Class(compute(n))
    }

    /// The class that a request of `n` bytes gets a block of now, `n` at most [`MAX`].
    pub fn for_request(n: usize) -> Class {
        if n <= TABLE_MAX {
            place_of_small(n).class()
        } else if n <= MEDIUM_MAX {
            place_of_medium(n).class()
        } else {
            Class::of(n)
        }
    }

    /// How many blocks of this class so many bytes are.
    #[inline]
    pub fn blocks_in(self, bytes: usize) -> usize {
        bytes.checked_div(self.size()).unwrap_or(0)
    }

    /// Bytes of a block of this class, one of the table.
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

    /// The class of the table before this one of the table.
    pub fn below(self) -> Class {
        match self.index() - 1 {
            SLAB_CLASSES => Class(TABLED as u8),
            below => Class(below as u8),
        }
    }

    /// Its number as programs are told: from 0, without the room for classes that may be tailored
    /// yet.
    pub fn number(self) -> usize {
        let room = SLAB_CLASSES - slab_classes();
        self.index() - 1 - if self.is_slab() { 0 } else { room }
    }

    /// Whether slabs serve this class.
    #[inline]
    pub const fn is_slab(self) -> bool {
        self.0 as usize <= SLAB_CLASSES
    }

    /// Whether a thread cache can hold this class.
    #[inline]
    pub const fn is_cachable(self) -> bool {
        self.0 as usize <= CACHED_CLASSES
    }

    /// Its number among the classes above the slabs', of which it is one.
    #[inline]
    pub const fn large_index(self) -> usize {
        self.index() - SLAB_CLASSES - 1
    }

    /// Pages of a block of a class above the slabs'.
    #[inline]
    pub fn pages(self) -> usize {
        self.size().div_ceil(PAGE)
    }

    /// How slabs of this class are made.
    #[inline]
    pub fn shape(self) -> &'static SlabShape {
        TABLES.shapes.get(self)
    }

    /// The most regions that a slab has, and the most pages.
    pub const MOST_REGIONS: usize = shape::MOST.0;
    pub const MOST_PAGES: usize = shape::MOST.1;

    /// All classes that slabs serve now: those of the table, then the tailored ones, as they were
    /// made.
    pub fn slabs() -> impl DoubleEndedIterator<Item = Class> {
        (1..=slab_classes() as u8).map(Class)
    }

    /// All classes above those.
    pub fn large() -> impl DoubleEndedIterator<Item = Class> {
        (SLAB_CLASSES as u8 + 1..=CLASSES as u8).map(Class)
    }

    /// The next of the classes that a thread cache can hold now, the first after the last and after
    /// none.
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
