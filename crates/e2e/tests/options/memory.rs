//! Options on where memory comes from and how it is returned.

use std::path::Path;

use mallard_e2e::target;
use mallard_testing::skipped;

use super::common::run_optioned;
use super::{on_each, run_advised};

#[test]
fn decay_times_of_nothing_and_never() {
    on_each(|library| {
        let run = |conf| {
            run_optioned(library, &[("MALLOC_CONF", conf)], "freed_resident").expect_success()
        };
        assert_eq!(run("dirty_decay_ms:0,muzzy_decay_ms:0"), "returned\n");
        assert_eq!(run("dirty_decay_ms:-1"), "kept\n");
    });
}

#[test]
fn large_blocks_are_as_long_as_their_class_or_as_whole_pages() {
    on_each(|library| {
        let run = |conf| run_optioned(library, &[("MALLOC_CONF", conf)], "usable").expect_success();
        assert_eq!(run(""), "229376 327680 3670016 3670016 \n");
        assert_eq!(
            run("disable_large_size_classes:true"),
            "229376 266240 3149824 3649536 \n"
        );
    });
}

#[test]
fn calloc_has_the_kernel_clear_large_blocks_where_that_is_asked_for() {
    on_each(|library| {
        // The block's memory stays dirty when it is freed, and is reused.
        let run = |conf: &str| {
            let conf = format!("dirty_decay_ms:-1,{conf}");
            run_optioned(library, &[("MALLOC_CONF", &conf)], "calloc_resident").expect_success()
        };
        assert_eq!(run("tcache:true"), "filled\n");
        assert_eq!(run("calloc_madvise_threshold:1m"), "cleared\n");
        assert_eq!(run("calloc_madvise_threshold:100m"), "filled\n");
    });
}

#[test]
fn oversize_requests_get_an_arena_whose_memory_goes_back_at_once() {
    on_each(|library| {
        for (conf, answer) in [
            ("narenas:1", "together kept\n"),
            ("oversize_threshold:2m", "apart returned\n"),
            ("oversize_threshold:0", "together kept\n"),
            ("oversize_threshold:100m", "together kept\n"),
            ("oversize_threshold:1", "apart returned\n"),
            ("oversize_threshold:2m,dirty_decay_ms:-1", "apart kept\n"),
            (
                "oversize_threshold:2m,background_thread:true",
                "apart kept\n",
            ),
        ] {
            let shown =
                run_optioned(library, &[("MALLOC_CONF", conf)], "oversize").expect_success();
            assert_eq!(shown, answer, "with {conf}");
        }
    });
}

/// Whether the kernel has huge pages, and shows where; says that the test is skipped if not.
fn has_huge_pages() -> bool {
    if target().lacks_exec("the emulator shows its own mappings") {
        return false;
    }
    let has = Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    if !has {
        skipped("the kernel has no huge pages");
    }
    has
}

#[test]
fn metadata_lies_on_huge_pages_where_that_is_asked_for() {
    let has_huge_pages = has_huge_pages();
    on_each(|library| {
        let run = |conf: &str| {
            let conf = format!("thp:never,metadata_thp:{conf}");
            run_optioned(library, &[("MALLOC_CONF", &conf)], "huge_metadata").expect_success()
        };
        assert_eq!(run("disabled"), "not asked\n");
        assert_eq!(run("auto"), "not asked\n", "there is little of it");
        if has_huge_pages {
            assert_eq!(run("always"), "asked\n");
        }
    });
}

#[test]
fn memory_given_back_is_zero_also_where_the_system_does_not_clear_unless_trusted() {
    on_each(|library| {
        assert_eq!(run_advised(library, "thp:never", "cleared"), "zero\n");
        let batched = "process_madvise_max_batch:8";
        assert_eq!(run_advised(library, batched, "cleared"), "zero\n");
        assert_eq!(
            run_advised(library, "trust_madvise:true", "cleared"),
            "old contents\n"
        );
    });
}

