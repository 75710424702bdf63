//! Walks of real stacks are those of the C library's `backtrace`, where that is right.

use super::library::Library;
use crate::prof::unwind::cache::RuleCache;
use crate::prof::unwind::modules::Modules;
use crate::prof::unwind::modules::list::ModuleList;
use crate::prof::unwind::walk::walk_by;
use crate::prof::unwind::{End, OMITTED, Registers, Walk, capture, modules, set_cache};
use crate::testing::{not_installed, own_process, shows_memory, skipped};
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;
use std::vec;
use std::vec::Vec;

/// Frames that the tests look at.
pub const ROOM: usize = 256;

unsafe extern "C" {
    pub fn backtrace(out: *mut usize, room: i32) -> i32;
}

/// The C library's stack of the caller, whose own entry is not the same as ours.
#[inline(always)]
pub fn own_stack(out: &mut [usize]) -> usize {
    // SAFETY: the function writes at most as many addresses as there is room for.
    unsafe { backtrace(out.as_mut_ptr(), out.len() as i32) as usize }
}

/// Memory of zeros for a type that is valid so.
pub fn zeroed<T>() -> *mut u8 {
    let words = size_of::<T>() / 8 + 8;
    let room = Box::leak(vec![0_u64; words].into_boxed_slice());
    let at = room.as_mut_ptr().cast::<u8>();
    at.wrapping_add(at.align_offset(64))
}

/// The cache of all tests here.
pub fn cache() -> &'static RuleCache {
    static CACHE: OnceLock<&RuleCache> = OnceLock::new();
    CACHE.get_or_init(|| {
        // SAFETY: aligned memory of zeros that is never freed.
        unsafe { RuleCache::in_zeroed(zeroed::<RuleCache>()) }
    })
}

/// Modules from a list, as with an old C library.
pub fn listed() -> Modules {
    let modules = Modules::without_loader();
    // SAFETY: aligned memory of zeros that is never freed.
    modules.set_list(unsafe { ModuleList::in_zeroed(zeroed::<ModuleList>()) });
    assert!(modules.refresh());
    modules
}

std::thread_local! {
    /// The walks that were compared.
    static SEEN: RefCell<Vec<Walk>> = const { RefCell::new(Vec::new()) };
    static FROM_LIST: Cell<bool> = const { Cell::new(false) };
}

/// Compares the stack as it is here, walked in several ways, with that of the C library.
#[inline(never)]
extern "C" fn probe() {
    let mut ours = vec![0; 2000];
    let mut expected = vec![0; 2000];
    let count = own_stack(&mut expected);
    expected.truncate(count);
    let modules = if FROM_LIST.get() {
        listed()
    } else {
        Modules::new()
    };
    for cache in [None, Some(cache()), Some(cache())] {
        let walk = walk_by(Registers::here(), &mut ours, true, cache, &modules);
        assert_eq!(walk.end, End::Complete);
        assert_eq!(ours[..walk.frames], expected[1..]);
        SEEN.with_borrow_mut(|seen| seen.push(walk));
    }
    let walk = capture(&Registers::here(), &mut ours, &mut [0; 2]);
    assert_eq!((walk.end, walk.omitted), (End::Complete, 0));
    assert_eq!(ours[1..walk.frames], expected[1..]);
}

/// Runs a function of the library that calls `probe`; how many walks were compared.
fn compare(name: &str) -> usize {
    let Some(library) = Library::get() else {
        not_installed("c++");
        return usize::MAX;
    };
    let before = SEEN.with_borrow(Vec::len);
    library.call(name, probe);
    SEEN.with_borrow(Vec::len) - before
}

#[test]
fn stacks_of_exceptions_are_walked() {
    assert!(compare("throwing") >= 3 * 43);
}

#[test]
fn stacks_that_are_aligned_are_walked() {
    assert!(compare("realigned") >= 3);
}

#[test]
fn stacks_through_the_c_library_are_walked() {
    assert!(compare("sorting") >= 9);
}

#[test]
fn a_call_that_is_the_last_instruction_belongs_to_its_function() {
    assert!(compare("without_return") >= 3);
}

