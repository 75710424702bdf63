//! The scenarios: what a program does while the system fails.

use super::world::{World, kept};
use crate::api::extended::{self, Flags};
use crate::api::{self, arenas, guards, profile, threads};
use crate::heap::Contents;
use crate::heap::hooks::{DEFAULT, ExtentHooks};
use crate::prof::dump::Sink;
use crate::stats;
use crate::sys::faults;
use std::ffi::CString;
use std::vec::Vec;

pub struct Scenario {
    pub name: &'static str,
    pub conf: &'static str,
    pub run: fn(&mut World),
    /// Bytes of records by which runs differ anyway.
    pub slack: usize,
}

const fn scenario(name: &'static str, conf: &'static str, run: fn(&mut World)) -> Scenario {
    Scenario {
        name,
        conf,
        run,
        slack: 0,
    }
}

/// A scenario with several threads, which do not meet in the same way twice.
const fn threaded(name: &'static str, conf: &'static str, run: fn(&mut World)) -> Scenario {
    Scenario {
        slack: 64 << 10,
        ..scenario(name, conf, run)
    }
}

const MIB: usize = 1 << 20;

pub const SCENARIOS: &[Scenario] = &[
    scenario("start", "", start),
    threaded(
        "start_with_options",
        "narenas:4,percpu_arena:percpu,background_thread:true,export_stats:true,reserve:64m,\
         metadata_thp:always,thp:always,prof:true,prof_seed:1,dirty_max:16m",
        start,
    ),
    scenario("fill", "", fill),
    scenario("without_caches", "tcache:false,zero:true", fill),
    scenario("runs", "", runs),
    scenario("large", "", large),
    scenario("resize", "", resize),
    scenario("purge", "dirty_decay_ms:0,muzzy_decay_ms:0", purge),
    scenario("trimmed", "retain:false,dirty_decay_ms:1000", purge),
    scenario("hooks", "", with_hooks),
    threaded("threads", "", with_threads),
    threaded("forks", "", forks),
    scenario("tailored", "", tailored),
    scenario(
        "sampled",
        "prof:true,prof_seed:1,lg_prof_sample:12",
        sampled,
    ),
    scenario(
        "guards",
        "guard_sample:4096,guard_rate:0,prof_seed:1",
        guarded,
    ),
    scenario("page", "export_stats:true", page),
    scenario("arenas", "", manual_arenas),
    scenario("caches", "", manual_caches),
    threaded("background", "background_thread:true", background),
];

/// The first calls of a process.
fn start(world: &mut World) {
    for size in [1, 0, 48, 500, 20_000, 300_000] {
        world.alloc(size);
    }
    world.free_but(0);
    world.alloc(48);
}

/// Caches that are filled, grow and are flushed.
fn fill(world: &mut World) {
    for round in 0..3 {
        for size in [16, 40, 160, 1024, 5000, 14_336] {
            for _ in 0..(400_000 / (size + 400)) {
                world.alloc(size);
            }
        }
        for _ in 0..20 {
            let size = 1 + world.below(30_000);
            world.zeroed(size);
        }
        world.free_but(3 - round);
        if round == 1 {
            kept("trim", api::trim);
        }
    }
}

/// Runs of pages, of which caches keep some.
fn runs(world: &mut World) {
    for round in 0..40 {
        let size = (16 << (round % 7)) * 1024 + 100 * round;
        world.alloc(size);
        if round % 5 == 0 {
            world.zeroed(size);
            world.aligned(size, 64 << (round % 12));
        }
        if round % 3 == 0 {
            let number = world.below(world.blocks.len().max(1));
            world.free(number);
        }
    }
    world.free_but(4);
}

