use super::model::{Calls, EndMemory, Growth};
use super::*;

/// A busy program with this share of its time in malloc.
pub(super) fn figures(inside: f64) -> Figures {
    Figures {
        samples: 2000,
        runs: 1,
        wall_seconds: 10.0,
        user_seconds: 9.0,
        inside: Some(inside),
        inside_low: Some((inside - 0.01).max(0.0)),
        inside_high: Some(inside + 0.01),
        waiting: Some(0.0),
        running: 0.9,
        ..Figures::default()
    }
}

const ABOUT: About = About {
    is_glibc: true,
    has_pool: false,
    cpus: 8,
};

fn judged(f: &Figures) -> Verdict {
    judge(f, ABOUT)
}

fn keys(verdict: &Verdict) -> Vec<&str> {
    verdict
        .troubles
        .iter()
        .map(|trouble| trouble.key.as_str())
        .collect()
}

#[test]
fn a_program_that_computes_is_told_so() {
    let verdict = judged(&figures(0.005));
    assert_eq!((verdict.time, verdict.answer()), (Answer::No, Answer::No));
    assert_eq!(verdict.takes.unwrap().key.as_str(), "computing");
}

#[test]
fn waits_of_a_saturated_program_may_cost_nothing() {
    let mut f = figures(0.2);
    f.waiting = Some(0.1);
    let waits = judged(&f).bound.unwrap();
    f.user_seconds = 80.0;
    let saturated = judged(&f).bound.unwrap();
    assert!((saturated.low - 1.0 / 0.81).abs() < 1e-9, "{saturated:?}");
    // But they may cost something.
    assert!((saturated.high - waits.high).abs() < 1e-9, "{saturated:?}");
    assert!((waits.low - 1.0 / (0.9 * 0.81)).abs() < 1e-9, "{waits:?}");
}

#[test]
fn the_bound_of_a_program_that_sleeps_is_of_its_wall_time() {
    let mut f = figures(0.2);
    f.threads = 1;
    f.user_seconds = 1.0;
    f.running = 0.1;
    f.waits_outside = vec![("sleep".to_owned(), 0.9)];
    let bound = judged(&f).bound.unwrap();
    assert!(
        (bound.low - 1.0 / (1.0 - 0.1 * 0.19)).abs() < 1e-9,
        "{bound:?}"
    );
    // Half asleep, and no allocator helps with that half.
    f.waits_outside[0].1 = 0.5;
    assert!((busy(&f) - 0.5).abs() < 1e-9);
    // Of several threads, one may be awake all the time.
    f.threads = 4;
    let bound = judged(&f).bound.unwrap();
    assert!((bound.low - 1.0 / 0.81).abs() < 1e-9, "{bound:?}");
}

#[test]
fn waits_inside_are_locks() {
    let mut f = figures(0.01);
    (f.inside_low, f.inside_high) = (Some(0.0), Some(0.001));
    f.waiting = Some(0.031);
    f.waits = vec![("futex".to_owned(), 0.031)];
    let verdict = judged(&f);
    assert_eq!((verdict.time, keys(&verdict)), (Answer::Yes, vec!["locks"]));
    f.waiting = Some(0.029);
    assert!(!keys(&judged(&f)).contains(&"locks"));
}

#[test]
fn memory_that_comes_again_is_named_by_how_it_went() {
    for (call, key) in [("madvise", "decay"), ("brk", "trim"), ("munmap", "mmap")] {
        let mut f = figures(0.2);
        f.refaults = Some(0.5);
        f.faults = 100_000;
        f.syscalls = vec![(call.to_owned(), 500.0, 0.0)];
        assert_eq!(keys(&judged(&f)), [key]);
        // The calls are those of a heap of the program's own.
        f.syscalls = vec![(call.to_owned(), 0.0, 500.0)];
        assert!(!keys(&judged(&f)).contains(&"to_and_fro"));
    }
}

