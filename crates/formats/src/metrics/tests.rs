use super::*;
use crate::page::version_word;
use std::string::String;

#[test]
fn names_of_metrics_follow_the_rules() {
    for (at, family) in families().enumerate() {
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
            families().take(at).all(|other| other.name != name),
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
            Section::Locks => Lock::COUNT,
            _ => 0,
        }
    }

    fn word(&self, section: Section, row: usize, word: usize) -> u64 {
        match section {
            Section::About => [1, 1_500_000_001, 9, version_word([1, 2, 3])][row],
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
        let family = families().find(|family| family.name == name).unwrap();
        let mut text = String::new();
        header(&mut text, &family, format).unwrap();
        samples(&mut text, &family, labels, &Numbered).unwrap();
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
    process(&mut all, Format::OpenMetrics, &Numbered).unwrap();
    assert!(all.ends_with("\n# EOF\n"), "{all}");
    let infos = families().filter(|family| family.kind == Kind::Info);
    assert_eq!(infos.count(), 1);
}

#[test]
fn a_scraper_gets_the_format_that_it_asks_for() {
    let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
    assert_eq!(Format::accepted("*/*"), Format::Text);
}
