//! NUMA: the memory node that the calling thread runs on.
//!
//! The C library's `getcpu` reads the node from the vDSO, without a system call, so no sandbox can
//! object. It is looked up weakly, so that the library also loads under C libraries before 2.29,
//! where nodes are not distinguished.
//!
//! In unit tests `fake` defines the nodes of the machine.

use crate::sys::errno::KeepErrno;

/// Nodes with numbers below this are distinguished.
pub const NODES_MAX: usize = 64;

/// The node that the calling thread runs on; `None` if it is unknown.
pub fn here() -> Option<usize> {
    #[cfg(test)]
    return asked!(Node or None, fake::here());
    #[cfg(not(test))]
    asked()
}

fn asked() -> Option<usize> {
    type GetCpu = extern "C" fn(*mut u32, *mut u32) -> i32;
    let address = crate::symbol_address!(weak "getcpu");
    // SAFETY: 0, or the C library's function of this type.
    let getcpu = unsafe { core::mem::transmute::<usize, Option<GetCpu>>(address) }?;
    let _keep = KeepErrno::new();
    let (mut cpu, mut node) = (0, 0);
    let told = asked!(Node or -1, getcpu(&mut cpu, &mut node)) == 0;
    (told && (node as usize) < NODES_MAX).then_some(node as usize)
}

/// A machine with two nodes for the unit tests: each thread sets the node that it runs on, 0 by
/// default.
#[cfg(test)]
pub mod fake {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};

    static TWO: AtomicBool = AtomicBool::new(false);

    std::thread_local! {
        static HERE: Cell<usize> = const { Cell::new(0) };
    }

    /// Makes the machine have two nodes, or one again.
    pub fn set_two(two: bool) {
        TWO.store(two, Ordering::Relaxed);
    }

    /// Makes the calling thread run on this node.
    pub fn move_to(node: usize) {
        HERE.with(|here| here.set(node));
    }

    /// Tests that do not use the fake find one node, whatever the machine.
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
