//! Code without tables, stacks that end where nothing is mapped, and what walks cost.

use super::arch;
use super::walks::{cache, zeroed};
use crate::prof::unwind::cache::RuleCache;
use crate::prof::unwind::modules::Modules;
use crate::prof::unwind::registers::{FP, RETURN_IS_FOURTH, SP};
use crate::prof::unwind::walk::walk_by;
use crate::prof::unwind::{End, Registers, Walk, capture};
use crate::sys::arch::{Convention, Native};
use crate::testing::own_process;
use std::cell::RefCell;
use std::time::Instant;
use std::vec;
use std::vec::Vec;

/// Bytes of a page.
const PAGE: usize = 4096;

/// Pages of memory, with one behind them that cannot be read.
pub struct Pages {
    start: usize,
    size: usize,
}

impl Pages {
    pub fn new(count: usize) -> Pages {
        Pages::near(0, count)
    }

    /// At this address if that is free, or anywhere.
    fn near(hint: usize, count: usize) -> Pages {
        let size = count * PAGE;
        let hint = std::ptr::without_provenance_mut(hint);
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        // SAFETY: a new mapping, of which the last page is taken away again.
        let start = unsafe {
            let start = libc::mmap(hint, size + PAGE, all, anonymous, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(start.add(size), PAGE, libc::PROT_NONE), 0);
            start.expose_provenance()
        };
        Pages { start, size }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        let at = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: mapped for as long as the value lives, and borrowed from it.
        unsafe { std::slice::from_raw_parts_mut(at, self.size) }
    }

    pub fn start(&self) -> usize {
        self.start
    }

    pub fn end(&self) -> usize {
        self.start + self.size
    }

    fn put(&mut self, at: usize, word: usize) {
        let from = at - self.start;
        self.bytes()[from..from + 8].copy_from_slice(&word.to_le_bytes());
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let at = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: the mapping is ours.
        unsafe { libc::munmap(at, self.size + PAGE) };
    }
}

std::thread_local! {
    static SEEN: RefCell<(Vec<usize>, Option<Walk>)> = const { RefCell::new((Vec::new(), None)) };
}

/// Keeps the walk from here.
extern "C" fn keep() {
    let mut out = vec![0; 256];
    let walk = capture(&Registers::here(), &mut out, &mut [0; 2]);
    out.truncate(walk.frames);
    SEEN.set((out, Some(walk)));
}

/// What [`keep`] has kept below code, the code's bounds, and the stack of the code's caller.
type Kept = (Vec<usize>, End, std::ops::Range<usize>, Vec<usize>);

/// Runs code that calls the function that it is passed, in a thread whose stack has no addresses of
/// code from before: a walk that has to search would find them. The C library hands the stacks of
/// threads that have ended to new ones.
fn run(code: &[u8]) -> Kept {
    std::thread::scope(|threads| {
        let run = threads.spawn(|| {
            clear_stack();
            run_here(code)
        });
        run.join().unwrap()
    })
}

/// Clears the stack below, further than code here reaches.
#[inline(never)]
fn clear_stack() {
    std::hint::black_box([0_usize; 8192]);
}

#[inline(never)]
fn run_here(code: &[u8]) -> Kept {
    let mut pages = Pages::new(1);
    pages.bytes()[..code.len()].copy_from_slice(code);
    arch::forget_code(&pages.bytes()[..code.len()]);
    let at: *const () = std::ptr::with_exposed_provenance(pages.start());
    // SAFETY: the bytes are a function of this type.
    let function = unsafe { std::mem::transmute::<*const (), extern "C" fn(extern "C" fn())>(at) };
    function(keep);
    let (frames, walk) = SEEN.take();
    keep();
    let (whole, _) = SEEN.take();
    (frames, walk.unwrap().end, pages.start()..pages.end(), whole)
}

#[test]
fn code_without_tables_is_passed_by_its_frame_pointer() {
    let (frames, end, bounds, whole) = run(arch::FRAMED);
    assert_eq!(end, End::Complete);
    // The walk from the code's caller is the same from its caller on.
    assert!(bounds.contains(&frames[1]), "{frames:x?}");
    assert_eq!(frames.len(), whole.len() + 1);
    assert_eq!(frames[3..], whole[2..]);
}

#[test]
fn code_made_at_run_time_is_passed_without_a_frame_pointer_if_its_caller_is_such_code() {
    for value in [0, 12345_u32] {
        let (code, returns) = arch::nested(value);
        let (frames, end, bounds, whole) = run(&code);
        assert_eq!(end, End::Complete);
        let expected = returns.map(|at| bounds.start + at);
        assert_eq!(frames[1..3], expected, "{frames:x?}");
        assert_eq!(frames[4..], whole[2..]);
    }
}

