//! Metrics: the figures of a page of statistics as text for Prometheus, in OpenMetrics 1.0 or the
//! older text format.
//!
//! `families` has the names. `header` and `samples` write one family: the samples of all
//! processes follow its header, so a writer goes family by family. A process that writes its own
//! metrics has no labels of its own.
//!
//! A process that writes its metrics itself and `mallard export` both write them by this, so that
//! both say the same. There is no arithmetic with floating point: it would bring its printing into
//! the library.

mod table;
#[cfg(test)]
mod tests;

use core::fmt::{Result, Write};

use crate::page::{About, Lock, OfClass, OfLock, Total, version_of};
use table::before;
pub use table::families;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    OpenMetrics,
    /// The older one, which knows no units and no end.
    Text,
}

impl Format {
    /// The format that an `Accept` header of HTTP asks for.
    pub fn accepted(accept: &str) -> Format {
        if accept.contains("application/openmetrics-text") {
            Format::OpenMetrics
        } else {
            Format::Text
        }
    }

    /// The content type of the format in HTTP.
    pub const fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Gauge,
    Counter,
    Info,
}

/// How a figure becomes a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    One,
    /// Nanoseconds become seconds.
    Nanoseconds,
    /// A base-2 logarithm.
    PowerOfTwo,
}

/// The figures that a family shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    Version,
    Uptime,
    Total(Total),
    /// The bytes in thread caches and in transfer caches, which a label tells apart.
    Cached,
    /// A word of each class in use.
    Class(OfClass),
    /// The first word as a part of the second, which is not less.
    ClassRatio(OfClass, OfClass),
    /// A word of each kind of lock.
    Lock(OfLock),
}

/// A metric, with a sample for each process or several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Family {
    /// Without `_total` and `_info`.
    pub name: &'static str,
    pub kind: Kind,
    /// The unit that ends the name; empty for a number of things.
    pub unit: &'static str,
    pub scale: Scale,
    pub of: Of,
    pub help: &'static str,
}

impl Family {
    /// What follows the name in samples.
    const fn suffix(&self) -> &'static str {
        match self.kind {
            Kind::Gauge => "",
            Kind::Counter => "_total",
            Kind::Info => "_info",
        }
    }
}

/// The sections of a page that metrics come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Section {
    About,
    Totals,
    Classes,
    Locks,
}

/// The figures of a process.
pub trait MetricSource {
    /// The rows of a section.
    fn rows(&self, section: Section) -> usize;
    /// A word of a row; 0 if there is none.
    fn word(&self, section: Section, row: usize, word: usize) -> u64;
}

/// Writes what comes before the samples of a family.
pub fn header(out: &mut impl Write, family: &Family, format: Format) -> Result {
    let Family {
        name, unit, help, ..
    } = family;
    let kind = match (family.kind, format) {
        (Kind::Counter, _) => "counter",
        (Kind::Info, Format::OpenMetrics) => "info",
        (Kind::Gauge | Kind::Info, _) => "gauge",
    };
    // The older format knows no families: there the name is that of the samples.
    let suffix = match format {
        Format::OpenMetrics => "",
        Format::Text => family.suffix(),
    };
    writeln!(out, "# HELP {name}{suffix} {help}")?;
    writeln!(out, "# TYPE {name}{suffix} {kind}")?;
    if format == Format::OpenMetrics && !unit.is_empty() {
        writeln!(out, "# UNIT {name} {unit}")?;
    }
    Ok(())
}

