//! Histories of calls that are read from bytes: those that the fuzzer has kept (`fuzz/corpus`), and
//! some made up at random. `fuzz/README.md` tells how to run more.
//!
//! `MALLARD_SEED=n cargo test -p mallard-core --test histories` repeats a run, whose seed is
//! printed when it fails.

mod checks;
mod random;

use std::path::Path;

fn check(corpus: &str, count: u64, try_one: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    random::check(&folder.join(corpus), count, try_one);
}

#[test]
fn calls_of_all_fronts_keep_what_they_promise() {
    check("heap", 200, checks::heap::history);
}

#[test]
fn a_misuse_after_any_history_ends_with_its_line() {
    check("misuse", 150, checks::misuse::misuse);
}

/// Shows that a pass under AddressSanitizer means something.
#[cfg(feature = "poison")]
#[test]
fn a_touch_of_free_memory_is_reported() {
    use mallard_core::api;
    let _alone = random::alone();
    for (size, flush) in [(100, false), (100, true), (40_000, true), (5 << 20, false)] {
        let ended = checks::child::forked(|| {
            let p = api::alloc(size);
            // SAFETY: none: this is a misuse, in a child.
            unsafe {
                p.write_volatile(1);
                api::dealloc(p);
                if flush {
                    let _ = api::threads::flush_cache();
                }
                p.write_volatile(2);
            }
        });
        assert!(ended.said.contains("use-after-poison"), "{size}: {ended:?}");
    }
}
