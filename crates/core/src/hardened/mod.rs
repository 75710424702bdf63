//! Hardened blocks: each has a record of its own beside it, so that every wrong free, a write
//! behind a block or before it, and a write after its free are found.
//!
//! The option `hardened` makes all blocks of the process such blocks; without it, the arenas for
//! which the program asks have them. `word` is the record of a block in a slab, `run` that of a
//! large one, and `ring` delays the reuse of blocks.
//!
//! The fast paths know nothing of this. Pages of such blocks are filed under no class, so that each
//! free takes the slow path, and each thread's pointer points to stacks that are empty, so that
//! each request does (`cache::counted`).

pub mod ring;
pub mod run;
pub mod word;

use crate::sys::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use crate::sys::{mem, random};
use word::Keys;

/// Whether there are hardened blocks.
const SOME: u8 = 1;
/// Whether all blocks are hardened.
const ALL: u8 = 2;
/// Whether the call sites of requests and frees are noted.
const SITES: u8 = 4;

static STATE: AtomicU8 = AtomicU8::new(0);
/// What is done about a `delete` of what `malloc` gave, and the like.
static MISMATCH: AtomicU8 = AtomicU8::new(Mismatch::Warn as u8);

/// Whether a family did not match.
static MISMATCHED: AtomicBool = AtomicBool::new(false);

/// Serves if the system has no memory for others.
static NO_SECRET: Keys = Keys::of([0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9]);
/// On a page that is read-only; null before there are hardened blocks.
static KEYS: AtomicPtr<Keys> = AtomicPtr::new(core::ptr::null_mut());

/// What is done about a block that is freed by functions of another family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mismatch {
    Off,
    Warn,
    Abort,
}

/// Whether all blocks of the process are hardened.
#[inline(always)]
pub fn is_on() -> bool {
    STATE.load(Ordering::Relaxed) & ALL != 0
}

/// Whether there are hardened blocks.
#[inline(always)]
pub fn are_any() -> bool {
    STATE.load(Ordering::Relaxed) != 0
}

/// Whether the call sites of requests and frees are noted.
#[inline(always)]
pub fn notes_sites() -> bool {
    STATE.load(Ordering::Relaxed) & SITES != 0
}

/// From now on, the call sites of requests and frees are noted.
pub fn note_sites() {
    STATE.fetch_or(SITES, Ordering::Relaxed);
}

/// The secret of the process, where [`are_any`].
#[inline(always)]
pub fn keys() -> &'static Keys {
    debug_assert!(are_any());
    // SAFETY: it was set before there were hardened blocks, to keys that stay.
    unsafe { &*KEYS.load(Ordering::Relaxed) }
}

/// What is done about a family that does not match.
pub fn mismatch() -> Mismatch {
    match MISMATCH.load(Ordering::Relaxed) {
        0 => Mismatch::Off,
        1 => Mismatch::Warn,
        _ => Mismatch::Abort,
    }
}

/// Whether no family that does not match was found before.
pub fn is_first_mismatch() -> bool {
    !MISMATCHED.swap(true, Ordering::Relaxed)
}

/// Makes all blocks hardened, before there are any.
#[cold]
#[inline(never)]
pub fn begin(mismatch: Mismatch) {
    MISMATCH.store(mismatch as u8, Ordering::Relaxed);
    draw_keys();
    STATE.fetch_or(SOME | ALL, Ordering::Release);
}

/// From now on, there may be hardened blocks. One thread at a time calls this.
#[cold]
#[inline(never)]
pub fn expect() {
    if !are_any() {
        draw_keys();
        STATE.fetch_or(SOME, Ordering::Release);
    }
}

/// Before the first block that needs the keys.
fn draw_keys() {
    KEYS.store((&raw const NO_SECRET).cast_mut(), Ordering::Release);
    let page = mem::os_page();
    let Some(at) = mem::map_aligned(page, page) else {
        return;
    };
    // SAFETY: the page is new, and longer and more aligned than the keys.
    unsafe { (at as *mut Keys).write(Keys::of(random::pair())) };
    mem::keep_from_writes(at, page);
    KEYS.store(at as *mut Keys, Ordering::Release);
}
