//! Memory that a program freed, or never wrote to, does not stay resident (`programs/returned.c`).

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox};

/// Freed pages go back within a second.
const SHORT_DECAY_CONF: &str = "dirty_decay_ms:1000";

/// The output of a part of the program with these options.
fn figure(allocator: Allocator, options: &str, words: &[&str]) -> f64 {
    let source = Source::new("returned.c").flags(&["-O1", "-pthread"]);
    let sandbox = Sandbox::temporary(allocator);
    let mut command = sandbox.command(source.compile());
    let outcome = sandbox.run_own(command.args(words).env("MALLOC_CONF", options));
    let printed = outcome.expect_success();
    printed.trim().parse().expect("a figure")
}

/// The same for each build of the library.
fn figures(options: &str, words: &[&str]) -> Vec<f64> {
    let preloaded = Library::under_test().iter().map(Allocator::Preload);
    preloaded
        .map(|library| figure(library, options, words))
        .collect()
}

/// `best` is the figure of the best other allocator for blocks of this alignment, in percent of the
/// requested size.
fn aligned_blocks_are_as_small_as(best: f64, align: &str, size: &str, count: &str) {
    let words = ["aligned", align, size, count];
    // On any allocator, every page that is written to is resident.
    let least = figure(Allocator::System, SHORT_DECAY_CONF, &words).min(best);
    for here in figures(SHORT_DECAY_CONF, &words) {
        assert!(
            here <= 1.05 * least,
            "{here} for blocks of {size} bytes at multiples of {align}, {least} elsewhere"
        );
    }
}

#[test]
fn aligned_blocks_leave_no_memory_between_them() {
    aligned_blocks_are_as_small_as(106.0, "65536", "70000", "2000");
    aligned_blocks_are_as_small_as(102.0, "2097152", "1000000", "150");
    aligned_blocks_are_as_small_as(102.0, "2097152", "2200000", "80");
    aligned_blocks_are_as_small_as(102.0, "1048576", "300000", "300");
    aligned_blocks_are_as_small_as(104.0, "16384", "20000", "5000");
}

#[test]
fn a_block_of_which_one_word_is_written_does_not_bring_all_of_it_into_memory() {
    // At any time, half a gibibyte of addresses is in use.
    for here in figures(SHORT_DECAY_CONF, &["untouched", "512", "20000"]) {
        assert!(here <= 200.0, "{here} MiB");
    }
}

#[test]
fn a_heap_that_one_thread_tears_down_goes_back_while_it_is_torn_down() {
    for size in ["300", "4096", "40000", "1000000", "10000000"] {
        for here in figures(SHORT_DECAY_CONF, &["torn-down", size, "1"]) {
            assert!(here <= 100.0, "{here} MiB of blocks of {size} bytes");
        }
    }
}

#[test]
fn a_heap_that_is_built_up_again_soon_stays() {
    // Too long for decay to have a part in it if the machine stalls.
    let late = "dirty_decay_ms:100000";
    for here in figures(late, &["torn-down", "40000", "3"]) {
        assert!(
            here >= 200.0,
            "{here} MiB are left: it went back again and again"
        );
    }
}

/// Too long for decay to have a part in it.
const NO_DECAY: &str = "dirty_decay_ms:1000000";

fn expired(options: &str, words: [&str; 5], most: f64) {
    let words = [&["expired"], &words[..]].concat();
    for here in figures(options, &words) {
        assert!(here <= most, "{here} MiB are left: {words:?}, {options}");
    }
}

#[test]
fn what_one_thread_frees_goes_back_as_it_is_freed() {
    for order in ["0", "1", "2"] {
        for size in ["16", "200", "4096", "65536"] {
            expired(NO_DECAY, [size, order, "0", "1", "0"], 100.0);
        }
    }
    for thp in ["always", "never"] {
        let options = format!("{NO_DECAY},thp:{thp}");
        expired(&options, ["1000", "2", "0", "1", "0"], 100.0);
    }
}

#[test]
fn blocks_that_stay_here_and_there_do_not_keep_what_is_freed_around_them() {
    for order in ["0", "1", "2"] {
        for size in ["64", "1000", "4096"] {
            expired(NO_DECAY, [size, order, "65536", "1", "0"], 100.0);
        }
    }
    for thp in ["always", "never"] {
        let options = format!("{NO_DECAY},thp:{thp}");
        expired(&options, ["200", "2", "65536", "1", "0"], 100.0);
    }
}

#[test]
fn what_is_taken_again_after_a_while_goes_back_each_time() {
    expired(NO_DECAY, ["500", "2", "0", "3", "1200"], 100.0);
    expired(NO_DECAY, ["1000", "0", "65536", "3", "1200"], 100.0);
}

/// There are at most `most` page faults that a hundredth of the time does not pay for.
fn few_faults(words: &[&str], most: f64) {
    let small_pages = format!("{NO_DECAY},thp:never");
    for here in figures(&small_pages, words) {
        assert!(here <= most, "{here} page faults too many: {words:?}");
    }
}

#[test]
fn what_is_taken_again_at_once_stays() {
    for order in ["0", "2"] {
        // The heap grows a little.
        few_faults(&["refilled", "1000", order, "10"], 5_000.0);
        few_faults(&["refilled", "40000", order, "10"], 5_000.0);
    }
}

#[test]
fn threads_that_come_in_waves_find_the_memory_of_the_last_wave() {
    // The allocator may guess wrongly once, and the guess is paid for before the end.
    few_faults(&["waves", "8", "144"], 3_000.0);
}

#[test]
fn threads_that_freed_all_and_sleep_keep_little() {
    for here in figures(SHORT_DECAY_CONF, &["sleepers", "500", "1024", "120"]) {
        assert!(here <= 120.0, "{here} MiB in the caches of 500 threads");
    }
}