#[test]
fn code_without_tables_and_frame_pointer_ends_a_walk_and_harms_nobody() {
    // Such a walk may leave its stack for memory that the thread of another test unmaps.
    own_process!();
    for value in [
        0_usize,
        1,
        8,
        0x1000,
        1 << 46,
        1 << 47,
        usize::MAX,
        usize::MAX - 15,
    ] {
        let code = arch::with_frame_pointer(value);
        let (frames, end, bounds, _) = run(&code);
        assert_eq!(frames.len(), 2, "{value:#x}: {frames:x?}");
        assert!(bounds.contains(&frames[1]));
        assert_eq!(
            end,
            if value == 0 {
                End::Complete
            } else {
                End::Astray
            }
        );
    }
    for distance in (0..2048_u32).step_by(4) {
        let code = arch::with_frame_pointer_above(distance);
        let (frames, _, bounds, _) = run(&code);
        assert!(bounds.contains(&frames[1]));
    }
}

/// Pages above `low`, a multiple of 4 GiB, whose addresses look like a call with a distance: the
/// fourth byte is that of a call.
#[cfg(target_arch = "x86_64")]
fn like_a_call(low: usize, count: usize) -> Pages {
    const LIKE_A_CALL: usize = 0xe8 << 24;
    (0..256)
        .map(|i| Pages::near(low + (i << 32) + LIKE_A_CALL, count))
        .find(|pages| pages.start() >> 24 & 0xff == LIKE_A_CALL >> 24)
        .expect("one of these places is free")
}

/// A word of the stack that points to memory may look like a call. A saved frame pointer that
/// points right above it is not taken for the caller.
#[cfg(target_arch = "x86_64")]
#[test]
fn what_lies_above_a_pointer_is_no_code() {
    let mut pages = like_a_call(1 << 32, 2);
    let (rip, caller) = (pages.start() + 30, pages.start() + 9);
    // call
    pages.bytes()[4] = 0xe8;
    let stack = pages.start() + PAGE;
    let outer_frame = stack + 24;
    pages.put(stack + 8, outer_frame);
    pages.put(stack + 16, caller);
    // The outer frame has no caller.
    pages.put(outer_frame + 8, 0);
    let (walk, out) = walk_from(rip, stack, 1);
    assert_eq!(
        (walk.end, &out[..]),
        (End::Complete, &[rip + 1, caller][..])
    );
    // The return address below the saved frame pointer may lie far away, in the program.
    let program = like_a_call(1 << 44, 1);
    pages.put(stack + 16, program.start() + 9);
    let (walk, out) = walk_from(rip, stack, 1);
    assert_eq!((walk.end, &out[..]), (End::Astray, &[rip + 1][..]));
}

/// Walks from registers that are made up.
fn walk_from(rip: usize, rsp: usize, rbp: usize) -> (Walk, Vec<usize>) {
    let mut out = vec![0; 64];
    let registers = Registers::new(rip, rsp, rbp, 0);
    let walk = walk_by(registers, &mut out, false, Some(cache()), &Modules::new());
    out.truncate(walk.frames);
    (walk, out)
}

#[test]
fn where_the_stack_is_not_mapped_a_walk_ends() {
    let code = Pages::new(1);
    let mut stack = Pages::new(4);
    let (rip, end) = (code.start() + 100, stack.end());
    // The return address would be behind the last word.
    let (walk, _) = walk_from(rip, end - 64, end - 8);
    assert_eq!((walk.frames, walk.end), (1, End::Unreadable));
    // A chain of frames that leads there, over pages.
    let frames = [end - 3 * PAGE, end - 2 * PAGE - 16, end - PAGE, end - 8];
    for pair in frames.windows(2) {
        stack.put(pair[0], pair[1]);
        stack.put(pair[0] + 8, rip);
    }
    let (walk, out) = walk_from(rip, frames[0] - 8, frames[0]);
    assert_eq!((walk.frames, walk.end), (4, End::Unreadable));
    assert_eq!(out, [rip + 1, rip, rip, rip]);
    // A function with a table, entered with the stack pointer at the end.
    let function = libc::qsort as *const () as usize;
    // Where its return address would be in a register, that is not known.
    let (walk, _) = walk_from(function, end, 0);
    let expected = if RETURN_IS_FOURTH {
        End::Unknown
    } else {
        End::Unreadable
    };
    assert_eq!((walk.frames, walk.end), (1, expected));
    // One that lies down, and one that leads to itself.
    for to in [frames[1] - 64, frames[1]] {
        stack.put(frames[1], to);
        assert_eq!(walk_from(rip, frames[0] - 8, frames[0]).0.end, End::Astray);
    }
    // No code, not aligned, nothing at all.
    stack.put(frames[0] + 8, 0x1234);
    assert_eq!(walk_from(rip, frames[0] - 8, frames[0]).0.end, End::Astray);
    assert_eq!(
        walk_from(rip, frames[0] - 8, frames[0] + 1).0.end,
        End::Astray
    );
    assert_eq!(walk_from(usize::MAX, 0, 0).0.end, End::Astray);
    assert_eq!(walk_from(0, 0, 8).0.frames, 1);
    for rsp in [0, 8, usize::MAX - 7, usize::MAX - 15, 1 << 63] {
        assert_eq!(walk_from(function, rsp, 0).0.frames, 1);
        assert_eq!(walk_from(rip, rsp, rsp.wrapping_add(8)).0.frames, 1);
    }
}

