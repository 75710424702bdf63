//! Numbers as text, the same in every table, page and message of the lab.
//!
//! Bytes have binary units. A figure has three digits at most, unless it is exact. The crates that
//! show something (`mallard-profile`, `mallard-report` and the command) build on this one, which
//! depends on nothing.

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
