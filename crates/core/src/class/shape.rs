//! The shape of a class's slabs: pages, regions, and the numbers to find a region from an address
//! without a division.

use super::late_values::Late;
use super::{SLAB_CLASSES, TABLED, size};
use crate::sys::atomic::UnsafeCell;
use crate::sys::page::PAGE;

/// The shape of a class's slabs.
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
    /// The alignment of slabs: blocks of a power of two of pages are aligned to their size. All
    /// others start at a multiple of their size from a page boundary.
    pub align: u32,
}

/// Bytes left at the end of slabs with regions up to [`DRIFT_REGION_BYTES_MAX`]: some cache lines,
/// below 1 % of all but the smallest slabs.
pub(super) const DRIFT_BYTES: usize = 256;
/// Bytes of the largest region in such a slab.
pub(super) const DRIFT_REGION_BYTES_MAX: usize = 512;

impl SlabShape {
    /// The shape of no class.
    const NONE: SlabShape = SlabShape {
        pages: 0,
        regions: 0,
        reciprocal: 0,
        size: 0,
        eighth: 0,
        align: 0,
    };

    /// Slabs have about 32 KiB up to 1 KiB and 64 KiB above: large enough that taking a lock for a
    /// new one is rare, small enough that a class used once costs little and that sparse ones
    /// drain. Pages that the last region does not reach are left out. So are regions that need more
    /// pages than they are worth, which happens with tailored sizes.
    ///
    /// In slabs of small regions at least [`DRIFT_BYTES`] bytes stay unused at the end, so that
    /// regions a power of two apart do not all fall into the same cache sets:
    /// `docs/design/caches.md` has figures.
    pub(super) const fn of(size: usize) -> SlabShape {
        let aim = if size <= 8 {
            16 << 10
        } else if size <= 1024 {
            32 << 10
        } else {
            64 << 10
        };
        let drift = if size <= DRIFT_REGION_BYTES_MAX {
            DRIFT_BYTES
        } else {
            0
        };
        let regions = full(size, drift, (aim - drift) / size);
        SlabShape {
            pages: pages(size, drift, regions) as u16,
            regions: regions as u16,
            reciprocal: (1u64 << 32).div_ceil(size as u64) as u32,
            size: size as u32,
            eighth: (8 << 16) / regions as u32,
            align: if size > PAGE && size.is_power_of_two() {
                size as u32
            } else {
                PAGE as u32
            },
        }
    }

    /// How full a slab with `used` regions in use is, from 0 to 7; `used` is below `regions`.
    #[inline]
    pub fn eighths(&self, used: usize) -> usize {
        (used * self.eighth as usize) >> 16
    }

    /// The fewest used regions at which [`SlabShape::eighths`] returns `level`.
    pub fn least_at(&self, level: usize) -> usize {
        (level << 16).div_ceil(self.eighth as usize)
    }

    /// The region that begins `offset` bytes into the slab; `None` if none begins there.
    ///
    /// Exact division by multiplication (Granlund and Montgomery 1994): the error of the reciprocal
    /// is below `size`, and offset × size < 2³² for every slab, which a test checks. For the same
    /// reason the lower half of the product tells whether there is a remainder (Lemire, Kaser and
    /// Kurz 2019).
    #[inline]
    pub fn region_at(&self, offset: usize) -> Option<usize> {
        let product = offset as u64 * self.reciprocal as u64;
        let begins = (product as u32) < self.reciprocal && product < (self.regions as u64) << 32;
        begins.then_some((product >> 32) as usize)
    }

    /// The region that the byte at this offset in a slab lies in: its offset and its bytes.
    #[inline(always)]
    pub fn region_around(&self, offset: usize) -> Option<(usize, usize)> {
        let size = self.size as usize;
        let region = offset.min(u32::MAX as usize) as u32 / self.size.max(1);
        (region < self.regions as u32).then_some((region as usize * size, size))
    }
}

/// Pages of a slab with this many regions.
const fn pages(size: usize, drift: usize, regions: usize) -> usize {
    (regions * size + drift).div_ceil(PAGE)
}

/// The number of regions that a slab should have, at most `max`: fewer, if that leaves much less
/// of its pages unused.
const fn full(size: usize, drift: usize, max: usize) -> usize {
    let (mut best, mut n) = (max, max);
    while n > max / 2 {
        n -= 1;
        // Compared per page.
        let (of_n, of_best) = (pages(size, drift, n), pages(size, drift, best));
        if n * size * of_best > best * size * of_n + of_n * of_best * PAGE / SAVED_PART {
            best = n;
        }
    }
    best
}

/// Fewer regions must save one part in this many of each page.
const SAVED_PART: usize = 32;

/// The shapes of all slab classes, by number.
pub(super) type Shapes = Late<SlabShape, { SLAB_CLASSES + 1 }>;

/// The table's shapes; tailored classes have none yet.
pub(super) const fn tabled() -> Shapes {
    let mut t = [const { UnsafeCell::new(SlabShape::NONE) }; SLAB_CLASSES + 1];
    let mut c = 1;
    while c <= TABLED {
        t[c] = UnsafeCell::new(SlabShape::of(size(c as u8)));
        c += 1;
    }
    Late::of(t)
}

/// The most regions and the most pages of any slab. Tailored classes are larger than the table's
/// smallest, and their slabs have about as many bytes, so they are covered.
pub(super) const REGIONS_AND_PAGES_MAX: (usize, usize) = {
    let (mut regions, mut pages, mut c) = (0, 0, 1);
    while c <= TABLED {
        let shape = SlabShape::of(size(c as u8));
        if shape.regions as usize > regions {
            regions = shape.regions as usize;
        }
        if shape.pages as usize > pages {
            pages = shape.pages as usize;
        }
        c += 1;
    }
    (regions, pages)
};
