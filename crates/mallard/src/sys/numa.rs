//! The memory that is near: which node of memory the calling thread runs on.
//!
//! The C library's `getcpu` reads it from the kernel's page of code, without a system call: a
//! sandbox has no say in it. It is looked up weakly, so that the library loads under a C library
//! before 2.29, where nodes are not told apart.
//!
//! In unit tests the machine has the nodes that `fake` says.

use super::errno::KeepErrno;

/// Nodes are told apart up to this number.
pub const MOST: usize = 64;

core::arch::global_asm!(".weak getcpu");

/// The node that the calling thread runs on; none when it cannot be told.
pub fn here() -> Option<usize> {
    #[cfg(test)]
    return fake::here();
    #[cfg(not(test))]
    asked()
}

fn asked() -> Option<usize> {
    type GetCpu = extern "C" fn(*mut u32, *mut u32) -> i32;
    let address: usize;
    // SAFETY: reads the address that the loader wrote, 0 where there is no such function.
    unsafe {
        core::arch::asm!(
            "mov {a}, qword ptr [rip + getcpu@GOTPCREL]",
            a = out(reg) address,
            options(readonly, nostack, preserves_flags, pure),
        );
    }
    // SAFETY: 0, or the C library's function of this type.
    let getcpu = unsafe { core::mem::transmute::<usize, Option<GetCpu>>(address) }?;
    let _keep = KeepErrno::new();
    let (mut cpu, mut node) = (0, 0);
    let told = getcpu(&mut cpu, &mut node) == 0;
    (told && (node as usize) < MOST).then_some(node as usize)
}

/// A machine with two nodes for the unit tests: each thread says itself which node it runs on, node
/// 0 unless it does.
#[cfg(test)]
pub mod fake {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};

    static TWO: AtomicBool = AtomicBool::new(false);

    std::thread_local! {
        static HERE: Cell<usize> = const { Cell::new(0) };
    }

    /// From now on the machine has two nodes, or one again.
    pub fn set_two(two: bool) {
        TWO.store(two, Ordering::Relaxed);
    }

    /// The calling thread runs on this node.
    pub fn move_to(node: usize) {
        HERE.with(|here| here.set(node));
    }

    /// Tests without a fake find one node, whatever the machine.
    pub fn here() -> Option<usize> {
        let here = HERE.with(|here| here.get());
        Some(if TWO.load(Ordering::Relaxed) { here } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_on_which_node_a_thread_runs() {
        assert!(asked().is_some());
    }
}