/// Large blocks, some with a mapping of their own.
fn large(world: &mut World) {
    for size in [3 * MIB, 140 * MIB, 5 * MIB, 600 * MIB, 20 * MIB] {
        world.alloc(size);
    }
    for size in [MIB, 4 * MIB, 150 * MIB] {
        world.zeroed(size);
    }
    world.aligned(100, 256 * MIB);
    world.aligned(9 * MIB, 4 * MIB);
    for number in 0..world.blocks.len().min(4) {
        let size = world.blocks[number].size;
        world.resize(number, size * 3 / 2);
        world.resize(number, size / 2);
    }
    world.free_but(2);
    world.zeroed(130 * MIB);
    // What was freed lately serves again.
    world.free_but(0);
    world.alloc(140 * MIB);
}

/// Blocks that grow by moving their pages, with neighbours in their way.
fn resize(world: &mut World) {
    let others = 6;
    for _ in 0..others {
        world.alloc(MIB / 2);
    }
    let mut size = 10;
    world.alloc(size);
    while size < 40 * MIB {
        size *= 2;
        let last = world.blocks.len().saturating_sub(1);
        world.resize(last, size);
        if size > 100_000 {
            world.alloc(size / 10);
            let last = world.blocks.len().saturating_sub(1);
            if last > 0 {
                world.blocks.swap(last - 1, last);
            }
        }
    }
    for number in 0..world.blocks.len() {
        let size = world.blocks[number].size;
        world.resize(number, size + 70_000);
        world.resize(number, size / 3);
    }
    for number in 0..others.min(world.blocks.len()) {
        let size = world.blocks[number].size;
        // SAFETY: the block is ours.
        kept("a resize in place", || unsafe {
            extended::resize_in_place(world.blocks[number].at, size, 4096, Flags::NONE)
        });
    }
}

/// Memory that goes back, and is taken again.
fn purge(world: &mut World) {
    for round in 0..4 {
        for size in [100, 3000, 40_000, 700_000, 3 * MIB] {
            for _ in 0..8 {
                world.alloc(size);
            }
        }
        world.free_but(5);
        if round == 1 {
            kept("decay times", || api::set_decay(500, 500));
            _ = kept("decay", || arenas::decay(arenas::ALL));
        }
        if round == 2 {
            kept("trim", api::trim);
            _ = kept("purge", || arenas::purge(arenas::ALL));
        }
    }
}

/// An arena over the system's calls as hooks, which fail as these do.
fn with_hooks(world: &mut World) {
    // A copy: the default ones would stand for our own memory.
    static mut HOOKS: ExtentHooks = DEFAULT;
    // SAFETY: the table stays, and nothing writes it.
    let made = kept("a new arena", || unsafe {
        arenas::create_with(&raw mut HOOKS)
    });
    let Ok(arena) = made else {
        assert_eq!(made, Err(libc::EAGAIN));
        return;
    };
    in_arena(world, arena);
    kept("purge", || arenas::purge(arena)).expect("the arena is there");
    in_arena(world, arena);
    // SAFETY: all its blocks are freed.
    kept("the end of an arena", || unsafe { arenas::destroy(arena) }).expect("nobody uses it");
}

/// Blocks of an arena, all freed at the end.
fn in_arena(world: &mut World, arena: u32) {
    let before = world.blocks.len();
    for size in [
        1,
        100,
        1024,
        14_336,
        20_000,
        262_144,
        300_000,
        5 * MIB,
        129 * MIB,
    ] {
        let aligns: &[usize] = if size > 100 * MIB { &[1] } else { &[1, 4096] };
        for &align in aligns {
            world.take(size, || arenas::alloc_in(arena, size, align, Contents::Any));
        }
    }
    while world.blocks.len() > before {
        let last = world.blocks.len() - 1;
        // SAFETY: the block is ours, and not used any more.
        world.free_block(last, |block| unsafe { api::dealloc_direct(block.at) });
    }
}

