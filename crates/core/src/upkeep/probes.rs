//! Probes for tracers: `otel_memory:alloc` and `otel_memory:free`, at sampled blocks.
//!
//! They are SystemTap's user-space probes (USDT): a `nop`, and a note in the file (`.note.stapsdt`)
//! that says where it is and in which registers the arguments are. OpenTelemetry's profiler knows
//! these two by name; gdb, perf and bpftrace can use them, too. The arguments of `alloc` are the
//! address, the requested bytes, and the bytes that the sample stands for; that of `free` is the
//! address.
//!
//! Each probe has a semaphore, which the kernel raises for every tracer that is attached. A tick
//! checks both ([`check`]). When that changed, a thread that holds no lock switches sampling
//! (`api::pending`), so that a tracer needs no configuration of the process.

use crate::sys::arch::trace_point;
use crate::sys::atomic::{AtomicU16, AtomicU32, Ordering};
use crate::sys::pending::{self, PendingWork};
use core::arch::global_asm;

global_asm!(
    // Where the kernel counts tracers: in the file's own memory, so not among the variables that
    // begin as zero. The last word is ours.
    ".pushsection .data.mallard_probes,\"aw\",@progbits",
    ".p2align 2",
    ".globl mallard_probes",
    ".hidden mallard_probes",
    ".type mallard_probes, @object",
    ".size mallard_probes, 8",
    "mallard_probes:",
    ".short 0, 0",
    ".long 0",
    ".popsection",
    // Tools compare the address of this section with the one in the notes.
    ".ifndef _.stapsdt.base",
    ".pushsection .stapsdt.base,\"aG\",@progbits,.stapsdt.base,comdat",
    ".weak _.stapsdt.base",
    ".hidden _.stapsdt.base",
    "_.stapsdt.base: .space 1",
    ".size _.stapsdt.base, 1",
    ".popsection",
    ".endif",
);

#[repr(C)]
struct Probes {
    /// How many tracers are attached to `alloc` and to `free`.
    tracers: [AtomicU16; 2],
    /// 1 if there were any when a thread last followed a change.
    followed: AtomicU32,
}

unsafe extern "C" {
    static mallard_probes: Probes;
}

fn probes() -> &'static Probes {
    // SAFETY: defined above with this layout; it consists of atomics.
    unsafe { &mallard_probes }
}

/// A block was sampled.
#[inline(never)]
pub fn alloc(block: usize, requested: usize, weighted: u64) {
    trace_point!(
        "otel_memory",
        "alloc",
        "mallard_probes",
        block,
        requested,
        weighted
    );
}

/// A sampled block is about to be freed.
#[inline(never)]
pub fn free(block: usize) {
    trace_point!("otel_memory", "free", "mallard_probes+2", block);
}

/// Whether a tracer is attached.
fn are_watched() -> bool {
    (probes().tracers)
        .iter()
        .any(|tracers| tracers.load(Ordering::Relaxed) != 0)
}

/// Notices that the first tracer has come, or the last one has gone. For ticks.
#[inline(always)]
pub fn check() {
    let probes = probes();
    if u32::from(are_watched()) != probes.followed.load(Ordering::Relaxed) {
        pending::add(PendingWork::Probes);
    }
}

/// Returns whether there are tracers; [`check`] is quiet until that changes.
pub fn follow() -> bool {
    let are_watched = are_watched();
    probes()
        .followed
        .store(are_watched.into(), Ordering::Relaxed);
    are_watched
}

/// Pretends that this many tracers came, or went.
#[cfg(test)]
pub fn pretend(tracers: u16) {
    probes().tracers[0].store(tracers, Ordering::Relaxed);
}