#[test]
fn modules_of_a_list_do_as_well() {
    if !shows_memory() {
        return;
    }
    FROM_LIST.set(true);
    assert!(compare("sorting") >= 9);
    assert!(compare("realigned") >= 3);
}

#[test]
fn of_a_stack_that_is_too_deep_both_ends_are_kept() {
    static ROOMS: [usize; 7] = [0, 1, 2, 3, 64, 65, 256];
    extern "C" fn probe() {
        let mut all = vec![0; 2000];
        let whole = capture(&Registers::here(), &mut all, &mut [0; 2]);
        assert_eq!((whole.end, whole.omitted), (End::Complete, 0));
        assert!(whole.frames > 1000);
        all.truncate(whole.frames);
        for room in ROOMS {
            let mut some = vec![0; room];
            let walk = capture(&Registers::here(), &mut some, &mut [0; 2]);
            assert_eq!((walk.frames, walk.end), (room, End::Complete));
            if room < 3 {
                continue;
            }
            let (first, last) = (room / 2, room - room / 2 - 1);
            assert_eq!(some[1..first], all[1..first]);
            assert_eq!(some[first], OMITTED);
            assert_eq!(some[first + 1..], all[all.len() - last..]);
            assert_eq!(walk.omitted, all.len() - first - last);
        }
    }
    match Library::get() {
        Some(library) => assert_eq!(library.call("thousand", probe), 1000),
        None => not_installed("c++"),
    }
}

#[test]
fn the_program_and_the_vdso_are_found_by_what_the_kernel_says() {
    let static_program = Modules::without_loader();
    let modules = Modules::new();
    // SAFETY: no preconditions.
    let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    let here = capture as *const () as usize;
    for at in [here, vdso] {
        if at == 0 {
            skipped("the system has no vDSO");
            continue;
        }
        let (a, b) = (static_program.find(at).unwrap(), modules.find(at).unwrap());
        assert_eq!(a.unwind, b.unwind);
        assert!(a.contains(at) && b.contains(at) && a.is_sound() && b.is_sound());
    }
    assert!(
        static_program
            .find(libc::qsort as *const () as usize)
            .is_none()
    );
    assert!(modules.find(8).is_none());
}

#[test]
fn a_thread_s_stack_is_whole() {
    std::thread::spawn(|| probe()).join().unwrap();
}

#[test]
fn a_fiber_s_stack_is_whole() {
    extern "C" fn fiber() {
        probe();
    }
    let mut stack = vec![0_u8; 1 << 18];
    // SAFETY: the contexts live until the fiber has ended, and the stack belongs to it alone.
    unsafe {
        let mut main: libc::ucontext_t = std::mem::zeroed();
        let mut other: libc::ucontext_t = std::mem::zeroed();
        assert_eq!(libc::getcontext(&mut other), 0);
        other.uc_stack.ss_sp = stack.as_mut_ptr().cast();
        other.uc_stack.ss_size = stack.len();
        other.uc_link = &mut main;
        libc::makecontext(&mut other, fiber, 0);
        assert_eq!(libc::swapcontext(&mut main, &other), 0);
    }
    assert_eq!(SEEN.with_borrow(Vec::len), 3);
}

#[test]
fn a_process_s_own_cache_and_list_are_used_once_they_are_handed_over() {
    own_process!();
    let mut out = [0; ROOM];
    let stacks = [None, Some(cache())].map(|cache| {
        if let Some(cache) = cache {
            set_cache(cache);
        }
        let walk = capture(&Registers::here(), &mut out, &mut [0; 2]);
        assert_eq!(walk.end, End::Complete);
        out[1..walk.frames].to_vec()
    });
    // The first frame of each is at another call.
    assert_eq!(stacks[0][1..], stacks[1][1..]);
    // This C library is new enough to need no list.
    assert!(!modules().needs_list() && !modules().wants_refresh() && !modules().refresh());
    let old = listed();
    assert!(old.needs_list() && !old.wants_refresh());
    assert!(old.find(8).is_none() && old.wants_refresh());
    assert!(old.refresh() && !old.wants_refresh());
}
