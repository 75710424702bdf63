//! Size classes: which block a request gets.
//!
//! jemalloc's table: 8; the multiples of 16 up to 128; then four steps to each doubling, so that
//! above 128 bytes no more than a fifth of a block is waste. Requests up to [`SLAB_MAX`] are regions
//! of a slab; those above are runs of whole pages. Classes up to [`CACHED_MAX`] can be kept in thread
//! caches. Everything here is computed when the library is compiled.
//!
//! A [`Class`] is a byte, 1 for the smallest. 0 stands for "none", which is what the page map says
//! of a page that is not ours to cache: the cache's stack number 0 is never filled, so a free of such
//! a page finds it full and takes the slow path without a test of its own.

/// The page: the unit of slabs, runs and the page map. The system's own page may be larger.
pub const PAGE: usize = 4096;
/// log2 of [`PAGE`].
pub const PAGE_SHIFT: u32 = 12;
/// The cache line, which blocks of whole pages begin with, if not with a page.
pub const LINE: usize = 64;
/// Largest request that a slab serves.
pub const SLAB_MAX: usize = 14 * 1024;
/// Number of classes that slabs serve.
pub const SLAB_CLASSES: usize = 36;
/// Largest class that a thread cache can hold.
pub const CACHED_MAX: usize = 256 * 1024;
/// Number of classes that a thread cache can hold.
pub const CACHED_CLASSES: usize = 53;
/// Number of classes that there can be blocks of, and of those above the slabs'. (The class of requests
/// up to [`MAX`] is larger than any address space.)
pub const CLASSES: usize = compute(MAX) as usize - 1;
pub const LARGE_CLASSES: usize = CLASSES - SLAB_CLASSES;
/// Largest request at all: beyond, sizes and differences of addresses would not fit their types.
pub const MAX: usize = isize::MAX as usize;
/// Requests up to this size find their class in a table of steps of 8 bytes.
pub const TABLE_MAX: usize = 1024;
/// Larger ones up to this size find it in a table of coarser steps.
pub const MEDIUM_MAX: usize = 32 * 1024;

/// A size class; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Class(pub u8);

/// The class of a request of `n` bytes, by arithmetic.
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
    (10 + (doubling as usize - 7) * 4 + step) as u8
}

/// The size of a class, by arithmetic.
const fn size(class: u8) -> usize {
    match class {
        0 => 0,
        1 => 8,
        2..=9 => 16 * (class as usize - 1),
        _ => {
            let (doubling, step) = ((class as usize - 10) / 4, (class as usize - 10) % 4);
            let base = 128usize << doubling;
            base + base / 4 * (step + 1)
        }
    }
}

/// How many bytes apart two stacks stand in a thread cache.
pub const STRIDE: usize = 32;

/// A class as the fast paths have it: where its stack stands in a thread cache, in bytes from the
/// first. The tables hold this, so that they need no multiplication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(usize);

/// The page map has a byte for it, in units of this: what a processor multiplies by for nothing as it
/// makes an address.
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

    /// Bytes of a block of the class; 0 for none.
    #[inline(always)]
    pub fn size(self) -> usize {
        // By way of the byte: so the compiler sees that the table, as long as a byte can ask for, has it.
        SIZES[(self.byte() as usize * UNIT) / STRIDE] as usize
    }
}

/// The places of the multiples of `GRAIN`, as offsets.
const fn table<const GRAIN: usize, const N: usize>() -> [u16; N] {
    let mut t = [0; N];
    let mut i = 0;
    while i < N {
        t[i] = Place::of(Class(compute(i * GRAIN))).0 as u16;
        i += 1;
    }
    t
}

/// The table of larger requests has steps of so many bytes: the least distance of classes there.
const MEDIUM_GRAIN: usize = 256;

/// The place of a request of up to [`TABLE_MAX`] bytes.
#[inline(always)]
pub fn place_of_small(n: usize) -> Place {
    debug_assert!(n <= TABLE_MAX);
    static SMALL: [u16; TABLE_MAX / 8 + 1] = table::<8, _>();
    // SAFETY: n is at most TABLE_MAX, so the index is inside the table.
    Place(unsafe { *SMALL.get_unchecked((n + 7) >> 3) as usize })
}

/// The least size that a block of a multiple of `align` can have for `n` bytes. Its class is of a
/// multiple of `align` too: up to four times the alignment every multiple of it is a class, and above,
/// classes are no closer than that.
#[inline(always)]
pub const fn aligned_size(n: usize, align: usize) -> usize {
    let n = if n == 0 { 1 } else { n };
    (n + align - 1) & !(align - 1)
}

