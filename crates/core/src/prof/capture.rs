//! Takes the call stack of the calling thread.
//!
//! The addresses go to a buffer in metadata memory, not to the thread's stack, which may be small.
//! A few buffers are kept for reuse: threads seldom sample at the same moment.

use super::hooks;
use super::unwind::cache::RuleCache;
use super::unwind::modules::list::ModuleList;
use super::unwind::{self, Noted, Registers};
use crate::cache::{self, Countdown};
use crate::space::meta;
use crate::sys::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use core::ptr::NonNull;

/// The most frames that an option may ask for.
pub const FRAMES_MAX: usize = 256;

type Buffer = [usize; FRAMES_MAX];

/// Buffers that no thread uses; null for none.
static KEPT: [AtomicPtr<Buffer>; 8] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 8];

/// Where this library's code is; nothing if it is a part of the program.
static OWN_START: AtomicUsize = AtomicUsize::new(0);
static OWN_END: AtomicUsize = AtomicUsize::new(0);
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Prepares, before the first capture. Without memory, captures take longer. For a thread that is
/// inside.
#[cold]
#[inline(never)]
pub fn begin() {
    if BEGUN.swap(true, Ordering::Relaxed) {
        return;
    }
    if let Some(room) = meta::take_apart(size_of::<RuleCache>()) {
        // SAFETY: the record is zero and has this size, and nothing else uses it; records are
        // aligned to a cache line and never unmapped.
        unwind::set_cache(unsafe { RuleCache::in_zeroed(room.as_ptr()) });
    }
    let modules = unwind::modules();
    modules.begin();
    if modules.needs_list() {
        if let Some(room) = meta::take_apart(size_of::<ModuleList>()) {
            // SAFETY: as above.
            modules.set_list(unsafe { ModuleList::in_zeroed(room.as_ptr()) });
        }
        modules.refresh();
    }
    let own = modules.find(begin as *const () as usize);
    // SAFETY: getauxval has no preconditions.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
    if let Some(own) = own.filter(|own| !own.contains(entry)) {
        OWN_START.store(own.start, Ordering::Relaxed);
        OWN_END.store(own.end, Ordering::Relaxed);
    }
}

/// Whether an address lies in this library's code; no address does if that is a part of the
/// program.
#[inline(always)]
pub fn is_own(at: usize) -> bool {
    let start = OWN_START.load(Ordering::Relaxed);
    at.wrapping_sub(start) < OWN_END.load(Ordering::Relaxed).wrapping_sub(start)
}

/// Takes note of code that was loaded since, where the loader cannot be asked for it. Not from
/// within an allocation: it reads a file.
pub fn refresh() {
    let modules = unwind::modules();
    if modules.wants_refresh() {
        modules.refresh();
    }
}

/// A captured stack.
pub struct Stack {
    buffer: NonNull<Buffer>,
    len: usize,
}

impl Stack {
    /// Captures at most `max` frames of the calling thread, without those of this library, from
    /// the frame that has these registers. `None` when memory is out.
    pub fn take(from: &Registers, max: usize) -> Option<Stack> {
        Stack::take_by(|room, pages| unwind::capture(from, room, pages).frames, max)
    }

    /// Like [`Stack::take`], and notes where the first frames are, also those of this library.
    pub fn take_noting(from: &Registers, max: usize, noted: &mut Noted) -> Option<Stack> {
        Stack::take_by(
            |room, pages| unwind::capture_noting(from, room, pages, noted).frames,
            max,
        )
    }

    fn take_by(
        walk: impl FnOnce(&mut [usize], &mut [usize; 2]) -> usize,
        max: usize,
    ) -> Option<Stack> {
        let mut stack = Stack::new()?;
        let countdown = cache::countdown();
        let mut pages = countdown.map_or([0; 2], Countdown::stack_pages);
        stack.len = walk(stack.room(max), &mut pages);
        if let Some(countdown) = countdown {
            countdown.set_stack_pages(pages);
        }
        stack.drop_own();
        Some(stack)
    }

    /// Captures by the program's own function, in a thread that is not inside.
    #[cold]
    #[inline(never)]
    pub fn fill_by_hook(&mut self, max: usize) {
        self.len = hooks::backtrace(self.room(max));
        self.drop_own();
    }

    /// The part of the buffer that the walk may fill.
    fn room(&mut self, max: usize) -> &mut [usize] {
        let len = max.min(FRAMES_MAX);
        // SAFETY: the buffer has this size, and only this stack uses it.
        unsafe { core::slice::from_raw_parts_mut(self.buffer.as_ptr().cast(), len) }
    }

    /// An empty one; `None` when memory is out.
    #[inline(never)]
    pub fn new() -> Option<Stack> {
        // The length is hidden from the compiler, which would unroll the search.
        let kept = core::hint::black_box(&KEPT[..])
            .iter()
            .map(|kept| kept.swap(core::ptr::null_mut(), Ordering::Acquire));
        let buffer = match kept.filter_map(NonNull::new).next() {
            Some(buffer) => buffer,
            None => meta::take(size_of::<Buffer>())?.cast(),
        };
        Some(Stack { buffer, len: 0 })
    }

    /// Drops the innermost frames that are this library's own.
    fn drop_own(&mut self) {
        // SAFETY: the buffer is this stack's, and this many addresses are written.
        let frames = unsafe {
            core::slice::from_raw_parts_mut(self.buffer.as_ptr().cast::<usize>(), self.len)
        };
        let own = frames.iter().take_while(|&&frame| is_own(frame)).count();
        if own == 0 {
            return;
        }
        for i in own..self.len {
            // SAFETY: both are frames of this stack.
            unsafe { *frames.as_mut_ptr().add(i - own) = *frames.as_ptr().add(i) };
        }
        self.len -= own;
    }

    /// The return addresses, the innermost first.
    pub fn frames(&self) -> &[usize] {
        // SAFETY: the buffer is this stack's, and this many addresses are written.
        unsafe { core::slice::from_raw_parts(self.buffer.as_ptr().cast(), self.len) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let null = core::ptr::null_mut();
        let keep = |kept: &AtomicPtr<Buffer>| {
            kept.compare_exchange(
                null,
                self.buffer.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            )
            .is_ok()
        };
        if !core::hint::black_box(&KEPT[..]).iter().any(keep) {
            // SAFETY: taken with this size, and nothing refers to it.
            unsafe { meta::give(self.buffer.cast(), size_of::<Buffer>()) };
        }
    }
}
