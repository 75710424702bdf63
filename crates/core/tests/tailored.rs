//! Size classes tailored to a process's requests: when they appear and when not, and that every
//! block stays valid meanwhile.
//!
//! Such classes belong to the process and never disappear, so each test is a process of its own.

#[path = "model/pattern.rs"]
#[allow(dead_code, reason = "other tests want all of it")]
mod pattern;

use mallard_core::api::{self, extended, extended::Flags, threads};
use mallard_core::ctl;
use std::process::Command;
use std::sync::Mutex;
use std::{env, thread};

/// Runs the test of this name in a process of its own.
fn alone(name: &str, test: fn()) {
    const MARK: &str = "MALLARD_TEST_ALONE";
    if env::var_os(MARK).is_some() {
        return test();
    }
    let this = env::current_exe().expect("the path of this test");
    let output = Command::new(this)
        .args(["--exact", name])
        .env(MARK, "1")
        .output()
        .expect("the test binary runs");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    // If no test has this name, none fails either.
    let passed = output.status.success() && out.contains("1 passed");
    assert!(passed, "{out}{err}");
}

/// A size that wastes nearly a fifth of its class's blocks, that class, and the one tailored to the
/// size.
const ASKED: usize = 1032;
const TABLED: usize = 1280;
const CUT: usize = 1088;

fn classes() -> u32 {
    ctl::read(b"arenas.nbins").expect("a number")
}

/// Fills a block of `size` bytes.
fn fill(p: *mut u8, size: usize, id: u64) {
    // SAFETY: the block is the caller's, and as long as it was asked for.
    unsafe { pattern::fill(p, size, id) };
}

/// Asserts that the first `kept` bytes of what filled a block of `size` bytes are intact.
fn assert_kept(p: *mut u8, size: usize, kept: usize, id: u64) {
    // SAFETY: as for `fill`.
    unsafe { pattern::assert_kept(p, size, kept, id) };
}

fn usable(p: *mut u8) -> usize {
    // SAFETY: the tests only pass live blocks.
    unsafe { api::usable_size(p) }
}

/// Allocates `count` blocks, each with contents of its own.
fn blocks(count: usize, size: usize) -> Vec<*mut u8> {
    let block = |id| {
        let p = api::alloc(size);
        assert!(!p.is_null() && usable(p) >= size);
        fill(p, size, id as u64);
        p
    };
    (0..count).map(block).collect()
}

/// Frees blocks made by `blocks`, by their requested size.
fn free(blocks: Vec<*mut u8>, size: usize) {
    for (id, p) in blocks.into_iter().enumerate() {
        assert_kept(p, size, size, id as u64);
        // SAFETY: the block is the caller's, was requested with this size, and is not used again.
        unsafe { api::dealloc_sized(p, size) };
    }
}

/// Frees blocks without checking their contents.
fn free_unsized(blocks: Vec<*mut u8>) {
    for p in blocks {
        // SAFETY: the block is the caller's, and is not used again.
        unsafe { api::dealloc(p) };
    }
}

fn size_of(bin: u32) -> usize {
    ctl::read(format!("arenas.bin.{bin}.size").as_bytes()).expect("it has a size")
}

/// The number of blocks in use in the class of this size, if no cache holds any.
fn in_use(size: usize) -> usize {
    let bin = (0..classes())
        .find(|&bin| size_of(bin) == size)
        .expect("there is one");
    threads::flush_cache().expect("there is a cache");
    // SAFETY: nothing depends on older statistics.
    unsafe { ctl::write(b"epoch", 1_u64) }.expect("statistics are read again");
    let name = format!("stats.arenas.4096.bins.{bin}.curregs");
    ctl::read(name.as_bytes()).expect("a number")
}

fn all_in_use() -> usize {
    (0..classes()).map(|bin| in_use(size_of(bin))).sum()
}

const MANY: usize = 8000;

#[test]
fn a_size_that_is_asked_for_again_and_again_gets_a_class() {
    alone(
        "a_size_that_is_asked_for_again_and_again_gets_a_class",
        || {
            let before = classes();
            let all = blocks(MANY, ASKED);
            assert_eq!((usable(all[0]), usable(all[MANY - 1])), (TABLED, CUT));
            assert_eq!(classes(), before + 1);
            assert_eq!(size_of(before), CUT);
            // Longer and aligned requests use the same classes as before.
            for (size, align, expected) in
                [(CUT + 1, 1, TABLED), (1024, 1, 1024), (CUT, 256, TABLED)]
            {
                let p = api::alloc_aligned(size, align);
                assert_eq!(usable(p), expected, "{size} bytes at {align}");
                assert!(p.addr().is_multiple_of(align));
                // SAFETY: a block of this test's.
                unsafe { api::dealloc(p) };
            }
            let old = all.iter().filter(|&&p| usable(p) == TABLED).count();
            assert_eq!(in_use(CUT), MANY - old);
            assert!(in_use(TABLED) >= old, "they have not changed");
            free(all, ASKED);
            assert_eq!((in_use(CUT), in_use(TABLED)), (0, 0));
        },
    );
}