/// Writes the samples of a process. `labels` are those of the process, such as `pid="7"`, with
/// commas between them, and escaped.
pub fn samples(
    out: &mut impl Write,
    family: &Family,
    labels: &str,
    figures: &impl MetricSource,
) -> Result {
    let total = |word: Total| figures.word(Section::Totals, word as usize, 0);
    let about = |word: About| figures.word(Section::About, word as usize, 0);
    let mut line = MetricLine {
        out,
        family,
        labels,
    };
    match family.of {
        Of::Version => {
            let [major, minor, patch] = version_of(about(About::Version));
            line.write(
                Some(("version", format_args!("{major}.{minor}.{patch}"))),
                1,
            )
        }
        Of::Uptime => line.write(
            None,
            about(About::Published).saturating_sub(about(About::Began)),
        ),
        Of::Total(word) => line.write(None, total(word)),
        Of::Cached => {
            line.write(
                Some(("where", format_args!("thread"))),
                total(Total::ThreadCached),
            )?;
            line.write(
                Some(("where", format_args!("transfer"))),
                total(Total::TransferCached),
            )
        }
        Of::Class(_) | Of::ClassRatio(..) => {
            (0..figures.rows(Section::Classes)).try_for_each(|row| line.class(row, figures))
        }
        Of::Lock(word) => {
            let mut names = Lock::TEXT;
            (0..Lock::COUNT).try_for_each(|row| {
                let (name, rest) = before(names, b' ').ok_or(core::fmt::Error)?;
                names = rest;
                let value = figures.word(Section::Locks, row, word as usize);
                line.write(Some(("lock", format_args!("{name}"))), value)
            })
        }
    }
}

/// Writes what ends the text.
pub fn end(out: &mut impl Write, format: Format) -> Result {
    match format {
        Format::OpenMetrics => out.write_str("# EOF\n"),
        Format::Text => Ok(()),
    }
}

/// Writes the metrics of one process.
pub fn process(out: &mut impl Write, format: Format, figures: &impl MetricSource) -> Result {
    for family in families() {
        header(out, &family, format)?;
        samples(out, &family, "", figures)?;
    }
    end(out, format)
}

struct MetricLine<'a, W> {
    out: &'a mut W,
    family: &'a Family,
    labels: &'a str,
}

type Label<'a> = Option<(&'static str, core::fmt::Arguments<'a>)>;

impl<W: Write> MetricLine<'_, W> {
    fn class(&mut self, row: usize, figures: &impl MetricSource) -> Result {
        let word = |word: OfClass| figures.word(Section::Classes, row, word as usize);
        if word(OfClass::Taken) == 0 && word(OfClass::Pages) == 0 {
            return Ok(());
        }
        match word(OfClass::Size) {
            0 => self.of_class(format_args!("larger"), word),
            size => self.of_class(format_args!("{size}"), word),
        }
    }

    fn of_class(
        &mut self,
        size: core::fmt::Arguments<'_>,
        word: impl Fn(OfClass) -> u64,
    ) -> Result {
        self.begin(Some(("size", size)))?;
        match self.family.of {
            Of::Class(which) => writeln!(self.out, " {}", word(which)),
            Of::ClassRatio(part, whole) => {
                const MILLION: u64 = 1_000_000;
                let whole = word(whole).max(1);
                let part = word(part).min(whole);
                let millionths = u128::from(part) * u128::from(MILLION) / u128::from(whole);
                let millionths = millionths as u64;
                writeln!(
                    self.out,
                    " {}.{:06}",
                    millionths / MILLION,
                    millionths % MILLION
                )
            }
            _ => Err(core::fmt::Error),
        }
    }

    fn write(&mut self, label: Label<'_>, value: u64) -> Result {
        self.begin(label)?;
        match self.family.scale {
            Scale::One => writeln!(self.out, " {value}"),
            Scale::Nanoseconds => {
                const SECOND: u64 = 1_000_000_000;
                writeln!(self.out, " {}.{:09}", value / SECOND, value % SECOND)
            }
            Scale::PowerOfTwo => writeln!(self.out, " {}", 1u64 << value.min(63)),
        }
    }

    /// The name and the labels of a sample.
    fn begin(&mut self, label: Label<'_>) -> Result {
        write!(self.out, "{}{}", self.family.name, self.family.suffix())?;
        match (self.labels, label) {
            ("", None) => Ok(()),
            (labels, None) => write!(self.out, "{{{labels}}}"),
            ("", Some((name, value))) => write!(self.out, "{{{name}=\"{value}\"}}"),
            (labels, Some((name, value))) => {
                write!(self.out, "{{{labels},{name}=\"{value}\"}}")
            }
        }
    }
}