/// The place of a request above [`TABLE_MAX`], up to [`MEDIUM_MAX`] bytes.
#[inline(always)]
pub fn place_of_medium(n: usize) -> Place {
    debug_assert!((TABLE_MAX..=MEDIUM_MAX).contains(&n));
    static MEDIUM: [u16; MEDIUM_MAX / MEDIUM_GRAIN + 1] = table::<MEDIUM_GRAIN, _>();
    // SAFETY: n is at most MEDIUM_MAX, so the index is inside the table.
    Place(unsafe { *MEDIUM.get_unchecked(n.div_ceil(MEDIUM_GRAIN)) as usize })
}

impl Class {
    pub const NONE: Class = Class(0);

    /// The class of a request of `n` bytes, `n` at most [`MAX`].
    #[inline(always)]
    pub const fn of(n: usize) -> Class {
        Class(compute(n))
    }

    /// Bytes of a block of this class.
    #[inline]
    pub const fn size(self) -> usize {
        if (self.0 as usize) < SIZES.len() {
            SIZES[self.0 as usize] as usize
        } else {
            size(self.0)
        }
    }

    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
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
    pub const fn pages(self) -> usize {
        self.size().div_ceil(PAGE)
    }

    /// What blocks of this class that slabs serve are aligned to, beside being multiples of their
    /// size from a page boundary: a class of a power of two of pages to its size.
    pub const fn slab_align(self) -> usize {
        let size = self.size();
        if size > PAGE && size.is_power_of_two() {
            size
        } else {
            PAGE
        }
    }

    /// How slabs of this class are made.
    #[inline]
    pub fn shape(self) -> &'static SlabShape {
        static SHAPES: [SlabShape; SLAB_CLASSES + 1] = shapes();
        &SHAPES[self.index()]
    }

    /// The most regions that a slab has, and the most pages.
    pub const MOST_REGIONS: usize = MOST.0;
    pub const MOST_PAGES: usize = MOST.1;

    /// All classes that slabs serve.
    pub fn slabs() -> impl DoubleEndedIterator<Item = Class> {
        (1..=SLAB_CLASSES as u8).map(Class)
    }

    /// All classes above those.
    pub fn large() -> impl DoubleEndedIterator<Item = Class> {
        (SLAB_CLASSES as u8 + 1..=CLASSES as u8).map(Class)
    }

    /// All classes that a thread cache can hold.
    pub fn cachable() -> impl DoubleEndedIterator<Item = Class> {
        (1..=CACHED_CLASSES as u8).map(Class)
    }
}

/// The sizes of as many classes as a byte has places for.
static SIZES: [u32; u8::MAX as usize * UNIT / STRIDE + 1] = {
    let mut t = [0; u8::MAX as usize * UNIT / STRIDE + 1];
    let mut c = 0;
    while c < t.len() {
        t[c] = size(c as u8) as u32;
        c += 1;
    }
    t
};

/// How slabs of a class are made.
#[derive(Clone, Copy)]
pub struct SlabShape {
    /// Pages of a slab.
    pub pages: u16,
    /// Regions in a slab.
    pub regions: u16,
    /// ⌈2³² / size⌉: the multiplier of [`SlabShape::region_at`].
    reciprocal: u32,
    /// Bytes of a region.
    pub size: u32,
    /// ⌊2¹⁹ / regions⌋: the multiplier of [`SlabShape::eighths`].
    eighth: u32,
}

impl SlabShape {
    /// How full a slab with `used` regions in use is, from 0 to 7; `used` is below `regions`.
    #[inline]
    pub fn eighths(&self, used: usize) -> usize {
        (used * self.eighth as usize) >> 16
    }

    /// The fewest regions in use of which [`SlabShape::eighths`] says `level`.
    pub fn least_at(&self, level: usize) -> usize {
        (level << 16).div_ceil(self.eighth as usize)
    }

    /// The region that begins `offset` bytes into the slab; none when no region begins there.
    ///
    /// Exact division by multiplication (Granlund and Montgomery 1994): the error of the reciprocal
    /// is below `size`, and offset × size < 2³² for every slab, which a test holds. For the same reason
    /// the lower half of the product tells whether something remains (Lemire, Kaser and Kurz 2019).
    #[inline]
    pub fn region_at(&self, offset: usize) -> Option<usize> {
        let product = offset as u64 * self.reciprocal as u64;
        let i = (product >> 32) as usize;
        ((product as u32) < self.reciprocal && i < self.regions as usize).then_some(i)
    }
}

/// Bytes left at the end of slabs of regions up to [`DRIFT_MAX`]: some cache lines, below 1 % of all
/// but the smallest slabs.
const DRIFT: usize = 256;
const DRIFT_MAX: usize = 512;

