//! Figures as text: three significant digits, one unit per table, and names of exit states.
//!
//! A table that mixes `41 ms` with `2.1 s` is easily misread, so one [`TimeUnit`] is chosen for all
//! values that are shown together.

pub use mallard_figures::{bytes, grouped as count};
use mallard_statistics::{Comparison, Verdict};

use crate::model::Exit;

/// Stands where there is no figure.
pub const ABSENT: &str = "–";

/// The unit of all times in a table or plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    Seconds,
    Milliseconds,
    Microseconds,
}

impl TimeUnit {
    /// The largest unit in which the greatest of these values is at least 1.
    pub fn fit(seconds: impl IntoIterator<Item = f64>) -> TimeUnit {
        match seconds.into_iter().fold(0.0, f64::max) {
            max if max >= 1.0 || max == 0.0 => TimeUnit::Seconds,
            max if max >= 1e-3 => TimeUnit::Milliseconds,
            _ => TimeUnit::Microseconds,
        }
    }

    pub fn symbol(self) -> &'static str {
        match self {
            TimeUnit::Seconds => "s",
            TimeUnit::Milliseconds => "ms",
            TimeUnit::Microseconds => "µs",
        }
    }

    /// Converts seconds to this unit.
    pub fn scale(self, seconds: f64) -> f64 {
        match self {
            TimeUnit::Seconds => seconds,
            TimeUnit::Milliseconds => seconds * 1e3,
            TimeUnit::Microseconds => seconds * 1e6,
        }
    }

    /// The number alone, for a column whose heading names the unit.
    pub fn number(self, seconds: f64) -> String {
        significant(self.scale(seconds))
    }
}

/// A single duration with a suitable unit: `412 ms`.
pub fn seconds(value: f64) -> String {
    let unit = TimeUnit::fit([value]);
    format!("{} {}", unit.number(value), unit.symbol())
}

/// A waiting time: `48 s`, `12 min 5 s`, `2 h 3 min`.
pub fn elapsed(value: f64) -> String {
    let whole = value.max(0.0).round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// At least three significant digits, never an exponent: `1840`, `12.3`, `0.0412`.
pub fn significant(value: f64) -> String {
    if !value.is_finite() {
        return ABSENT.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let decimals = |v: f64| (2 - v.abs().log10().floor() as i32).clamp(0, 9) as usize;
    // Rounding can add a digit (9.999 is 10.0, not 10.00), so check the result.
    let rounded: f64 = format!("{value:.*}", decimals(value))
        .parse()
        .unwrap_or(value);
    let places = if rounded == 0.0 {
        decimals(value)
    } else {
        decimals(rounded)
    };
    format!("{value:.places$}")
}

/// A round value on an axis, without needless digits: `0.5`, `20`, `2000`.
pub fn tick(value: f64) -> String {
    let text = significant(value);
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A ratio: `0.51`, `1.00`, `12.3`.
pub fn ratio(value: f64) -> String {
    if value.is_finite() && value < 10.0 {
        format!("{value:.2}")
    } else {
        significant(value)
    }
}

/// The ratio of a comparison in a table: a number only where the runs say one.
pub fn compared(c: &Comparison) -> String {
    match c.verdict() {
        Verdict::Less | Verdict::More => ratio(c.ratio),
        Verdict::Level => "level".to_owned(),
        Verdict::Unclear => "noise".to_owned(),
        Verdict::TooFew => "?".to_owned(),
    }
}

/// The interval of a comparison, `0.49–0.56`; for too few runs the range of the runs, `0.4…0.6`.
pub fn interval(c: &Comparison) -> String {
    match c.interval {
        Some(interval) => format!("{}–{}", end(interval.low), end(interval.high)),
        None if c.blocks == 1 => "1 run".to_owned(),
        None => format!("{}…{}", end(c.range.0), end(c.range.1)),
    }
}

/// The end of an interval. Close to 1, two decimals would hide on which side it is.
fn end(value: f64) -> String {
    if (value - 1.0).abs() < 0.095 && ratio(value) == "1.00" {
        format!("{value:.3}")
    } else {
        ratio(value)
    }
}

/// A comparison in a text: `0.52 (0.49–0.56)`, `level (0.995–1.01)`.
pub fn compared_fully(c: &Comparison) -> String {
    match c.verdict() {
        Verdict::TooFew => interval(c),
        _ => format!("{} ({})", compared(c), interval(c)),
    }
}

/// The factor by which something is behind: `1.11×`, but never `1.00×`, which would contradict
/// that.
pub fn times(value: f64) -> String {
    if value < 1.005 {
        "less than 1.01×".to_owned()
    } else {
        format!("{}×", ratio(value))
    }
}

/// A fraction as `±3%`.
pub fn plus_minus(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.5 {
        "±<1%".to_owned()
    } else {
        format!("±{percent:.0}%")
    }
}

pub const MIB: f64 = 1024.0 * 1024.0;

/// Bytes as a number of MiB, for a column whose heading names the unit.
pub fn mib(bytes: f64) -> String {
    in_mib(bytes / MIB)
}

/// A number of MiB with suitable digits.
pub fn in_mib(mib: f64) -> String {
    if mib < 10.0 {
        format!("{mib:.1}")
    } else {
        format!("{mib:.0}")
    }
}

/// A number with its noun: `1 run`, `6 runs`.
pub fn plural(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

/// A rate: `12.3 M/s`.
pub fn rate(per_second: f64) -> String {
    match per_second {
        v if v >= 1e9 => format!("{} G/s", significant(v / 1e9)),
        v if v >= 1e6 => format!("{} M/s", significant(v / 1e6)),
        v if v >= 1e3 => format!("{} k/s", significant(v / 1e3)),
        v => format!("{} /s", significant(v)),
    }
}

/// How a process ended: `0`, `3`, `SIGSEGV`.
pub fn exit(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => code.to_string(),
        Exit::Signal(number) => {
            signal_name(number).map_or(format!("signal {number}"), str::to_owned)
        }
    }
}

/// The signals that end processes, with Linux's common numbering.
fn signal_name(number: i32) -> Option<&'static str> {
    Some(match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}
