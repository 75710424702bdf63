//! The arguments of the workload that replays a plan: how fast, and what it writes to.

use std::path::Path;

/// The workload's arguments.
pub fn arguments(
    plan: &Path,
    speed: Speed,
    window_us: u128,
    touch: Touch,
    pollute: u64,
    none: bool,
) -> Vec<String> {
    vec![
        format!("plan={}", plan.display()),
        format!("speed={}", speed.0.unwrap_or(0)),
        format!("window={window_us}"),
        format!("touch={}", touch.number()),
        format!("pollute={pollute}"),
        format!("none={}", u32::from(none)),
    ]
}

/// What to write to in each block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Touch {
    /// A byte in each page that the program touched
    Page,
    /// The first byte
    First,
    /// Every byte
    All,
    /// Nothing
    None,
}

impl Touch {
    /// Its number for the workload.
    pub fn number(self) -> u32 {
        match self {
            Touch::None => 0,
            Touch::Page => 1,
            Touch::First => 2,
            Touch::All => 3,
        }
    }
}

/// How fast the recorded time passes, in hundredths; none for as fast as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speed(pub Option<u32>);

impl std::str::FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Speed, String> {
        let text = text.trim();
        if text == "max" {
            return Ok(Speed(None));
        }
        let number = text.strip_suffix('x').unwrap_or(text).parse::<f64>();
        match number.map(|number| (number * 100.0).round()) {
            Ok(hundredths) if (1.0..=1_000_000.0).contains(&hundredths) => {
                Ok(Speed(Some(hundredths as u32)))
            }
            _ => Err("expected `max`, or a factor such as 1x, 4x or 0.5x".to_owned()),
        }
    }
}

impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            None => f.write_str("max"),
            Some(hundredths) => write!(f, "{}x", f64::from(hundredths) / 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_and_shown() {
        for (text, hundredths) in [
            ("max", None),
            ("1x", Some(100)),
            ("4", Some(400)),
            ("0.5x", Some(50)),
        ] {
            let speed: Speed = text.parse().unwrap();
            assert_eq!(speed.0, hundredths, "{text}");
            assert_eq!(speed.to_string().parse(), Ok(speed));
        }
        for text in ["", "0x", "-1x", "fast", "1e9x"] {
            assert!(text.parse::<Speed>().is_err(), "{text}");
        }
    }
}
