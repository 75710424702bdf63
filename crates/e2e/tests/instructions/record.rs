//! The recorded counts, `bench/instructions.txt`, and their comparison with new ones.

use std::fmt::Write;
use std::path::PathBuf;

/// The tolerated change of a count in percent: with the compiler that made the record, and with
/// another one, whose code is not ours to control.
const TOLERANCE_PERCENT: f64 = 3.0;
const TOLERANCE_ELSEWHERE_PERCENT: f64 = 15.0;

const HEADER: &str = "\
# Instructions of the library per operation in the release build, counted by callgrind;
# crates/e2e/programs/instructions.c describes each name. `cargo test` fails if one rises by
# over 3 % (15 % with a compiler other than the one named here). Enter an intended rise here by
# hand, or record all counts with scripts/instructions.sh --record.
";

/// Counts per operation by name, and the compiler that they belong to.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub compiler: String,
    pub counts: Vec<(String, f64)>,
}

/// The result of a comparison, as sentences. Only `failures` fail a test.
#[derive(Debug, Default, PartialEq)]
pub struct Verdict {
    pub failures: Vec<String>,
    pub remarks: Vec<String>,
}

pub fn path() -> PathBuf {
    mallard_e2e::repository().join("bench/instructions.txt")
}

impl Record {
    /// Reads a record from its file's text.
    ///
    /// # Errors
    /// A line is neither a comment nor a name and a count; there is no line with the compiler.
    pub fn parse(text: &str) -> Result<Record, String> {
        let mut record = Record {
            compiler: String::new(),
            counts: Vec::new(),
        };
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if let Some(compiler) = line.strip_prefix("compiler ") {
                record.compiler = compiler.trim().to_owned();
            } else if !line.is_empty() && !line.starts_with('#') {
                let mut words = line.split_whitespace();
                let entry = (words.next(), words.next().map(str::parse), words.next());
                let (Some(name), Some(Ok(count)), None) = entry else {
                    return Err(format!(
                        "line {}: {line:?} is not a name and a count",
                        number + 1
                    ));
                };
                record.counts.push((name.to_owned(), count));
            }
        }
        if record.compiler.is_empty() {
            return Err("no line says the compiler".to_owned());
        }
        Ok(record)
    }

    pub fn text(&self) -> String {
        let mut text = format!("{HEADER}compiler {}\n", self.compiler);
        for (name, count) in &self.counts {
            text.push_str(&line(name, *count));
            text.push('\n');
        }
        text
    }

    fn count(&self, name: &str) -> Option<f64> {
        let found = self.counts.iter().find(|(known, _)| known == name)?;
        Some(found.1)
    }

    /// Compares new counts with these.
    pub fn compare(&self, now: &Record) -> Verdict {
        let mut verdict = Verdict::default();
        let mut limit = TOLERANCE_PERCENT;
        if self.compiler != now.compiler {
            limit = TOLERANCE_ELSEWHERE_PERCENT;
            verdict.remarks.push(format!(
                "recorded with {}, compiled by {} here: up to {limit} % more are let pass",
                self.compiler, now.compiler
            ));
        }
        for (name, count) in &now.counts {
            let change = line(name, *count);
            let Some(before) = self.count(name) else {
                let advice = format!("{name} is not recorded; the line is `{change}`");
                verdict.failures.push(advice);
                continue;
            };
            let percent = (count / before - 1.0) * 100.0;
            if percent > limit {
                verdict.failures.push(format!(
                    "{name} rose by {percent:.1} %, from {before:.2} to {count:.2} instructions; \
                     if that is wanted, the line is `{change}`"
                ));
            } else if percent < -limit {
                verdict.remarks.push(format!(
                    "{name} fell by {:.1} %, from {before:.2} to {count:.2} instructions; \
                     to record it, the line is `{change}`",
                    -percent
                ));
            }
        }
        for (name, _) in &self.counts {
            if now.count(name).is_none() {
                let advice = format!("{name} is recorded and no scenario; remove its line");
                verdict.failures.push(advice);
            }
        }
        verdict
    }

    /// A table for readers: recorded, now, difference.
    pub fn table(&self, now: &Record) -> String {
        let mut table = format!(
            "{:<22} {:>10} {:>10} {:>9}\n",
            "instructions of", "recorded", "now", "change"
        );
        for (name, count) in &now.counts {
            let before = self.count(name);
            let recorded = before.map_or("-".to_owned(), |before| format!("{before:.2}"));
            let change = before.map_or(String::new(), |before| {
                format!("{:+.2} %", (count / before - 1.0) * 100.0)
            });
            let _ = writeln!(table, "{name:<22} {recorded:>10} {count:>10.2} {change:>9}");
        }
        table
    }
}

/// A line of the file.
fn line(name: &str, count: f64) -> String {
    format!("{name:<22} {count:>8.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(counts: &[(&str, f64)]) -> Record {
        Record {
            compiler: "rustc 1".to_owned(),
            counts: counts.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect(),
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let original = record(&[("malloc-8", 15.0), ("trace", 93.25)]);
        assert_eq!(Record::parse(&original.text()), Ok(original));
    }

    #[test]
    fn a_line_that_is_no_count_is_named() {
        let error = Record::parse("# x\nmalloc-8 fifteen\n").unwrap_err();
        assert!(
            error.contains("line 2") && error.contains("fifteen"),
            "{error}"
        );
        assert!(Record::parse("malloc-8 15\n").is_err(), "no compiler");
    }

    #[test]
    fn a_rise_fails_and_says_the_line_that_would_let_it_pass() {
        let verdict = record(&[("free-8", 18.0)]).compare(&record(&[("free-8", 19.0)]));
        let [failure] = &verdict.failures[..] else {
            panic!("{verdict:?}")
        };
        assert!(
            failure.contains("free-8 rose by 5.6 %") && failure.contains(&line("free-8", 19.0)),
            "{failure}"
        );
    }

    #[test]
    fn a_fall_is_told_and_passes() {
        let verdict = record(&[("free-8", 18.0)]).compare(&record(&[("free-8", 17.0)]));
        assert_eq!(verdict.failures, [""; 0]);
        assert!(
            verdict.remarks[0].contains(&line("free-8", 17.0)),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_change_within_three_percent_is_silent() {
        for count in [97.1, 100.0, 102.9] {
            let verdict = record(&[("trace", 100.0)]).compare(&record(&[("trace", count)]));
            assert_eq!(verdict, Verdict::default(), "{count}");
        }
    }

    #[test]
    fn names_that_do_not_match_fail() {
        let verdict = record(&[("old", 1.0)]).compare(&record(&[("new", 1.0)]));
        assert_eq!(verdict.failures.len(), 2, "{verdict:?}");
    }

    #[test]
    fn another_compiler_is_told_and_held_less_tightly() {
        let mut now = record(&[("trace", 110.0)]);
        now.compiler = "rustc 2".to_owned();
        let verdict = record(&[("trace", 100.0)]).compare(&now);
        assert_eq!(
            (verdict.failures.len(), verdict.remarks.len()),
            (0, 1),
            "{verdict:?}"
        );
        now.counts[0].1 = 120.0;
        assert_eq!(record(&[("trace", 100.0)]).compare(&now).failures.len(), 1);
    }
}