#[test]
fn a_frame_of_a_signal_is_known_by_its_code_too() {
    let mut code = Pages::new(1);
    let returns = Native::RETURN_FROM_SIGNAL;
    code.bytes()[..returns.len()].copy_from_slice(returns);
    let mut stack = Pages::new(2);
    let at = stack.start() + 64;
    let interrupted = code.start() + 500;
    let context = at + Native::CONTEXT_AT;
    let place = |register| context + Native::saved_at(register).unwrap();
    stack.put(context + Native::PC_SAVED_AT, interrupted);
    stack.put(place(SP), stack.end() - 64);
    stack.put(place(FP), 0);
    let (walk, out) = walk_from(code.start(), at, 3);
    assert_eq!((walk.frames, walk.end), (2, End::Complete));
    assert_eq!(out[1], interrupted + 1);
}

/// How far down the stack a walk reaches, with a cache that has all rules and without one.
#[inline(never)]
fn reach(cache: Option<&RuleCache>) -> usize {
    const DEPTH: usize = 2048;
    const MARK: u64 = 0x6d61_6c6c_6172_6421;
    #[inline(never)]
    fn paint() -> usize {
        let mut words = [0; DEPTH];
        for word in &mut words {
            // SAFETY: the place is a word of this function's.
            unsafe { std::ptr::from_mut(word).write_volatile(MARK) };
        }
        std::hint::black_box(&words).as_ptr().expose_provenance()
    }
    #[inline(never)]
    fn lowest(from: usize) -> usize {
        let at: *const u64 = std::ptr::with_exposed_provenance(from);
        // SAFETY: memory of this thread's stack, below all frames; any value will do.
        let is_painted = |i: &usize| unsafe { at.add(*i).read_volatile() } == MARK;
        from + (0..DEPTH).take_while(is_painted).count() * 8
    }
    #[inline(never)]
    fn walk_here(out: &mut [usize], cache: Option<&RuleCache>, modules: &Modules) -> Walk {
        walk_by(Registers::here(), out, true, cache, modules)
    }
    let (mut out, modules) = ([0; 256], Modules::new());
    let from = paint();
    let walk = walk_here(&mut out, cache, &modules);
    let lowest = lowest(from);
    assert_eq!(walk.end, End::Complete);
    // The caller's stack pointer, as at the call.
    Registers::here().sp - lowest
}

/// The measure is that of an optimised build: others keep every value on the stack.
#[test]
fn a_walk_takes_little_of_the_stack() {
    // SAFETY: aligned memory of zeros that is never freed.
    let cache = unsafe { RuleCache::in_zeroed(zeroed::<RuleCache>()) };
    // Through a pointer, so that all calls are the same one: the last walk with the cache meets no
    // address that the others have not met.
    let reach: fn(Option<&RuleCache>) -> usize = std::hint::black_box(reach);
    let mut found = Vec::new();
    for cache in std::hint::black_box(vec![Some(cache), Some(cache), Some(cache), None]) {
        found.push(reach(cache));
    }
    let [cold, _, warm, without] = found[..] else {
        panic!("four walks");
    };
    std::eprintln!("bytes of stack: {cold} cold, {warm} warm, {without} without a cache");
    if cfg!(not(debug_assertions)) {
        assert!(warm <= 512 && cold.max(without) <= 1024);
    }
}

/// Prints what a frame costs: `cargo test --release -p mallard-core --lib cost_of -- --ignored
/// --nocapture`.
#[test]
#[ignore = "prints a measurement"]
fn cost_of_a_frame() {
    #[inline(never)]
    fn dive(depth: usize, then: &mut dyn FnMut()) -> usize {
        if depth == 0 {
            then();
            return 0;
        }
        std::hint::black_box(dive(depth - 1, then)) + 1
    }
    const ROUNDS: usize = 5_000;
    let modules = Modules::new();
    let mut out = [0; 256];
    let mut measure = |depth, cache: Option<&RuleCache>, rounds: usize| {
        let mut result = (f64::MAX, 0);
        dive(depth, &mut || {
            // The best of a few: other programs run meanwhile.
            for _ in 0..20 {
                let start = Instant::now();
                for _ in 0..rounds {
                    let walk = walk_by(Registers::here(), &mut out, true, cache, &modules);
                    result.1 = std::hint::black_box(walk).frames;
                }
                let time = start.elapsed().as_secs_f64() * 1e9 / rounds as f64;
                result.0 = time.min(result.0);
            }
        });
        result
    };
    let (short, few) = measure(0, Some(cache()), ROUNDS);
    let (long, many) = measure(100, Some(cache()), ROUNDS);
    std::eprintln!("{few} frames {short:.0} ns, {many} frames {long:.0} ns, cached");
    std::eprintln!(
        "{:.1} ns for one more frame",
        (long - short) / (many - few) as f64
    );
    let (cold, frames) = measure(100, None, ROUNDS / 100);
    std::eprintln!("{:.0} ns a frame without a cache", cold / frames as f64);
}
