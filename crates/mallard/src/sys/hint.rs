//! What the processor may be told in advance. Hints change nothing but time: they take any number for an address,
//! and never fault.

/// The line at this address is soon written to: it may come to this processor alone.
///
/// Where nothing is mapped, nothing comes. Processors that do not know the instruction pass over it.
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