#[test]
fn an_answer_is_one_where_the_whole_interval_agrees() {
    let of = |low, high| {
        let mut f = figures((low + high) / 2.0);
        (f.inside_low, f.inside_high) = (Some(low), Some(high));
        f.probe_cost = Some(0.0);
        judged(&f)
    };
    // Shares of 2.9 % are the threshold of 1.03.
    for (low, high, answer) in [
        (0.03, 0.5, Answer::Yes),
        (0.0, 0.028, Answer::No),
        (0.0, 0.3, Answer::Perhaps),
        (0.028, 0.031, Answer::Perhaps),
    ] {
        let verdict = of(low, high);
        assert_eq!(verdict.time, answer, "{low} {high}");
        assert_eq!(verdict.settle.is_some(), answer == Answer::Perhaps);
    }
    // What is known well and lies on both sides, more samples do not settle.
    let mut f = figures(0.03);
    f.samples = 100_000;
    let (low, high) = share::wilson(3000.0, 100_000.0);
    (f.inside_low, f.inside_high) = (Some(low), Some(high));
    f.probe_cost = Some(0.0);
    let few = of(0.02, 0.2).settle;
    assert_eq!(few, Some(Settle::QuietMachine), "wider than its samples");
    assert!(matches!(
        judged(&f).settle,
        Some(Settle::Comparison | Settle::Samples { .. })
    ));
}

#[test]
fn the_bound_of_a_page_fault_trouble_has_the_page_faults() {
    let mut f = figures(0.07);
    (f.user_seconds, f.system_seconds) = (3.0, 6.5);
    (f.refaults, f.faults) = (Some(0.9), 1_000_000);
    (f.fault_share, f.refault_share) = (0.6, 0.58);
    f.syscalls = vec![("munmap".to_owned(), 400.0, 0.0)];
    let bound = judged(&f).bound.unwrap();
    let (low, high) = bound.calls.unwrap();
    assert!(high < 1.1 && low < high, "{bound:?}");
    assert!(bound.low > 1.5 && bound.high > 2.9, "{bound:?}");
    // Without that trouble there is none of it in the least, and what the faults may cost is in
    // the most.
    f.syscalls.clear();
    f.refaults = Some(0.1);
    (f.refault_share, f.fault_share) = (0.01, 0.03);
    (f.peak_rss, f.peak_live) = (500 << 20, Some(480 << 20));
    let bound = judged(&f).bound.unwrap();
    let (low, high) = bound.calls.unwrap();
    assert!(bound.low <= low && bound.high > high, "{bound:?}");
}

#[test]
fn slow_frees_are_those_that_give_memory_back() {
    for (kind, is_slow) in [("free", true), ("madvise", true), ("mmap", false)] {
        let mut f = figures(0.01);
        f.long_calls = vec![(kind.to_owned(), 5)];
        assert_eq!(keys(&judged(&f)).contains(&"slow_purge"), is_slow, "{kind}");
    }
}

#[test]
fn a_trim_tells_held_back_from_pinned() {
    let mut f = figures(0.01);
    f.peak_live = Some(200 << 20);
    let end = |returned| {
        Some(EndMemory {
            rss: 110 << 20,
            lazy: 0,
            anonymous: 100 << 20,
            live: 10 << 20,
            returned,
        })
    };
    f.end = end(Some(80 << 20));
    assert_eq!(keys(&judged(&f)), ["held_back"]);
    f.end = end(Some(1 << 20));
    assert_eq!(keys(&judged(&f)), ["pinned"]);
    // Six blocks do not pin ninety megabytes.
    (f.calls.mallocs, f.calls.frees) = (1_000_006, 1_000_000);
    assert_eq!(keys(&judged(&f)), ["held_back"]);
    f.calls = Calls::default();
    // Nobody asked: which of the two it is, nobody knows.
    f.end = end(None);
    let verdict = judged(&f);
    assert_eq!(
        (verdict.memory, keys(&verdict)),
        (Answer::Perhaps, vec!["kept"])
    );
    // The heap never was that large: the memory is the program's own.
    f.peak_live = Some(12 << 20);
    assert!(judged(&f).troubles.is_empty());
    // Several arenas hold that much each, in turn.
    f.end = end(Some(80 << 20));
    assert_eq!(keys(&judged(&f)), ["held_back"]);
}