#[test]
fn the_size_that_is_asked_for_most_tells_where_a_class_is_cut() {
    alone(
        "the_size_that_is_asked_for_most_tells_where_a_class_is_cut",
        || {
            let before = classes();
            // One in forty is longer, and would also fit in less than its usual class.
            let longer = |i| if i % 40 == 7 { 1150 } else { ASKED };
            let all: Vec<_> = (0..2 * MANY).map(|i| api::alloc(longer(i))).collect();
            assert_eq!(classes(), before + 1);
            assert_eq!(size_of(before), CUT);
            free_unsized(all);
        },
    );
}

#[test]
fn older_blocks_go_back_to_their_own_class_when_they_are_freed_by_size() {
    alone(
        "older_blocks_go_back_to_their_own_class_when_they_are_freed_by_size",
        || {
            let (asked, cut) = (400, 400);
            let all = blocks(3 * MANY, asked);
            let older: Vec<_> = (all.iter().copied()).filter(|&p| usable(p) > cut).collect();
            assert!(older.len() > 100 && older.len() < MANY);
            // The newest first, so that the oldest are on top of the cache.
            let mut backwards: Vec<_> = all.into_iter().enumerate().collect();
            backwards.reverse();
            for (id, p) in backwards {
                assert_kept(p, asked, asked, id as u64);
                // SAFETY: a block of this test's, asked for with this size.
                unsafe { api::dealloc_sized(p, asked) };
            }
            let again = blocks(10, asked);
            assert!(
                !again.iter().any(|p| older.contains(p)),
                "it is handed out for the new class"
            );
            free(again, asked);
            // All return to their own slabs, which would otherwise contain foreign blocks.
            assert_eq!(all_in_use(), 0);
        },
    );
}

#[test]
fn a_block_stays_where_it_is_while_it_serves() {
    alone("a_block_stays_where_it_is_while_it_serves", || {
        let mut all = blocks(MANY, ASKED);
        let resize = |p: &mut *mut u8, size| {
            // SAFETY: a block of this test's, which has no other pointer to it.
            let moved = unsafe { api::realloc(*p, size) };
            std::mem::replace(p, moved) == moved
        };
        let (old, new) = (0, MANY - 1);
        assert!(resize(&mut all[old], TABLED), "to the end of its block");
        assert!(resize(&mut all[new], CUT), "to the end of its block");
        assert!(resize(&mut all[new], ASKED - 4));
        assert!(!resize(&mut all[new], CUT + 1), "beyond it");
        assert_eq!(usable(all[new]), TABLED);
        assert_kept(all[new], ASKED, ASKED - 4, new as u64);
        assert!(!resize(&mut all[1], 100), "to a much shorter one");
        free_unsized(all);
    });
}

#[test]
fn no_class_comes_for_sizes_that_are_spread() {
    alone("no_class_comes_for_sizes_that_are_spread", || {
        let before = classes();
        let all: Vec<_> = (0..4 * MANY)
            .map(|i| api::alloc(1025 + i * 7919 % (2048 - 1025)))
            .collect();
        assert_eq!(classes(), before);
        free_unsized(all);
    });
}

#[test]
fn no_class_comes_for_a_few_blocks() {
    alone("no_class_comes_for_a_few_blocks", || {
        let before = classes();
        for _ in 0..200 {
            free(blocks(200, ASKED), ASKED);
        }
        assert_eq!(classes(), before);
    });
}

#[test]
fn what_was_told_of_a_size_holds_from_then_on() {
    alone("what_was_told_of_a_size_holds_from_then_on", || {
        let told = extended::usable_size_for(ASKED, Flags::NONE);
        let all = blocks(2 * MANY, ASKED);
        assert!(all.iter().all(|&p| usable(p) >= told));
        free(all, ASKED);
    });
}

