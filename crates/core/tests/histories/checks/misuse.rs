//! A legal history, then one misuse, in a child: it must end as the table says, with one line that
//! names the address.

use super::bytes::Bytes;
use super::child::{Ended, forked};
use super::heap::{History, apart};
use mallard_core::api::{self, arenas, extended, extended::Flags, threads};
use std::sync::OnceLock;

/// When a misuse is seen at the latest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    AtOnce,
    /// When the caches give the block back: always before it is handed out a second time by them.
    WhenFlushed,
}
use Seen::*;

pub struct Kind {
    name: &'static str,
    /// The address to misuse, in the parent: of a block with a usable size from the first to the
    /// second bound, so many bytes into it; without bounds an address that is no block's.
    blocks: Option<(usize, usize)>,
    into: usize,
    misuse: fn(usize),
    seen: Seen,
    /// One of them is in the line.
    words: &'static [&'static str],
    /// Whether the line names the address.
    names_it: bool,
}

const SLAB_MAX: usize = 14 << 10;
const CACHED_MAX: usize = 256 << 10;
const SMALL: Option<(usize, usize)> = Some((1, SLAB_MAX));
const MEDIUM: Option<(usize, usize)> = Some((SLAB_MAX + 1, CACHED_MAX));
const LARGE: Option<(usize, usize)> = Some((CACHED_MAX + 1, usize::MAX));

/// What is said of a pointer into a block, or of a block that is free.
const INSIDE: &[&str] = &["inside a block", "into a block", "not an allocated block"];
const TWICE: &[&str] = &["double free", "is free already", "not an allocated block"];
const FOREIGN: &[&str] = &["never gave", "not a block"];

const fn kind(
    name: &'static str,
    blocks: Option<(usize, usize)>,
    into: usize,
    misuse: fn(usize),
    seen: Seen,
    words: &'static [&'static str],
) -> Kind {
    let names_it = true;
    Kind {
        name,
        blocks,
        into,
        misuse,
        seen,
        words,
        names_it,
    }
}

pub const KINDS: [Kind; 20] = [
    kind("free of foreign memory", None, 0, free, AtOnce, FOREIGN),
    kind(
        "free of an odd foreign address",
        None,
        1,
        free,
        AtOnce,
        FOREIGN,
    ),
    kind(
        "sized free of foreign memory",
        None,
        0,
        free_sized,
        AtOnce,
        FOREIGN,
    ),
    kind(
        "free of foreign memory past the caches",
        None,
        0,
        free_direct,
        AtOnce,
        FOREIGN,
    ),
    kind(
        "realloc of foreign memory",
        None,
        0,
        resize,
        AtOnce,
        FOREIGN,
    ),
    kind("size of foreign memory", None, 0, size, AtOnce, FOREIGN),
    kind(
        "free inside a small block",
        Some((32, SLAB_MAX)),
        16,
        free,
        WhenFlushed,
        INSIDE,
    ),
    kind("free of an odd address", SMALL, 1, free, AtOnce, INSIDE),
    kind(
        "sized free inside a small block",
        Some((32, SLAB_MAX)),
        8,
        free_sized,
        WhenFlushed,
        INSIDE,
    ),
    kind(
        "free past the caches inside a small block",
        SMALL,
        8,
        free_direct,
        AtOnce,
        INSIDE,
    ),
    kind(
        "free in the first page of a run",
        MEDIUM,
        16,
        free,
        WhenFlushed,
        INSIDE,
    ),
    kind(
        "free in a later page of a run",
        MEDIUM,
        4096,
        free,
        AtOnce,
        INSIDE,
    ),
    kind(
        "free inside a large block",
        LARGE,
        8192,
        free,
        AtOnce,
        INSIDE,
    ),
    kind(
        "realloc inside a large block",
        LARGE,
        8192,
        resize,
        AtOnce,
        INSIDE,
    ),
    kind(
        "second free of a small block",
        SMALL,
        0,
        free_twice,
        AtOnce,
        TWICE,
    ),
    kind("second free of a run", MEDIUM, 0, free_twice, AtOnce, TWICE),
    kind(
        "second free of a large block",
        LARGE,
        0,
        free_twice,
        AtOnce,
        TWICE,
    ),
    kind(
        "second free past the caches",
        Some((1, usize::MAX)),
        0,
        free_direct_twice,
        AtOnce,
        TWICE,
    ),
    kind(
        "free of a block of an arena that is gone",
        None,
        0,
        free_of_the_gone,
        AtOnce,
        TWICE,
    ),
    Kind {
        names_it: false,
        ..kind(
            "use of a cache that is not there",
            SMALL,
            0,
            free_nowhere,
            AtOnce,
            &["the cache 4000"],
        )
    },
];