#[test]
fn memory_has_an_answer_of_its_own() {
    let mut f = figures(0.2);
    f.peak_rss = 300 << 20;
    let answers = |f: &Figures| {
        let verdict = judged(f);
        (verdict.time, verdict.memory, verdict.graver)
    };
    // Nobody knows what is live.
    assert_eq!(answers(&f), (Answer::Yes, Answer::CannotTell, Aspect::Time));
    (f.peak_live, f.live_at_peak) = (Some(290 << 20), Some(290 << 20));
    assert_eq!(answers(&f), (Answer::Yes, Answer::No, Aspect::Time));
    // Far above live bytes, at the peak only.
    f.live_at_peak = Some(100 << 20);
    assert_eq!(answers(&f), (Answer::Yes, Answer::Perhaps, Aspect::Time));
    f.end = Some(EndMemory {
        rss: 300 << 20,
        anonymous: 290 << 20,
        live: 10 << 20,
        returned: Some(280 << 20),
        ..EndMemory::default()
    });
    // Thirty times its live bytes is worse than a quarter of the time.
    assert_eq!(answers(&f), (Answer::Yes, Answer::Yes, Aspect::Memory));
    let small = Figures {
        peak_rss: 2 << 20,
        ..figures(0.005)
    };
    assert_eq!(answers(&small), (Answer::No, Answer::No, Aspect::Time));
}

#[test]
fn a_leak_is_the_program_s_own() {
    let mut f = figures(0.01);
    f.grows = Some(Growth {
        bytes_per_second: 1e6,
        fit: 0.99,
        share: 0.9,
    });
    let verdict = judged(&f);
    assert_eq!((verdict.memory, keys(&verdict)), (Answer::No, vec!["leak"]));
    assert_eq!(verdict.graver, Aspect::Memory);
    // The allocator keeps fifty times as much beside it.
    f.peak_live = Some(500 << 20);
    f.end = Some(EndMemory {
        rss: 510 << 20,
        anonymous: 500 << 20,
        live: 10 << 20,
        returned: Some(480 << 20),
        ..EndMemory::default()
    });
    let verdict = judged(&f);
    assert_eq!(verdict.memory, Answer::Yes);
    assert_eq!(keys(&verdict), ["held_back", "leak"]);
}

#[test]
fn growth_is_that_of_the_heap_and_not_of_a_start() {
    let mut f = figures(0.001);
    f.system_seconds = 3.0;
    f.fault_share = 0.1;
    f.faults = 900;
    f.peak_rss = 300 << 20;
    f.peak_live = Some(280 << 20);
    assert!(judged(&f).troubles.is_empty());
    f.faults = 70_000;
    assert_eq!(keys(&judged(&f)), ["growth"]);
    // Mappings that were not seen say nothing of the others.
    let kind = |kind: &str, share| (kind.to_owned(), share);
    f.fault_kinds = vec![kind(HEAP, 0.4), kind(GONE, 0.6)];
    assert_eq!(keys(&judged(&f)), ["growth"]);
    f.fault_kinds = vec![kind("files", 0.6), kind(HEAP, 0.4)];
    assert!(judged(&f).troubles.is_empty());
    f.fault_kinds.clear();
    // The memory is not malloc's.
    f.peak_live = Some(3 << 20);
    assert!(judged(&f).troubles.is_empty());
}

#[test]
fn hand_off_needs_work_in_the_allocator() {
    let mut f = figures(0.2);
    f.calls = Calls {
        freed_elsewhere: Some(0.5),
        ..Calls::default()
    };
    assert_eq!(keys(&judged(&f)), ["hand_off"]);
    f.inside = Some(0.01);
    (f.inside_low, f.inside_high) = (Some(0.0), Some(0.02));
    assert!(judged(&f).troubles.is_empty());
}

#[test]
fn too_few_samples_tell_nothing() {
    let mut f = figures(0.5);
    f.samples = 20;
    let verdict = judged(&f);
    assert_eq!(verdict.time, Answer::CannotTell);
    assert_eq!(verdict.answer(), Answer::CannotTell);
}

#[test]
fn what_a_program_waits_for_is_named() {
    for (kind, key) in [
        ("lock", "own_lock"),
        ("futex", "waits"),
        ("another thread", "waits"),
        ("file or socket", "io"),
        ("sleep", "idle"),
    ] {
        let mut f = figures(0.001);
        f.running = 0.1;
        f.waits_outside = vec![(kind.to_owned(), 0.8)];
        assert_eq!(judged(&f).takes.unwrap().key.as_str(), key);
    }
    // A thread that computes is the answer, unless the others wait for a lock that it holds.
    for (kind, key) in [("another thread", "computing"), ("lock", "own_lock")] {
        let mut f = figures(0.001);
        f.running = 0.1;
        f.waits_outside = vec![(kind.to_owned(), 0.8)];
        f.busiest_thread = Some(BusyThread {
            share: 0.8,
            ..BusyThread::default()
        });
        assert_eq!(judged(&f).takes.unwrap().key.as_str(), key);
    }
}
