//! Which chunks are backed by huge pages.
//!
//! Touching a fresh 4 KiB page costs over a microsecond, and a 2 MiB page at once a fifth of that
//! per 4 KiB, so a heap that grows wants huge pages. A small program does not: one huge page would
//! be more than all it needs. Hence `auto`, the default: the first [`PLAIN_CHUNKS`] chunks of the
//! process never get huge pages, whatever the system's policy, and all later ones ask for them
//! before they are first touched. There, slabs of classes that grow are filled by one call instead
//! ([`super::Run::bare`]).

use crate::space::chunk::{CHUNK, Chunk};
use crate::space::region::{Growing, Region};
use crate::sys::atomic::{AtomicU8, AtomicUsize, Ordering};
use crate::sys::mem;
use core::ops::Range;

/// Chunks at the start of a process that stay with small pages under [`Policy::Auto`].
const PLAIN_CHUNKS: usize = 8;
/// Bytes of a huge page.
pub const SIZE: usize = CHUNK;

/// The option `thp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Policy {
    /// Small pages for small processes, huge ones for growing heaps.
    Auto = 0,
    /// As the system decides.
    Default = 1,
    Always = 2,
    Never = 3,
}

static POLICY: AtomicU8 = AtomicU8::new(Policy::Auto as u8);
static CHUNKS: AtomicUsize = AtomicUsize::new(0);

pub fn set_policy(policy: Policy) {
    POLICY.store(policy as u8, Ordering::Relaxed);
}

fn policy() -> Policy {
    match POLICY.load(Ordering::Relaxed) {
        0 => Policy::Auto,
        1 => Policy::Default,
        2 => Policy::Always,
        _ => Policy::Never,
    }
}

/// Whether a fresh reservation is to be closed to huge pages.
pub fn forbid_at_first() -> bool {
    matches!(policy(), Policy::Auto | Policy::Never)
}

/// Asks for huge pages in fresh neighbouring chunks, those that should have them.
pub fn prepare(growing: &Growing, region: &'static Region, fresh: Range<usize>) {
    let before = CHUNKS.fetch_add(fresh.len(), Ordering::Relaxed);
    let plain = match policy() {
        Policy::Auto => PLAIN_CHUNKS.saturating_sub(before),
        Policy::Always => 0,
        Policy::Default | Policy::Never => return,
    };
    if plain >= fresh.len() {
        return;
    }
    let huge = fresh.start + plain..fresh.end;
    if region.want_huge_pages(growing, huge.start, huge.len()) {
        huge.for_each(|i| region.chunk(i).huge.set(true));
    }
}

/// A chunk without memory is about to be used: asks for a huge page where it has none because it was
/// among the first of a small process, which this one no longer is, or because its last one was broken.
pub fn reconsider(chunk: &Chunk) {
    let grown = CHUNKS.load(Ordering::Relaxed) > 2 * PLAIN_CHUNKS;
    if grown && !chunk.huge.get() && policy() == Policy::Auto {
        chunk.huge.set(mem::want_huge_pages(chunk.addr(), CHUNK));
        if chunk.kept_broken.replace(false) {
            KEPT_BROKEN.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Chunks that huge pages were forbidden in because part of their memory went back. Each may be a
/// mapping of its own to the system, which allows 65,530 by default.
static KEPT_BROKEN: AtomicUsize = AtomicUsize::new(0);
const MOST_KEPT_BROKEN: usize = 8192;

/// Whether a chunk whose huge page breaks is to stay without.
pub fn may_stay_broken() -> bool {
    policy() == Policy::Auto && KEPT_BROKEN.load(Ordering::Relaxed) < MOST_KEPT_BROKEN
}

/// Part of a chunk's memory went back: keeps the system from putting a huge page in the place of what is
/// left. Where huge pages are asked for, `khugepaged` does so by and by with any 2 MiB of which a single
/// page is there (its `max_ptes_none` is 511 by default), and the memory that went back would be there
/// again, in a process that does nothing. For a chunk that does not become vacant meanwhile.
pub fn keep_broken(chunk: &Chunk) {
    mem::forbid_huge_pages(chunk.addr(), CHUNK);
}

/// Notes that [`keep_broken`] was called, under the page heap's lock.
pub fn kept_broken(chunk: &Chunk) {
    chunk.huge.set(false);
    if !chunk.kept_broken.replace(true) {
        KEPT_BROKEN.fetch_add(1, Ordering::Relaxed);
    }
}
