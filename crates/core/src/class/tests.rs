use super::shape::{DRIFT_BYTES, DRIFT_REGION_BYTES_MAX};
use super::*;

/// Miri interprets the tests: fewer sizes are enough there.
const STEP: usize = if cfg!(miri) { 1_009 } else { 1 };

#[test]
fn the_table_agrees_with_the_arithmetic() {
    assert!(offset_of_small(0).is_none(), "no bytes have no stack");
    for n in 1..=TABLE_MAX {
        assert_eq!(
            offset_of_small(n),
            StackOffset::of(Class::of(n)),
            "{n} bytes"
        );
    }
    for n in (TABLE_MAX..=MEDIUM_MAX).step_by(STEP) {
        assert_eq!(
            offset_of_medium(n),
            StackOffset::of(Class::of(n)),
            "{n} bytes"
        );
    }
    assert_eq!(
        Class::cachable().count() + TAILORED,
        CACHED_CLASSES,
        "nothing is tailored"
    );
    for n in 1..=TABLE_MAX {
        assert_eq!(tabled_offset_of_small(n), offset_of_small(n), "{n} bytes");
    }
    for class in (0..=CACHED_CLASSES as u8).map(Class) {
        let stack = StackOffset::of(class);
        let offset = class.index() * STRIDE;
        assert_eq!((stack.bytes(), stack.class()), (offset, class));
        assert_eq!(StackOffset::from_byte(stack.byte()), stack);
        assert_eq!(stack.size(), class.size());
    }
}

#[test]
fn a_class_holds_its_request_and_the_one_below_does_not() {
    let mut sizes: Vec<usize> = (0..=70_000).step_by(STEP).collect();
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
            c.0 == 1 || c.below().size() < n,
            "{n} bytes fit the class below"
        );
    }
}

#[test]
fn waste_stays_within_a_fifth_above_128_bytes() {
    for n in (129..200_000).step_by(STEP) {
        let s = Class::of(n).size();
        assert!((s - n) * 5 <= s, "{n} bytes in a block of {s}");
    }
}

#[test]
fn the_named_limits_are_classes() {
    assert_eq!(Class::of(SLAB_MAX), Class(TABLED as u8));
    assert_eq!(Class(TABLED as u8).size(), SLAB_MAX);
    assert_eq!(Class::of(SLAB_MAX + 1), Class(SLAB_CLASSES as u8 + 1));
    assert_eq!(Class::of(CACHED_MAX), Class(CACHED_CLASSES as u8));
    assert!(Class::of(MAX).0 < u8::MAX);
}

#[test]
fn an_aligned_class_holds_size_and_alignment() {
    for shift in 0..=16 {
        let align = 1 << shift;
        for n in (0..100_000).step_by(STEP) {
            let s = Class::of(aligned_size(n, align)).size();
            assert!(
                s >= n && s.is_multiple_of(align),
                "{n} bytes at {align}: {s}"
            );
        }
    }
}

#[test]
fn slabs_waste_little_and_division_is_exact() {
    let tabled = (1..=TABLED as u8).map(|c| Class(c).size());
    // The sizes that a class may be tailored to, among others.
    let tailored = (144..SLAB_MAX).step_by(16 * STEP);
    for size in tabled.chain(tailored) {
        let shape = SlabShape::of(size);
        let (bytes, used) = (
            shape.pages as usize * PAGE,
            shape.regions as usize * shape.size as usize,
        );
        assert!(used <= bytes && bytes - used < PAGE, "{size}");
        // Fewer regions would not leave much less unused.
        let drift = if size > DRIFT_REGION_BYTES_MAX {
            0
        } else {
            DRIFT_BYTES
        };
        for n in (shape.regions as usize).div_ceil(2)..shape.regions as usize {
            let pages = (n * size + drift).div_ceil(PAGE);
            let (of_n, here) = (
                (n * size) as f64 / pages as f64,
                used as f64 / shape.pages as f64,
            );
            assert!(of_n <= here + PAGE as f64 / 32.0, "{size}: {n} regions");
        }
        assert!(
            size > DRIFT_REGION_BYTES_MAX || bytes - used >= DRIFT_BYTES,
            "{size}"
        );
        assert!(shape.regions as usize <= Class::REGIONS_MAX, "{size}");
        assert!(shape.pages as usize <= Class::PAGES_MAX, "{size}");
        for offset in (0..bytes).step_by(STEP) {
            let expected = (offset % size == 0 && offset / size < shape.regions as usize)
                .then_some(offset / size);
            assert_eq!(shape.region_at(offset), expected, "{size} at {offset}");
        }
    }
}
