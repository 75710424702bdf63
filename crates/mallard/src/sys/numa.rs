//! The memory that is near: nodes, and which of them a thread runs on.
//!
//! Everything here is asked of the kernel anew, and rarely: by threads that begin, on machines with
//! several nodes. What the kernel will not say or do (it was built without, or a container's filter
//! forbids it) does no harm: memory still comes from the node of the CPU that touches it first.
//!
//! In unit tests the machine has the nodes that `fake` says.

use super::errno::KeepErrno;
use super::label::Named;

/// Nodes are told apart up to this number.
pub const MOST: usize = 64;

/// From `linux/mempolicy.h`.
const MPOL_DEFAULT: i32 = 0;
const MPOL_PREFERRED: i32 = 1;
const MPOL_F_NODE: usize = 1;
const MPOL_F_ADDR: usize = 2;

/// Whether CPUs belong to more than one node.
pub fn several() -> bool {
    #[cfg(test)]
    if let Some(several) = fake::several() {
        return several;
    }
    let _keep = KeepErrno::new();
    static PATH: Named<33> = Named::of(c"/sys/devices/system/node/has_cpu");
    let path = PATH.get();
    let mut text = [0u8; 64];
    // SAFETY: the path is a C string, and the kernel writes at most the buffer's length. The plain
    // system calls are used because the C library's are points where a thread can be cancelled.
    let got = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
        if file < 0 {
            return false;
        }
        let got = libc::syscall(libc::SYS_read, file, text.as_mut_ptr(), text.len());
        libc::syscall(libc::SYS_close, file);
        got
    };
    let text = text.get(..got.max(0) as usize).unwrap_or(&[]);
    names_several(text)
}

/// Whether a list of the kernel's, such as `0` or `0-1,4`, has more than one member.
fn names_several(list: &[u8]) -> bool {
    list.iter().any(|c| matches!(c, b'-' | b','))
}

/// The node that the calling thread runs on; none when it cannot be told.
pub fn here() -> Option<usize> {
    #[cfg(test)]
    if let Some(node) = fake::here() {
        return Some(node);
    }
    let _keep = KeepErrno::new();
    let (mut cpu, mut node) = (0u32, 0u32);
    let nothing = core::ptr::null_mut::<u8>();
    // SAFETY: two valid out-pointers; the third argument is unused.
    let got = unsafe { libc::syscall(libc::SYS_getcpu, &raw mut cpu, &raw mut node, nothing) };
    (got == 0 && (node as usize) < MOST).then_some(node as usize)
}

/// The node whose memory is behind an address that has been touched; none when it cannot be told.
pub fn of_memory(at: usize) -> Option<usize> {
    #[cfg(test)]
    if fake::several() == Some(true) {
        return Some(0);
    }
    let node = get_policy(at, MPOL_F_NODE | MPOL_F_ADDR)?;
    (0..MOST)
        .contains(&(node as usize))
        .then_some(node as usize)
}

/// Whether the process leaves it to us where memory comes from. One that was started under `numactl`
/// has said itself where from.
pub fn is_ours_to_choose() -> bool {
    get_policy(0, 0) == Some(MPOL_DEFAULT)
}

fn get_policy(at: usize, flags: usize) -> Option<i32> {
    let _keep = KeepErrno::new();
    let mut answer = 0i32;
    let no_mask = core::ptr::null_mut::<u64>();
    // SAFETY: `answer` is a valid out-pointer, and no mask is asked for.
    let got = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut answer,
            no_mask,
            0usize,
            at,
            flags,
        )
    };
    (got == 0).then_some(answer)
}

/// Has the range, which nobody has touched, take memory of the node while there is some.
#[cold]
#[inline(never)]
pub fn prefer(at: usize, len: usize, node: usize) {
    let _keep = KeepErrno::new();
    let mask = 1u64 << node;
    // The kernel leaves the last bit that it is told of out.
    let bits = u64::BITS as usize + 1;
    // SAFETY: the caller owns the range; no page of it is moved, and the mask has that many bits but
    // the last, which the kernel does not read.
    unsafe {
        libc::syscall(
            libc::SYS_mbind,
            at,
            len,
            MPOL_PREFERRED,
            &raw const mask,
            bits,
            0,
        )
    };
}

/// A machine with two nodes for the unit tests: CPUs' memory is that of node 0, and each thread says
/// itself which node it runs on.
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
    pub fn several() -> Option<bool> {
        Some(TWO.load(Ordering::Relaxed))
    }

    pub fn here() -> Option<usize> {
        TWO.load(Ordering::Relaxed)
            .then(|| HERE.with(|here| here.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::mem;
    use std::string::String;

    #[test]
    fn lists_of_nodes_are_counted() {
        assert!(!names_several(b"0\n") && !names_several(b"12\n") && !names_several(b""));
        assert!(names_several(b"0-1\n") && names_several(b"0,2\n") && names_several(b"0-3,8-9\n"));
    }

    #[test]
    fn the_kernel_knows_of_a_preference_and_where_memory_is() {
        let len = 16 * mem::os_page();
        let at = mem::reserve(len).expect("there are addresses");
        assert!(mem::commit(at, len));
        let Some(before) = get_policy(at, MPOL_F_ADDR) else {
            // This kernel has no nodes, or a filter keeps them from us: nothing to see.
            return mem::release(at, len);
        };
        prefer(at, len, 0);
        let after = get_policy(at, MPOL_F_ADDR);
        // SAFETY: just committed.
        unsafe { (at as *mut u8).write(1) };
        let node = get_policy(at, MPOL_F_NODE | MPOL_F_ADDR);
        let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
        mem::release(at, len);
        assert_eq!((before, after), (MPOL_DEFAULT, Some(MPOL_PREFERRED)));
        assert!(node.is_some_and(|n| n >= 0), "{node:?}");
        let line: String = std::format!("{at:x} prefer:0 ");
        assert!(maps.is_empty() || maps.contains(&line), "{line} in {maps}");
    }
}
