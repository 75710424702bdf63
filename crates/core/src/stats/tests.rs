use super::figures::{Shown, run_class};
use super::metrics::{self, Format, Kind, MetricSource, Of, Section};
use super::refresh;
use crate::upkeep::export::page::{About, Lock, OfClass, OfLock, Total};
use std::cell::Cell;
use std::string::String;

std::thread_local! {
    /// Records that this thread has visited.
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Counts a record that is visited or looked up.
pub fn step() {
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

/// The number of steps of a refresh.
pub fn steps() -> usize {
    let before = STEPS.get();
    assert!(refresh());
    STEPS.get() - before
}

#[test]
fn runs_of_pages_have_jemallocs_classes() {
    let classes = [1, 2, 3, 4, 5, 8, 9, 10, 11, 256, 257, 512].map(run_class);
    assert_eq!(classes, [0, 1, 2, 3, 4, 7, 8, 8, 9, 27, 28, 31]);
}

#[test]
fn counts_shown_never_fall_and_differ_by_what_is_in_use() {
    // Blocks that left the slabs, came back, and lie in caches.
    let steps = [
        (10, 0, 4),
        (10, 0, 0),
        (10, 0, 10),
        (10, 0, 0),
        (20, 5, 15),
        (20, 5, 3),
    ];
    let mut shown = Shown::default();
    let mut last = (0, 0);
    for (taken, given, cached) in steps {
        let (made, freed) = shown.show(taken, given, cached);
        assert_eq!(made - freed, taken - given - cached);
        assert!(
            made >= last.0 && freed >= last.1,
            "{made} {freed} after {last:?}"
        );
        last = (made, freed);
    }
}

/// The figure of a metric, by the number that its family has.
fn word_of(name: &str) -> Option<usize> {
    let family = metrics::families().find(|family| family.name == name)?;
    match family.of {
        Of::Total(word) | Of::Class(word) | Of::Lock(word) => Some(word.into()),
        _ => None,
    }
}

#[test]
fn metrics_are_the_words_of_the_page_that_their_names_say() {
    for (name, word) in [
        ("mallard_allocated_bytes", Total::Allocated as usize),
        ("mallard_resident_bytes", Total::Resident as usize),
        ("mallard_arenas", Total::Arenas as usize),
        ("mallard_muzzy_purged_bytes", Total::MuzzyPurged as usize),
        ("mallard_cache_flushes", Total::Flushes as usize),
        ("mallard_peak_allocated_bytes", Total::Peak as usize),
        ("mallard_prof_active", Total::IsSampling as usize),
        ("mallard_prof_lost_samples", Total::SamplesLost as usize),
        ("mallard_prof_more_samples", Total::SamplesMore as usize),
        (
            "mallard_background_rounds",
            Total::BackgroundRounds as usize,
        ),
        ("mallard_zero_reallocs", Total::ZeroReallocs as usize),
        ("mallard_huge_pages", Total::HugePages as usize),
        ("mallard_class_allocated_bytes", OfClass::Allocated as usize),
        ("mallard_class_active_bytes", OfClass::Pages as usize),
        ("mallard_lock_waits", OfLock::Waits as usize),
        (
            "mallard_lock_longest_wait_seconds",
            OfLock::Longest as usize,
        ),
    ] {
        assert_eq!(word_of(name), Some(word), "{name}");
    }
    let cached = [metrics::THREAD_CACHED, metrics::TRANSFER_CACHED];
    let there = [Total::ThreadCached, Total::TransferCached];
    assert_eq!(cached, there.map(|word| word as usize));
    let about = [metrics::BEGAN, metrics::PUBLISHED, metrics::VERSION];
    let there = [About::Began, About::Published, About::Version];
    assert_eq!(about, there.map(|word| word as usize));
    let class = [
        metrics::CLASS_SIZE,
        metrics::CLASS_PAGES,
        metrics::CLASS_TAKEN,
    ];
    let there = [OfClass::Size, OfClass::Pages, OfClass::Taken];
    assert_eq!(class, there.map(|word| word as usize));
    assert_eq!(metrics::LOCKS[Lock::Bins as usize], "bins");
    assert_eq!(metrics::LOCKS.len(), Lock::Records as usize + 1);
}

#[test]
fn names_of_metrics_follow_the_rules() {
    for (at, family) in metrics::families().enumerate() {
        let name = family.name;
        assert!(name.starts_with("mallard_"), "{name}");
        assert!(
            name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
            "{name}"
        );
        assert!(
            family.unit.is_empty() || name.ends_with(family.unit),
            "{name}"
        );
        assert!(
            !name.ends_with("_total") && !name.ends_with("_info"),
            "{name}"
        );
        assert!(
            family.help.ends_with('.') && !family.help.contains('\n'),
            "{name}"
        );
        assert!(
            metrics::families().take(at).all(|other| other.name != name),
            "{name}"
        );
    }
}

/// A page whose words are their own numbers.
struct Numbered;

impl MetricSource for Numbered {
    fn rows(&self, section: Section) -> usize {
        match section {
            Section::Classes => 2,
            Section::Locks => metrics::LOCKS.len(),
            _ => 0,
        }
    }

    fn word(&self, section: Section, row: usize, word: usize) -> u64 {
        match section {
            Section::About => [1, 1_500_000_001, 9, 1 << 32 | 2 << 16 | 3][row],
            Section::Totals => row as u64,
            // The second row has no blocks.
            Section::Classes => [word as u64, 0][row],
            Section::Locks => row as u64,
        }
    }
}

#[test]
fn a_family_is_written_in_both_formats() {
    let written = |name: &str, format, labels| {
        let family = metrics::families()
            .find(|family| family.name == name)
            .unwrap();
        let mut text = String::new();
        metrics::header(&mut text, &family, format).unwrap();
        metrics::samples(&mut text, &family, labels, &Numbered).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with("# HELP"));
        lines.take(4).collect::<std::vec::Vec<_>>().join("|")
    };
    let pid = "pid=\"7\"";
    for (name, format, labels, expected) in [
        (
            "mallard_purged_bytes",
            Format::OpenMetrics,
            "",
            "# TYPE mallard_purged_bytes counter|# UNIT mallard_purged_bytes bytes|mallard_purged_bytes_total 14",
        ),
        (
            "mallard_purged_bytes",
            Format::Text,
            pid,
            "# TYPE mallard_purged_bytes_total counter|mallard_purged_bytes_total{pid=\"7\"} 14",
        ),
        (
            "mallard_build",
            Format::OpenMetrics,
            pid,
            "# TYPE mallard_build info|mallard_build_info{pid=\"7\",version=\"1.2.3\"} 1",
        ),
        (
            "mallard_build",
            Format::Text,
            "",
            "# TYPE mallard_build_info gauge|mallard_build_info{version=\"1.2.3\"} 1",
        ),
        (
            "mallard_uptime_seconds",
            Format::Text,
            "",
            "# TYPE mallard_uptime_seconds gauge|mallard_uptime_seconds 1.500000000",
        ),
        (
            "mallard_class_utilization_ratio",
            Format::Text,
            "",
            "# TYPE mallard_class_utilization_ratio gauge|mallard_class_utilization_ratio{size=\"larger\"} 0.250000",
        ),
        (
            "mallard_prof_sample_interval_bytes",
            Format::Text,
            "",
            "# TYPE mallard_prof_sample_interval_bytes gauge|mallard_prof_sample_interval_bytes 8388608",
        ),
        (
            "mallard_lock_wait_seconds",
            Format::Text,
            "",
            "# TYPE mallard_lock_wait_seconds_total counter\
             |mallard_lock_wait_seconds_total{lock=\"statistics\"} 0.000000000\
             |mallard_lock_wait_seconds_total{lock=\"subrelease\"} 0.000000001\
             |mallard_lock_wait_seconds_total{lock=\"page_heaps\"} 0.000000002",
        ),
    ] {
        assert_eq!(written(name, format, labels), expected);
    }
    let mut all = String::new();
    metrics::process(&mut all, Format::OpenMetrics, &Numbered).unwrap();
    assert!(all.ends_with("\n# EOF\n"), "{all}");
    let infos = metrics::families().filter(|family| family.kind == Kind::Info);
    assert_eq!(infos.count(), 1);
}
