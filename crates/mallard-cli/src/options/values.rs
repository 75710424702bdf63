//! Reads the values of options that several commands have.

use std::time::Duration;

/// Reads the number of a process.
pub fn process(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "expected the number of a process, such as 1234".to_owned())
}

/// Reads `90` as seconds, and `1m 30s` as it stands.
pub fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.trim().parse::<f64>()
        && let Ok(time) = Duration::try_from_secs_f64(seconds)
    {
        return Ok(time);
    }
    humantime::parse_duration(text)
        .map_err(|_| "expected seconds such as 90, or a time such as 45s, 1m or 1h 30m".to_owned())
}

/// Reads a time in which something is to happen, such as `--for`.
pub fn time_to_watch(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time.is_zero() {
        return Err("nothing can be seen in no time; give it a second at least".to_owned());
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_have_units() {
        for (text, seconds) in [
            ("90", 90.0),
            ("0", 0.0),
            ("1.5", 1.5),
            ("45s", 45.0),
            ("1m 30s", 90.0),
        ] {
            assert_eq!(duration(text).unwrap().as_secs_f64(), seconds, "{text}");
        }
        for text in ["", "x", "-1", "1 fortnight"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