#[test]
fn aligned_requests_make_no_second_class_of_a_size() {
    alone("aligned_requests_make_no_second_class_of_a_size", || {
        let all = blocks(MANY, ASKED);
        let made = classes();
        let aligned: Vec<_> = (0..MANY).map(|_| api::alloc_aligned(ASKED, 32)).collect();
        assert!(aligned.iter().all(|p| p.addr().is_multiple_of(32)));
        assert_eq!(classes(), made);
        free(all, ASKED);
        free_unsized(aligned);
    });
}

#[test]
fn ten_at_most() {
    alone("ten_at_most", || {
        let before = classes();
        let sizes = [
            260, 330, 390, 520, 650, 780, 1030, 1300, 1540, 2056, 2600, 3100, 4104, 5200,
        ];
        let all: Vec<_> = sizes
            .iter()
            .map(|&size| (size, blocks(MANY, size)))
            .collect();
        assert_eq!(classes(), before + 10);
        for (size, blocks) in all {
            free(blocks, size);
        }
    });
}

#[test]
fn an_option_forbids_them() {
    alone("an_option_forbids_them", || {
        // SAFETY: this process has one thread.
        unsafe { env::set_var("MALLOC_CONF", "tailored_classes:false") };
        let before = classes();
        assert_eq!(ctl::read(b"opt.tailored_classes"), Ok(false));
        free(blocks(2 * MANY, ASKED), ASKED);
        assert_eq!(classes(), before);
    });
}

/// Threads that allocate, resize, hand over and free while classes are created.
#[test]
fn threads_see_no_difference() {
    alone("threads_see_no_difference", || {
        const SIZES: [usize; 6] = [264, 400, 520, 1032, 2100, 4368];
        let shared = Mutex::new(Vec::new());
        let work = |seed: u64| {
            let mut state = seed | 1;
            let mut next = |below: usize| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state % below as u64) as usize
            };
            let mut mine: Vec<(usize, usize, u64)> = Vec::new();
            for i in 0..60_000 {
                let size = SIZES[next(SIZES.len())] - next(8);
                let p = api::alloc(size);
                let id = seed << 32 | i;
                fill(p, size, id);
                mine.push((p.addr(), size, id));
                if mine.len() > 4000 {
                    let at = next(mine.len());
                    let one = mine.swap_remove(at);
                    let other = {
                        let mut shared = shared.lock().expect("no thread failed");
                        shared.push(one);
                        let at = next(shared.len());
                        shared.swap_remove(at)
                    };
                    let (p, size, id) = (other.0 as *mut u8, other.1, other.2);
                    assert_kept(p, size, size, id);
                    // SAFETY: the block was taken from the table, so only this thread has it.
                    unsafe {
                        match next(3) {
                            0 => api::dealloc(p),
                            1 => api::dealloc_sized(p, size),
                            _ => {
                                let p = api::realloc(p, size + 40);
                                assert_kept(p, size, size, id);
                                api::dealloc(p);
                            }
                        }
                    }
                }
            }
            mine
        };
        let left: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (1..=4)
                .map(|seed| scope.spawn(move || work(seed)))
                .collect();
            threads
                .into_iter()
                .flat_map(|t| t.join().expect("no panic"))
                .collect()
        });
        assert!(classes() > 36);
        let shared = shared.into_inner().expect("no thread failed");
        for (p, size, id) in left.into_iter().chain(shared) {
            assert_kept(p as *mut u8, size, size, id);
            // SAFETY: a block of this test's, asked for with this size.
            unsafe { api::dealloc_sized(p as *mut u8, size) };
        }
        assert_eq!(all_in_use(), 0);
    });
}

#[test]
fn zeroed_blocks_are_zero_to_their_ends_whatever_class_they_are_of() {
    alone(
        "zeroed_blocks_are_zero_to_their_ends_whatever_class_they_are_of",
        || {
            const SMALL: usize = 520;
            for asked in [SMALL, ASKED] {
                let all = blocks(MANY, asked);
                let lengths = [usable(all[0]), usable(all[MANY - 1])];
                assert!(lengths[0] > lengths[1], "{asked}: {lengths:?}");
                let dirty = |from: usize| {
                    for &p in &all[from..from + 20] {
                        // SAFETY: blocks of this test's with this usable size, freed once by their
                        // requested size.
                        unsafe {
                            p.write_bytes(0xee, usable(p));
                            api::dealloc_sized(p, asked);
                        }
                    }
                    for _ in 0..20 {
                        let p = api::alloc_zeroed(asked);
                        // SAFETY: a block of this usable size.
                        unsafe { pattern::assert_all(p, 0, usable(p), 0, "zeroed block") };
                    }
                };
                [0, MANY - 20].into_iter().for_each(dirty);
            }
        },
    );
}
