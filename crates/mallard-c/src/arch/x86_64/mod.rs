//! x86-64.

pub mod cxx;
#[cfg(not(target_env = "musl"))]
mod deepbind;

/// The instruction that jumps to a function.
macro_rules! jump_to {
    ($function:literal) => {
        concat!("jmp ", $function)
    };
}
pub(crate) use jump_to;

/// An instruction that ends the process.
macro_rules! trap {
    () => {
        "ud2"
    };
}
pub(crate) use trap;
