//! The figures of processes as metrics for Prometheus.
//!
//! The names, and the figures that a process reports about itself, come from
//! [`mallard_formats::metrics`], so a process that writes its metrics itself writes the same.
//! Only the figures that an observer adds are here.

use std::fmt::{Result, Write};

use mallard_formats::metrics::{self as text, Kind, MetricSource, Of, Scale, Section};
use mallard_formats::page::{ABOUT, About};

use crate::page::Words;
use crate::snapshot::Snapshot;
pub use mallard_formats::metrics::{Family, Format, families};

impl MetricSource for Words {
    fn rows(&self, section: Section) -> usize {
        self.section(place(section)).rows
    }

    fn word(&self, section: Section, row: usize, word: usize) -> u64 {
        match section {
            Section::About => self.cell(ABOUT, row, word),
            other => self.cell(self.section(place(other)), row, word),
        }
    }
}

/// The word of a page that says where the section is.
fn place(section: Section) -> About {
    match section {
        Section::About | Section::Totals => About::Totals,
        Section::Classes => About::Classes,
        Section::Locks => About::Locks,
    }
}

/// A process, and the labels of its samples.
#[derive(Debug, Clone)]
pub struct Process<'a> {
    /// As [`labels`] makes them; may be empty.
    pub labels: &'a str,
    pub snapshot: &'a Snapshot,
    /// The memory that the system counts for it.
    pub rss: u64,
}

/// Labels in the form of the text, with their values escaped. Those without a value are left out.
pub fn labels(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        for letter in value.chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    text
}

type Outside = fn(&Process<'_>) -> String;

/// What an observer adds to the figures of a process.
const OUTSIDE: [(Family, Outside); 3] = [
    (
        family(
            "mallard_process_resident_bytes",
            "bytes",
            Kind::Gauge,
            "What the system counts as the process's memory, with its code, stacks and everything else.",
        ),
        |process| process.rss.to_string(),
    ),
    (
        family(
            "mallard_publication_age_seconds",
            "seconds",
            Kind::Gauge,
            "Time since the process published these figures. An idle process publishes none.",
        ),
        |process| process.snapshot.age.as_secs_f64().to_string(),
    ),
    (
        family(
            "mallard_publications",
            "",
            Kind::Counter,
            "How often the process published its figures.",
        ),
        |process| process.snapshot.count.to_string(),
    ),
];

const fn family(name: &'static str, unit: &'static str, kind: Kind, help: &'static str) -> Family {
    Family {
        name,
        kind,
        unit,
        scale: Scale::One,
        // The value is not of the page.
        of: Of::Uptime,
        help,
    }
}

/// Writes the metrics of processes, and nothing that ends the text.
///
/// # Errors
/// Only the writer's.
pub fn write(out: &mut impl Write, format: Format, processes: &[Process<'_>]) -> Result {
    if processes.is_empty() {
        return Ok(());
    }
    for family in families() {
        text::header(out, &family, format)?;
        for process in processes {
            text::samples(out, &family, process.labels, &process.snapshot.words)?;
        }
    }
    for (family, value) in &OUTSIDE {
        text::header(out, family, format)?;
        for process in processes {
            sample(out, family, process.labels, &value(process))?;
        }
    }
    Ok(())
}

/// Writes a metric of the writer itself, a gauge: each sample has its labels and its value.
///
/// # Errors
/// Only the writer's.
pub fn own(
    out: &mut impl Write,
    format: Format,
    (name, unit, help): (&'static str, &'static str, &'static str),
    samples: &[(&str, f64)],
) -> Result {
    let family = family(name, unit, Kind::Gauge, help);
    text::header(out, &family, format)?;
    for (labels, value) in samples {
        sample(out, &family, labels, &value.to_string())?;
    }
    Ok(())
}

/// Ends the text.
///
/// # Errors
/// Only the writer's.
pub fn end(out: &mut impl Write, format: Format) -> Result {
    text::end(out, format)
}

fn sample(out: &mut impl Write, family: &Family, labels: &str, value: &str) -> Result {
    let suffix = match family.kind {
        Kind::Counter => "_total",
        Kind::Gauge | Kind::Info => "",
    };
    match labels {
        "" => writeln!(out, "{}{suffix} {value}", family.name),
        labels => writeln!(out, "{}{suffix}{{{labels}}} {value}", family.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        let text = labels(&[("pid", "7"), ("command", "a \"b\"\\\n"), ("container", "")]);
        assert_eq!(text, r#"pid="7",command="a \"b\"\\\n""#);
    }

    #[test]
    fn each_family_has_one_header_before_the_samples_of_all_processes() {
        let snapshot = Snapshot::default();
        let of = |labels| Process {
            labels,
            snapshot: &snapshot,
            rss: 4096,
        };
        let mut written = String::new();
        let both = [of("pid=\"1\""), of("pid=\"2\"")];
        write(&mut written, Format::OpenMetrics, &both).unwrap();
        end(&mut written, Format::OpenMetrics).unwrap();
        let rss = "\
# TYPE mallard_process_resident_bytes gauge
# UNIT mallard_process_resident_bytes bytes
mallard_process_resident_bytes{pid=\"1\"} 4096
mallard_process_resident_bytes{pid=\"2\"} 4096
";
        assert!(written.contains(rss), "{written}");
        assert!(written.contains("mallard_publications_total{pid=\"2\"} 0\n# EOF\n"));
        let headers = written.matches("# TYPE mallard_allocated_bytes ").count();
        assert_eq!(headers, 1);
    }

    /// The book has each metric that is written, and no other.
    #[test]
    fn the_book_tells_what_each_metric_means() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let book = std::fs::read_to_string(path).unwrap();
        let rows = book
            .lines()
            .filter_map(|line| line.strip_prefix("| `mallard_"));
        let mut described: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
        let mut written = String::new();
        let snapshot = Snapshot::default();
        let process = Process {
            labels: "",
            snapshot: &snapshot,
            rss: 0,
        };
        write(&mut written, Format::Text, &[process]).unwrap();
        let names = written.lines().filter_map(|line| {
            let name = line.strip_prefix("# TYPE mallard_")?;
            name.split(' ').next()
        });
        let mut names: Vec<&str> = names
            .chain(["export_processes", "export_look_seconds"])
            .collect();
        described.sort_unstable();
        names.sort_unstable();
        assert_eq!(described, names);
    }
}