/// Runs a history, commits the misuse that the first bytes choose, and checks how that ends.
pub fn misuse(bytes: &[u8]) {
    let mut choice = Bytes::new(bytes);
    let kind = &KINDS[choice.below(KINDS.len())];
    let pick = choice.pair();
    let history = bytes.get(3..).unwrap_or_default();
    apart(|| {
        api::expect_forks();
        let mut history = History::new(history);
        history.run();
        commit(kind, &history, pick);
        history.end();
    });
}

fn commit(kind: &Kind, history: &History, pick: usize) {
    let at = match kind.blocks {
        None => foreign(),
        Some((first, last)) => {
            let fits = |size: usize| (first..=last).contains(&size) && size > kind.into;
            let fitting = history.blocks.iter().filter(|block| fits(block.usable));
            let fitting: Vec<usize> = fitting.map(|block| block.p.addr()).collect();
            match pick.checked_rem(fitting.len()) {
                Some(index) => fitting[index],
                None => new_block(first, last, kind.into),
            }
        }
    };
    let is_new = kind.blocks.is_some() && !history.blocks.iter().any(|b| b.p.addr() == at);
    let ended = forked(|| {
        (kind.misuse)(at + kind.into);
        if kind.seen == WhenFlushed {
            let _ = threads::flush_cache();
            api::trim();
        }
    });
    check(kind, at + kind.into, &ended);
    if is_new {
        // SAFETY: made above, and freed once.
        unsafe { api::dealloc(at as *mut u8) };
    }
}

/// A new block, where the history has left none of these sizes.
fn new_block(first: usize, last: usize, into: usize) -> usize {
    let size = (first.max(into + 1) + 100).min(last);
    let p = api::alloc(size);
    assert!(!p.is_null());
    p.addr()
}

fn check(kind: &Kind, at: usize, ended: &Ended) {
    let name = kind.name;
    let Some(line) = ended.last_line() else {
        panic!("{name} at {at:#x}: {ended:?}");
    };
    assert!(
        kind.words.iter().any(|words| line.contains(words)),
        "{name}: '{line}' has none of {:?}",
        kind.words
    );
    let is_gone = kind.misuse as *const () == free_of_the_gone as *const ();
    if kind.names_it && !is_gone {
        assert!(
            line.contains(&format!("{at:#x}")),
            "{name} at {at:#x}: {line}"
        );
    }
}

/// Memory that is not the allocator's: a mapping.
fn foreign() -> usize {
    static AT: OnceLock<usize> = OnceLock::new();
    *AT.get_or_init(|| {
        let (rights, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping.
        let p = unsafe { libc::mmap(std::ptr::null_mut(), 1 << 20, rights, kind, -1, 0) };
        assert_ne!(p, libc::MAP_FAILED);
        p.addr() + 4096
    })
}

fn free(at: usize) {
    // SAFETY: none: this is a misuse, in a child.
    unsafe { api::dealloc(at as *mut u8) }
}

fn free_sized(at: usize) {
    // SAFETY: as above.
    unsafe { api::dealloc_sized(at as *mut u8, 24) }
}

fn free_direct(at: usize) {
    // SAFETY: as above.
    unsafe { extended::dealloc_with(at as *mut u8, Flags::NONE.no_cache()) }
}

fn free_nowhere(at: usize) {
    // SAFETY: as above.
    unsafe { extended::dealloc_with(at as *mut u8, Flags::NONE.cache(4000)) }
}

fn free_twice(at: usize) {
    free(at);
    free(at);
}

fn free_direct_twice(at: usize) {
    free_direct(at);
    free_direct(at);
}

fn resize(at: usize) {
    // SAFETY: as above.
    unsafe { api::realloc(at as *mut u8, 700_000) };
}

fn size(at: usize) {
    // SAFETY: as above.
    unsafe { api::usable_size(at as *mut u8) };
}

fn free_of_the_gone(_: usize) {
    let arena = arenas::create().expect("an arena");
    let block = extended::alloc_with(1000, Flags::NONE.arena(arena).no_cache());
    // SAFETY: its block is in no cache; that it is still used is the misuse.
    unsafe { arenas::destroy(arena) }.expect("nobody is in the arena");
    free(block.addr());
}