/// Slabs aim at 32 KiB up to 1 KiB and at 64 KiB above: large enough that a lock taken for a new one
/// is rare, small enough that a class used once costs little and that sparse ones drain. The
/// pages that a slab's last region does not reach are left out.
///
/// In slabs of small regions [`DRIFT`] bytes at least stay unused at the end, so that regions a power
/// of two apart do not all fall into the same cache sets: `docs/design/caches.md` has what that is
/// worth.
const fn shapes() -> [SlabShape; SLAB_CLASSES + 1] {
    let mut t = [SlabShape {
        pages: 0,
        regions: 0,
        reciprocal: 0,
        size: 0,
        eighth: 0,
    }; SLAB_CLASSES + 1];
    let mut c = 1;
    while c < t.len() {
        let s = size(c as u8);
        let aim = if s <= 8 {
            16 << 10
        } else if s <= 1024 {
            32 << 10
        } else {
            64 << 10
        };
        let drift = if s <= DRIFT_MAX { DRIFT } else { 0 };
        let regions = (aim - drift) / s;
        let pages = (regions * s + drift).div_ceil(PAGE);
        t[c] = SlabShape {
            pages: pages as u16,
            regions: regions as u16,
            reciprocal: (1u64 << 32).div_ceil(s as u64) as u32,
            size: s as u32,
            eighth: (8 << 16) / regions as u32,
        };
        c += 1;
    }
    t
}

/// The most regions and the most pages of any slab.
const MOST: (usize, usize) = {
    let shapes = shapes();
    let (mut regions, mut pages, mut c) = (0, 0, 1);
    while c < shapes.len() {
        let shape = shapes[c];
        if shape.regions > regions {
            regions = shape.regions;
        }
        if shape.pages > pages {
            pages = shape.pages;
        }
        c += 1;
    }
    (regions as usize, pages as usize)
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_agrees_with_the_arithmetic() {
        for n in 0..=TABLE_MAX {
            assert_eq!(place_of_small(n), Place::of(Class::of(n)), "{n} bytes");
        }
        for n in TABLE_MAX..=MEDIUM_MAX {
            assert_eq!(place_of_medium(n), Place::of(Class::of(n)), "{n} bytes");
        }
        for class in (0..=CACHED_CLASSES as u8).map(Class) {
            let place = Place::of(class);
            let offset = class.index() * STRIDE;
            assert_eq!((place.offset(), place.class()), (offset, class));
            assert_eq!(Place::from_byte(place.byte()), place);
            assert_eq!(place.size(), class.size());
        }
    }

    #[test]
    fn a_class_holds_its_request_and_the_one_below_does_not() {
        let mut sizes: Vec<usize> = (0..=70_000).collect();
        for shift in 17..62 {
            sizes.extend([
                (1 << shift) - 1,
                1 << shift,
                (1 << shift) + 1,
                (5 << shift) / 4 + 1,
            ]);
        }
        for n in sizes {
            let c = Class::of(n);
            assert!(c.size() >= n, "{n} bytes in {}", c.size());
            assert!(
                c.0 == 1 || Class(c.0 - 1).size() < n,
                "{n} bytes fit the class below"
            );
        }
    }

    #[test]
    fn waste_stays_within_a_fifth_above_128_bytes() {
        for n in 129..200_000 {
            let s = Class::of(n).size();
            assert!((s - n) * 5 <= s, "{n} bytes in a block of {s}");
        }
    }

    #[test]
    fn the_named_limits_are_classes() {
        assert_eq!(Class::of(SLAB_MAX), Class(SLAB_CLASSES as u8));
        assert_eq!(Class(SLAB_CLASSES as u8).size(), SLAB_MAX);
        assert_eq!(Class::of(CACHED_MAX), Class(CACHED_CLASSES as u8));
        assert!(Class::of(MAX).0 < u8::MAX);
    }

    #[test]
    fn an_aligned_class_holds_size_and_alignment() {
        for shift in 0..=16 {
            let align = 1 << shift;
            for n in 0..100_000 {
                let s = Class::of(aligned_size(n, align)).size();
                assert!(
                    s >= n && s.is_multiple_of(align),
                    "{n} bytes at {align}: {s}"
                );
            }
        }
    }

    #[test]
    fn slabs_waste_less_than_a_page_and_division_is_exact() {
        for c in (1..=SLAB_CLASSES as u8).map(Class) {
            let shape = c.shape();
            let (bytes, used) = (
                shape.pages as usize * PAGE,
                shape.regions as usize * shape.size as usize,
            );
            assert!(used <= bytes && bytes - used < PAGE, "{c:?}");
            assert!(c.size() > DRIFT_MAX || bytes - used >= DRIFT, "{c:?}");
            for offset in 0..bytes {
                let expected = (offset % c.size() == 0
                    && offset / c.size() < shape.regions as usize)
                    .then_some(offset / c.size());
                assert_eq!(shape.region_at(offset), expected, "{c:?} at {offset}");
            }
        }
    }
}