/// Threads that begin and end, and free each other's blocks.
fn with_threads(world: &mut World) {
    for round in 0..3 {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let mut mine = world.other();
                mine.blocks = world.blocks.split_off(world.blocks.len() * 3 / 4);
                std::thread::spawn(move || {
                    for size in [24, 100, 3000, 40_000, 400_000] {
                        (0..30).for_each(|_| _ = mine.alloc(size));
                    }
                    mine.free_but(2);
                    if round == 1 {
                        kept("idle", threads::idle);
                    }
                    mine
                })
            })
            .collect();
        for thread in threads {
            let theirs = thread.join();
            let theirs = theirs.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            world.blocks.extend(theirs.blocks);
        }
    }
}

/// Children of forks, beside other threads, which allocate, free, and fork again.
fn forks(world: &mut World) {
    for _ in 0..50 {
        world.alloc(200);
    }
    kept("the handlers", api::expect_forks);
    let mut other = world.other();
    let thread = std::thread::spawn(move || {
        for _ in 0..200 {
            other.alloc(2000);
        }
        other
    });
    in_child(world, |world| {
        world.alloc(MIB);
        in_child(world, |world| _ = world.alloc(30_000));
        world.free_but(2);
    });
    let theirs = thread.join();
    let theirs = theirs.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    world.blocks.extend(theirs.blocks);
    in_child(world, |world| world.free_but(0));
}

/// Runs a part in the child of a fork, which must end well.
fn in_child(world: &mut World, part: fn(&mut World)) {
    // SAFETY: the child runs on with this thread alone.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process");
    if child == 0 {
        let part = || part(world);
        let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(part));
        let failed = end.is_err();
        if let Err(panic) = end {
            let text = panic.downcast_ref::<std::string::String>();
            std::eprintln!("the child of a fork: {text:?}");
        }
        // SAFETY: ends this process.
        unsafe { libc::_exit(i32::from(failed)) }
    }
    let mut status = 0;
    // SAFETY: the child is this process's.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child of a fork");
}

/// Many blocks of sizes for which classes are cut.
fn tailored(world: &mut World) {
    for size in [1032, 2100, 4112] {
        for _ in 0..700 {
            world.alloc(size);
        }
    }
    world.free_but(3);
    for _ in 0..300 {
        world.zeroed(1032);
    }
}

/// Where a profile goes.
struct Nowhere(usize);

