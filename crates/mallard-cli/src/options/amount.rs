//! Counts and sizes on the command line.

use std::str::FromStr;

/// A size in bytes, or a range from which random sizes are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub min: u64,
    pub max: u64,
}

/// A whole number above zero. `_` may group the digits; `k` and `M` stand for thousands and
/// millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count(pub u64);

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Count, String> {
        let digits: String = text.chars().filter(|c| *c != '_').collect();
        let (digits, factor) = match digits.strip_suffix(['k', 'K', 'm', 'M']) {
            Some(rest) if digits.ends_with(['k', 'K']) => (rest, 1_000),
            Some(rest) => (rest, 1_000_000),
            None => (digits.as_str(), 1),
        };
        let number = digits.parse().ok().and_then(|n: u64| n.checked_mul(factor));
        match number {
            Some(count @ 1..) => Ok(Count(count)),
            _ => Err("expected a number such as 500000, 500_000, 500k or 10M".to_owned()),
        }
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Sizes, String> {
        let (min, max) = text.split_once('-').unwrap_or((text, text));
        match (min.trim().parse(), max.trim().parse()) {
            (Ok(min @ 1..), Ok(max)) if min <= max => Ok(Sizes { min, max }),
            _ => Err("expected bytes such as 128, or a range such as 16-4096".to_owned()),
        }
    }
}

/// A number of bytes: `2GB`, `64M`, `64MiB`. The units are powers of 1024, as memory has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let wrong = || "expected a size such as 500k, 64M or 2GB".to_owned();
        let text = text.trim();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(wrong()),
        };
        let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
        match number.checked_mul(1 << shift) {
            Some(bytes @ 1..) => Ok(Bytes(bytes)),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_parsed_with_their_units() {
        let bytes = |text: &str| text.parse::<Bytes>().map(|bytes| bytes.0).ok();
        for (text, expected) in [
            ("4096", 4096),
            ("64k", 64 << 10),
            ("64 MiB", 64 << 20),
            ("2GB", 2 << 30),
        ] {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
        for wrong in ["", "0", "x", "1X", "-1", "1.5G", "99999999999G"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn counts_are_parsed_with_their_units() {
        let count = |text: &str| text.parse::<Count>().map(|count| count.0).ok();
        assert_eq!(count("500000"), Some(500_000));
        assert_eq!(count("500_000"), Some(500_000));
        assert_eq!(count("500k"), Some(500_000));
        assert_eq!(count("10M"), Some(10_000_000));
        for wrong in [
            "",
            "0",
            "-1",
            "k",
            "1.5k",
            "99999999999999999999",
            "99999999999999999M",
        ] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_size_is_one_number_or_a_range() {
        let sizes = |text: &str| text.parse::<Sizes>().map(|s| (s.min, s.max)).ok();
        assert_eq!(sizes("128"), Some((128, 128)));
        assert_eq!(sizes("16-4096"), Some((16, 4096)));
        for wrong in ["", "0", "9-8", "-8", "8-", "a"] {
            assert_eq!(sizes(wrong), None, "{wrong}");
        }
    }
}
