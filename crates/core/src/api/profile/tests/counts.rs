//! What samples are counted in, and what a reset leaves of it: their size classes, and the figures
//! of call stacks.

use super::{live, start};
use crate::api::{self, alloc, dealloc, profile, usable_size};
use crate::class::{CLASSES, Class};
use crate::prof::{by_class, reset, samples, set_room, sites, totals};
use crate::sys::lock::RawLock;
use crate::testing::own_process;
use std::string::String;
use std::vec;
use std::vec::Vec;

/// Counts samples by class from now on.
fn start_with_classes() {
    start(0, 1);
    by_class::begin();
}

/// The classes with samples in use, and what they have: bytes, and blocks.
fn classes_in_use() -> Vec<(Class, [u64; 2])> {
    let of = |class| Some((class, by_class::read(class, by_class::Span::Live)?));
    let all = (1..=CLASSES).filter_map(|i| of(Class(i as u8)));
    all.filter(|(_, sums)| *sums != [0, 0]).collect()
}

#[test]
fn a_block_that_is_resized_counts_in_its_new_class() {
    own_process!();
    start_with_classes();
    let mut p = alloc(16 << 20);
    for size in [20 << 20, 16 << 20, 9 << 20, 300_000, 3 << 20] {
        // SAFETY: the block is in use, and the old address is not used again.
        p = unsafe { api::realloc(p, size) };
        assert!(!p.is_null());
        // SAFETY: the block is in use.
        let class = Class::of(unsafe { usable_size(p) });
        assert_eq!(classes_in_use(), [(class, [size as u64, 1])], "{size}");
    }
    // SAFETY: the block is in use, and not used again.
    unsafe { dealloc(p) };
    assert_eq!((classes_in_use(), live()), (vec![], (0, 0)));
}

#[test]
fn a_block_that_cannot_be_resized_counts_once() {
    use crate::api::extended::{Flags, resize_in_place};
    own_process!();
    start_with_classes();
    let p = alloc(16 << 20);
    let before = totals();
    // SAFETY: the block is in use.
    let bytes = unsafe { resize_in_place(p, 1 << 46, 0, Flags::NONE) };
    assert!(bytes < 1 << 46);
    let after = totals();
    assert_eq!(after.ever_bytes, before.ever_bytes);
    assert_eq!(after.live_bytes, before.live_bytes);
    assert_eq!(classes_in_use().len(), 1);
    // SAFETY: the block is in use, and not used again.
    unsafe { dealloc(p) };
    assert_eq!((classes_in_use(), live()), (vec![], (0, 0)));
}

/// Runs `work` in another thread, until it waits for this lock, which this one holds.
fn held_up<T: Send>(
    lock: &RawLock,
    work: impl FnOnce() -> T + Send,
    meanwhile: impl FnOnce(),
) -> T {
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        while !lock.is_waited_for() {
            std::thread::yield_now();
        }
        meanwhile();
        lock.unlock();
        working.join().expect("it gets the lock")
    })
}

#[test]
fn a_sample_that_a_reset_comes_upon_is_forgotten() {
    own_process!();
    start(0, 1);
    // The thread has its stack, and waits to enter its sample.
    samples::lock().lock();
    let reset_by_another = || {
        std::thread::scope(|scope| {
            scope.spawn(|| reset(0));
        });
    };
    let block = held_up(samples::lock(), || alloc(100_000).addr(), reset_by_another);
    assert_eq!((samples::count(), live()), (1, (0, 0)));
    // SAFETY: the block is in use, and not used again.
    unsafe { dealloc(block as *mut u8) };
    assert_eq!((samples::count(), live()), (0, (0, 0)));
}

#[test]
fn a_resized_block_that_a_reset_comes_upon_is_forgotten() {
    own_process!();
    start(0, 1);
    let block = alloc(16 << 20).addr();
    // What a reset does under the lock, at the last moment before the other thread has it.
    let table = sites::table();
    let forget = || {
        samples::forget_all();
        let mut table = table;
        table.reset();
        core::mem::forget(table);
    };
    // SAFETY: the block is in use; it shrinks in place.
    let shrink = || unsafe { api::realloc(block as *mut u8, 9 << 20).addr() };
    assert_eq!(held_up(sites::lock(), shrink, forget), block);
    let totals = totals();
    assert_eq!((totals.live_bytes, totals.peak_bytes), (0, 0));
    // SAFETY: the block is in use, and not used again.
    unsafe { dealloc(block as *mut u8) };
    assert_eq!(live(), (0, 0));
}

/// What `work` writes on standard error.
fn said_by(work: impl FnOnce()) -> String {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    let (mut read, mut write) = std::io::pipe().expect("a pipe");
    // SAFETY: duplicates descriptors that are open.
    let kept = unsafe { libc::dup(2) };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::dup2(write.as_raw_fd(), 2) }, 2);
    work();
    write.write_all(b"end").expect("there is room");
    drop(write);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::dup2(kept, 2) }, 2);
    let mut text = String::new();
    read.read_to_string(&mut text).expect("text");
    text
}

#[test]
fn stacks_without_room_count_together_and_a_line_says_so_once() {
    own_process!();
    // The first call of the interface applies the options.
    profile::lg_sample();
    start(0, 1);
    set_room(128, 0);
    let mut blocks = Vec::with_capacity(3);
    let said = said_by(|| blocks.extend([100, 200, 5000].map(alloc)));
    assert!(
        said.starts_with("mallard: prof_max_memory is full: ") && said.ends_with("\nend"),
        "{said}"
    );
    assert_eq!(said.matches("mallard: ").count(), 1, "{said}");
    assert_eq!((totals().more, totals().lost), (3, 0));
    let mut shared = 0;
    sites::each(&mut |site, figures| {
        if site.is_of_more() {
            shared += figures.live.blocks();
        }
    });
    assert_eq!(shared, 3);
    reset(0);
    assert_eq!(totals().more, 0);
    // SAFETY: the blocks are in use, and not used again.
    blocks.into_iter().for_each(|p| unsafe { dealloc(p) });
    assert_eq!(live(), (0, 0));
}

struct Bytes(Vec<u8>);

impl profile::Sink for Bytes {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }
}

/// Whether pprof's form of the profile now has the comment that it knows no single blocks.
fn is_by_stack_alone() -> bool {
    // A part of its own in the stream, with its length and that inverted: field 13, string 17.
    const COMMENT: [u8; 7] = [0, 2, 0, !2, !0, 13 << 3, 17];
    let mut out = Bytes(Vec::new());
    profile::pass(true, &mut out).expect("there is memory");
    out.0.windows(COMMENT.len()).any(|part| part == COMMENT)
}

#[test]
fn a_profile_of_very_many_samples_says_that_it_has_no_single_blocks() {
    own_process!();
    profile::lg_sample();
    start(0, 1);
    let blocks: Vec<_> = (0..190_000).map(|_| alloc(16)).collect();
    assert!(is_by_stack_alone());
    let (few, rest) = blocks.split_at(100);
    // SAFETY: the blocks are in use, and not used again.
    rest.iter().for_each(|&p| unsafe { dealloc(p) });
    assert!(!is_by_stack_alone());
    // SAFETY: as above.
    few.iter().for_each(|&p| unsafe { dealloc(p) });
}