impl Sink for Nowhere {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

/// Samples, and profiles of them.
fn sampled(world: &mut World) {
    for size in [100, 3000, 20_000, 2 * MIB] {
        (0..40).for_each(|_| _ = world.alloc(size));
    }
    world.free_but(2);
    let path = std::env::temp_dir().join(std::format!("mallard-fault-{}", std::process::id()));
    let name = CString::new(path.to_str().expect("text")).expect("no zeros");
    let done = kept("a profile", || profile::dump(Some(&name)));
    // To remove a part may fail, too.
    let stays = faults::failed_kinds() & faults::Kind::Write.bit() != 0;
    assert!(
        done.is_ok() == path.exists() || stays,
        "a part of a profile, or none: {done:?}"
    );
    _ = std::fs::remove_file(&path);
    for pprof in [false, true] {
        let mut out = Nowhere(0);
        let done = kept("a profile that is passed on", || {
            profile::pass(pprof, &mut out)
        });
        assert!(done.is_ok_and(|()| out.0 > 0) || done == Err(libc::ENOMEM));
    }
    kept("a snapshot", profile::snapshot);
    kept("a reset", || profile::reset(12));
}

/// Blocks of which many are guarded, in a process and its child, and guards off and on.
fn guarded(world: &mut World) {
    let is_on = kept("guards", || guards::set_active(true));
    for size in [0, 1, 100, 3000, 4096, 20_000] {
        (0..8).for_each(|_| _ = world.alloc(size));
        (0..2).for_each(|_| _ = world.aligned(size + 1, 64));
    }
    let blocks = guards::totals().blocks;
    // A thread without a cache has none.
    let may_miss = !is_on || faults::counts().1 > 0;
    assert!(may_miss || blocks > 0, "{blocks} are guarded");
    for number in (0..world.blocks.len()).step_by(3) {
        let size = world.blocks[number].size;
        world.resize(number, size + 500);
    }
    in_child(world, |world| {
        (0..10).for_each(|_| _ = world.alloc(2000));
        world.free_but(0);
    });
    world.free_but(3);
    assert!(kept("no guards", || guards::set_active(false)) || faults::counts().1 > 0);
    (0..10).for_each(|_| _ = world.zeroed(3000));
    world.free_but(2);
    assert_eq!(guards::totals().findings, 0);
}

/// The page of statistics, in a process and its child.
fn page(world: &mut World) {
    (0..100).for_each(|_| _ = world.alloc(3000));
    kept("the page", stats::page::publish);
    in_child(world, |world| {
        world.alloc(20_000);
        kept("the child's page", stats::page::publish);
        world.free_but(0);
    });
    kept("the page", stats::page::publish);
}

/// Arenas that are made, reset and destroyed.
fn manual_arenas(world: &mut World) {
    for round in 0..3 {
        let made = kept("a new arena", arenas::create);
        let Ok(arena) = made else {
            assert_eq!(made, Err(libc::EAGAIN));
            continue;
        };
        in_arena(world, arena);
        if round == 1 {
            for size in [100, 30_000, 3 * MIB] {
                super::world::checked(size, || arenas::alloc_in(arena, size, 1, Contents::Zeros));
            }
            // SAFETY: nothing uses the blocks.
            kept("a reset", || unsafe { arenas::reset(arena) }).expect("nobody uses it");
            in_arena(world, arena);
        }
        _ = kept("decay times", || {
            arenas::set_decay_times(arena, Some(0), None)
        });
        let own = threads::arena();
        if threads::set_arena(arena).is_ok() {
            (0..50).for_each(|_| _ = world.alloc(700));
            world.free_but(0);
            _ = threads::flush_cache();
            // The first, if there was no memory to tell.
            let own = own.unwrap_or(0);
            if let Err(error) = threads::set_arena(own) {
                assert_eq!(error, libc::EAGAIN);
                continue;
            }
        }
        // SAFETY: all its blocks are freed.
        kept("the end of an arena", || unsafe { arenas::destroy(arena) }).expect("nobody uses it");
    }
}

/// Caches of the program's own, and calls with flags.
fn manual_caches(world: &mut World) {
    let made = threads::create_cache();
    let Ok(cache) = made else {
        return assert_eq!(made, Err(libc::EFAULT));
    };
    let flags = Flags::NONE.cache(cache);
    for size in [16, 500, 9000, 50_000, MIB] {
        for flags in [flags, flags.zero(), Flags::NONE.no_cache()] {
            (0..20).for_each(|_| _ = world.take(size, || extended::alloc_with(size, flags)));
        }
    }
    while let Some(last) = world.blocks.len().checked_sub(1) {
        // SAFETY: the block is ours, and not used any more.
        world.free_block(last, |block| unsafe {
            extended::dealloc_with(block.at, flags)
        });
    }
    kept("a flush", || threads::flush_manual_cache(cache)).expect("there is the cache");
    kept("the end of a cache", || threads::destroy_cache(cache)).expect("there is the cache");
    _ = threads::counts();
    _ = threads::enable_cache(false);
    (0..20).for_each(|_| _ = world.alloc(900));
    _ = threads::enable_cache(true);
}

/// The background thread.
fn background(world: &mut World) {
    (0..40).for_each(|_| _ = world.alloc(100_000));
    _ = kept("the thread", || api::set_background_thread(true));
    world.free_but(0);
    world.alloc(MIB);
    std::thread::sleep(std::time::Duration::from_millis(5));
    in_child(world, |world| {
        world.alloc(20_000);
        world.free_but(0);
    });
    kept("the thread's end", || api::set_background_thread(false));
}
