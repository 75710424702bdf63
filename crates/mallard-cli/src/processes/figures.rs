//! How the figures of a process are written where there is little room.

/// A size in at most five characters.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["", "K", "M", "G", "T", "P"];
    scaled(n as f64, 1024.0, &UNITS)
}

/// A number in at most five characters.
pub fn count(n: f64) -> String {
    const UNITS: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    scaled(n.round(), 1000.0, &UNITS)
}

fn scaled(mut n: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // Rounded, it would need a fourth digit.
    while n >= step - 0.5 && unit + 1 < units.len() {
        n /= step;
        unit += 1;
    }
    let unit = units[unit];
    match n {
        _ if unit.is_empty() => format!("{n:.0}"),
        n if n < 9.995 => format!("{n:.2}{unit}"),
        n if n < 99.95 => format!("{n:.1}{unit}"),
        _ => format!("{n:.0}{unit}"),
    }
}

pub fn percent(part: f64) -> String {
    format!("{:.0}%", 100.0 * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_five_characters_at_most() {
        let some = [
            0,
            999,
            1023,
            1024,
            10 << 10,
            1 << 20,
            (1 << 30) - 1,
            3 << 40,
        ]
        .map(bytes);
        let all = [
            "0", "999", "1023", "1.00K", "10.0K", "1.00M", "1.00G", "3.00T",
        ];
        assert_eq!(some, all);
        for n in 0..60 {
            assert!(bytes((1u64 << n) - 1).len() <= 5, "{}", bytes((1 << n) - 1));
            assert!(count(1.7f64.powi(n)).len() <= 5);
        }
        assert_eq!([count(0.2), count(1234.0)], ["0", "1.23k"]);
    }
}
