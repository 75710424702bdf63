//! Figures as text, the same in every table, page and message of the lab: three digits unless a
//! figure is exact, binary units for bytes, one unit per table, and names of exit states.
//!
//! A table that mixes `41 ms` with `2.1 s` is easily misread, so one [`TimeUnit`] is chosen for all
//! values that are shown together.

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

/// The end of an interval. Close to 1, two decimals would hide on which side it is.
pub fn ratio_end(value: f64) -> String {
    if (value - 1.0).abs() < 0.095 && ratio(value) == "1.00" {
        format!("{value:.3}")
    } else {
        ratio(value)
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

/// A deviation in a table, as `±3%`.
pub fn deviation(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.5 {
        "±<1%".to_owned()
    } else {
        format!("±{percent:.0}%")
    }
}

/// Bytes as people read them: `812 MiB`, `1.92 GiB`, `640 B`.
pub fn bytes(value: f64) -> String {
    scaled(
        value,
        1024.0,
        &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"],
    )
}

/// A count: `6,450`, `1.3 M`.
pub fn count(value: f64) -> String {
    if value.abs() < 99_999.5 {
        return grouped(value);
    }
    scaled(value / 1e3, 1000.0, &["k", "M", "G", "T", "P"])
}

/// An exact size, such as that of a size class: `640 B`, `64 KiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let shift = (bytes.trailing_zeros() / 10).min(6) as usize;
    if bytes == 0 || shift == 0 {
        return format!("{} B", grouped(bytes as f64));
    }
    format!("{} {}", bytes >> (10 * shift), UNITS[shift])
}

/// A share: `41 %`, `4.1 %`, `<0.1 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        p if p < 0.05 => "<0.1 %".to_owned(),
        p if p < 9.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// The change that a ratio is: `+8.0 %` for 1.08, `−2.5 %` for 0.975.
pub fn change(ratio: f64) -> String {
    let change = (ratio - 1.0) * 100.0;
    let sign = if change < 0.0 { '−' } else { '+' };
    format!("{sign}{:.1} %", change.abs())
}

/// An error: `±1.6 %`.
pub fn plus_minus(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        p if p >= 9.95 => format!("±{p:.0} %"),
        p if p >= 0.095 => format!("±{p:.1} %"),
        p => format!("±{p:.2} %"),
    }
}

/// A duration of nanoseconds: `1.3 ms`, `2.1 h`.
pub fn duration(nanoseconds: f64) -> String {
    const UNITS: [(f64, &str); 7] = [
        (86_400e9, "d"),
        (3600e9, "h"),
        (60e9, "min"),
        (1e9, "s"),
        (1e6, "ms"),
        (1e3, "µs"),
        (1.0, "ns"),
    ];
    let unit = UNITS.iter().find(|(size, _)| nanoseconds.abs() >= *size);
    let (size, name) = unit.unwrap_or(&UNITS[6]);
    format!("{} {name}", digits(nanoseconds / size))
}

/// A change with its sign: `+38 MiB`, `−1.2 k`.
pub fn signed(value: f64, shown: impl Fn(f64) -> String) -> String {
    match value {
        v if v > 0.0 => format!("+{}", shown(v)),
        v if v < 0.0 => format!("−{}", shown(-v)),
        _ => "0".to_owned(),
    }
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let (mut value, mut place) = (value, 0);
    // 999.5 of a unit would be shown as 1000.
    while value.abs() >= 999.5 && place + 1 < units.len() {
        value /= step;
        place += 1;
    }
    format!("{} {}", digits(value), units[place])
}

/// Three digits, without a point that says nothing.
fn digits(value: f64) -> String {
    let text = match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A whole number with separators: `1,234,567`.
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 && digits != "0" {
        format!("-{text}")
    } else {
        text
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

/// A clause as the beginning of a sentence.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(640.0), "640 B");
        assert_eq!(bytes(1000.0), "0.98 KiB");
        assert_eq!(bytes(65_536.0), "64 KiB");
        assert_eq!(bytes(812.4 * 1048576.0), "812 MiB");
        assert_eq!(bytes(1.92 * 1073741824.0), "1.92 GiB");
        assert_eq!(count(6450.0), "6,450");
        assert_eq!(count(1_312_000.0), "1.31 M");
        assert_eq!(count(250_000.0), "250 k");
        assert_eq!(size(640), "640 B");
        assert_eq!(size(1280), "1,280 B");
        assert_eq!(size(65_536), "64 KiB");
        assert_eq!(percent(0.414), "41 %");
        assert_eq!(percent(0.041), "4.1 %");
        assert_eq!(percent(0.004), "0.4 %");
        assert_eq!(percent(0.0001), "<0.1 %");
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(change(1.08), "+8.0 %");
        assert_eq!(change(0.975), "−2.5 %");
        assert_eq!(grouped(-1_234_567.0), "-1,234,567");
        assert_eq!(plus_minus(0.016), "±1.6 %");
        assert_eq!(duration(1.3e6), "1.3 ms");
        assert_eq!(duration(7.56e12), "2.1 h");
        assert_eq!(signed(38.0 * 1048576.0, bytes), "+38 MiB");
        assert_eq!(signed(-1.0, count), "−1");
    }
}
