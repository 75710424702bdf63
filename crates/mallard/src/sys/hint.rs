//! Hints to the processor and the compiler. They affect only speed and the size of the code: they
//! take any number for an address, and never fault.

/// The cache line at this address will soon be written: fetches it for exclusive use.
///
/// An unmapped address has no effect. Processors that do not know the instruction ignore it.
#[inline(always)]
pub fn soon_written(addr: usize) {
    // SAFETY: a prefetch has no effect that the program can observe, whatever the address.
    unsafe {
        core::arch::asm!(
            "prefetchw [{at}]",
            at = in(reg) addr,
            options(readonly, nostack, preserves_flags),
        );
    }
}

/// Keeps the compiler from unrolling or vectorising a loop. For short loops in code that every
/// program loads: the transformed code would be several times as long.
#[inline(always)]
pub fn step_by_step() {
    // SAFETY: this emits no instruction.
    unsafe { core::arch::asm!("", options(nomem, nostack, preserves_flags)) };
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
