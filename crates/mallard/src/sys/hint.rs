//! What the processor and the compiler may be told. Hints change nothing but time and the code's
//! length: they take any number for an address, and never fault.

/// The line at this address is soon written to: it may come to this processor alone.
///
/// Where nothing is mapped, nothing comes. Processors that do not know the instruction pass over
/// it.
#[inline(always)]
pub fn soon_written(addr: usize) {
    // SAFETY: a prefetch neither reads nor writes as the program sees it, whatever the address.
    unsafe {
        core::arch::asm!(
            "prefetchw [{at}]",
            at = in(reg) addr,
            options(readonly, nostack, preserves_flags),
        );
    }
}

/// Tells the compiler to leave the steps of a loop as they are, one after the other. For loops of
/// few steps in the code that every program brings into memory: its code for many steps at once is
/// several times as long.
#[inline(always)]
pub fn step_by_step() {
    // SAFETY: no instruction at all.
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
