//! Hints to the processor and the compiler. They affect only speed and the size of the code: they
//! take any number for an address, and never fault.

use super::arch;

/// The cache line at this address will soon be written: fetches it for exclusive use.
///
/// An unmapped address has no effect. Processors that do not know the instruction ignore it.
#[inline(always)]
pub fn soon_written(addr: usize) {
    arch::prefetch_to_write(addr);
}

/// Keeps the compiler from unrolling or vectorising a loop. For short loops in code that every
/// program loads: the transformed code would be several times as long.
#[inline(always)]
pub fn step_by_step() {
    arch::nothing();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_may_be_told_and_nothing_is_changed() {
        let word = core::hint::black_box(7_u64);
        let at = (&raw const word).addr();
        for addr in [0, 1, at, at + 1, 1 << 63, usize::MAX] {
            soon_written(addr);
        }
        assert_eq!(core::hint::black_box(word), 7);
    }
}