#[test]
fn several_ranges_go_back_in_one_call_where_the_kernel_can() {
    on_each(|library| {
        let run = |conf: &str| {
            let conf = format!("dirty_decay_ms:-1,{conf}");
            let shown = run_advised(library, &conf, "calls");
            let mut words = shown.split_whitespace();
            let mut number = || -> u32 {
                words
                    .next()
                    .and_then(|word| word.parse().ok())
                    .expect("a number")
            };
            (number(), number(), shown.trim().ends_with("can"))
        };
        let (single, together, _) = run("process_madvise_max_batch:0");
        assert!(single > 500 && together == 0, "{single}, {together}");
        let (batched, together, can) = run("process_madvise_max_batch:1024");
        if can {
            assert!(batched < 10, "{batched} calls beside the batches");
            assert!((10..single / 16).contains(&together), "{together} batches");
        } else {
            assert!(batched >= single, "{batched} and {single}");
        }
    });
}

#[test]
fn thp_says_where_huge_pages_are_asked_for() {
    if !has_huge_pages() {
        return;
    }
    on_each(|library| {
        for (conf, asked) in [
            ("thp:auto", "nh hg\n"),
            ("thp:default", "-- --\n"),
            ("thp:always", "hg hg\n"),
            ("thp:never", "nh nh\n"),
        ] {
            let shown =
                run_optioned(library, &[("MALLOC_CONF", conf)], "huge_pages").expect_success();
            assert_eq!(shown, asked, "with {conf}");
        }
    });
}

/// Checks how much resident memory a program of small pages has ahead of its blocks: little at
/// first and then `later`, if the kernel can populate a range.
fn memory_ahead_is(part: &str, later: &str) {
    if target().lacks_exec("the emulator does not fill pages on request") {
        return;
    }
    on_each(|library| {
        let shown = run_optioned(library, &[("MALLOC_CONF", "thp:never")], part).expect_success();
        if shown == "little cannot\n" {
            return skipped("the kernel does not fill pages on request");
        }
        assert_eq!(shown, format!("little {later}\n"));
    });
}

/// A class that has filled several slabs populates the next ones slab by slab instead of page by
/// page. Its first slabs may never be filled.
#[test]
fn small_pages_of_slabs_come_together_once_their_class_grows() {
    memory_ahead_is("ahead", "much");
}

/// Populating a range blocks other threads from mapping memory, such as a new thread's stack.
#[test]
fn small_pages_of_slabs_come_one_by_one_where_there_are_threads() {
    memory_ahead_is("ahead_of_threads", "little");
}

/// In a process that locks its memory, writable memory is resident, so the allocator makes little
/// of it writable in advance.
#[test]
fn a_process_that_locks_its_memory_holds_little_more_than_it_uses() {
    if target().lacks_exec("the emulator's own memory is locked, too") {
        return;
    }
    on_each(|library| {
        let shown = run_optioned(library, &[], "locked").expect_success();
        assert!(shown == "by steps\n" || shown == "cannot\n", "{shown}");
    });
}

#[test]
fn reserve_is_the_size_of_the_reservation() {
    on_each(|library| {
        let mib = |conf: &str| -> usize {
            let shown = run_optioned(library, &[("MALLOC_CONF", conf)], "addresses");
            let shown = shown.expect_success();
            shown.trim().parse().expect("a number")
        };
        let (small, large) = (mib("reserve:64m"), mib("reserve:4g"));
        assert!((64..1024).contains(&small), "{small} MiB");
        assert!((4096..6144).contains(&large), "{large} MiB");
    });
}

#[test]
fn retain_keeps_addresses_usable_when_their_memory_goes_back() {
    on_each(|library| {
        let run =
            |conf| run_optioned(library, &[("MALLOC_CONF", conf)], "retained").expect_success();
        assert_eq!(run("retain:true"), "retained\n");
        assert_eq!(run("retain:false"), "given up\n");
    });
}
