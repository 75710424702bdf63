//! What depends on the processor's architecture: one folder for each, with the same names, of which
//! this face picks one. The core has a folder of the same kind, and says where there is none for
//! the processor (`crates/core/src/sys/arch`).

/// The table for the C++ personality routine: an exception of any type out of the call between
/// `.Lmallard_try_begin` and `.Lmallard_try_end` is caught at `.Lmallard_catch`. Nothing else
/// throws in the function, which begins at `.Lmallard_nothrow_begin`. Its assembly contains the
/// table, with the operand `personality`.
macro_rules! nothrow_table {
    () => {
        concat!(
            ".pushsection .gcc_except_table.mallard,\"a\",@progbits\n",
            ".p2align 2\n",
            ".Lmallard_lsda:\n",
            ".byte 0xff\n",
            ".byte 0x00\n",
            ".uleb128 .Lmallard_types - .Lmallard_sites_start\n",
            ".Lmallard_sites_start:\n",
            ".byte 0x01\n",
            ".uleb128 .Lmallard_sites_end - .Lmallard_sites\n",
            ".Lmallard_sites:\n",
            ".uleb128 .Lmallard_try_begin - .Lmallard_nothrow_begin\n",
            ".uleb128 .Lmallard_try_end - .Lmallard_try_begin\n",
            ".uleb128 .Lmallard_catch - .Lmallard_nothrow_begin\n",
            ".uleb128 1\n",
            ".Lmallard_sites_end:\n",
            ".byte 0x01\n",
            ".byte 0x00\n",
            ".p2align 2\n",
            ".quad 0\n",
            ".Lmallard_types:\n",
            ".popsection\n",
            ".pushsection .data.rel.mallard,\"aw\",@progbits\n",
            ".p2align 3\n",
            ".Lmallard_personality:\n",
            ".quad {personality}\n",
            ".popsection\n",
        )
    };
}

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "aarch64")]
use aarch64 as machine;
#[cfg(target_arch = "x86_64")]
use x86_64 as machine;

pub(crate) use machine::{cxx, jump_to, trap};
