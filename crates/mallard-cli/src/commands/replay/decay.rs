//! The decay times of a replay that is faster than the recording.

use mallard_allocators::Allocator;

use crate::recording::arguments::Speed;

/// The time after which an allocator that reads option strings gives memory back, by default.
const DEFAULT_DECAY_MS: u64 = 10_000;

/// The option string at a speed: where recorded time passes faster than the clock, memory must go
/// back as much sooner.
pub fn conf(allocator: &Allocator, conf: Option<&str>, speed: Speed) -> Option<String> {
    let hundredths = match speed.0 {
        Some(hundredths) if hundredths > 100 && allocator.reads_conf() => u64::from(hundredths),
        _ => return conf.map(str::to_owned),
    };
    let given = [allocator.options.as_deref(), conf];
    let given: Vec<&str> = given.into_iter().flatten().collect();
    let given = given.join(",");
    let mut scaled: Vec<String> = conf.iter().map(|conf| (*conf).to_owned()).collect();
    for (name, default) in [
        ("dirty_decay_ms", Some(DEFAULT_DECAY_MS)),
        ("muzzy_decay_ms", None),
    ] {
        let chosen = given
            .split(',')
            .filter_map(|one| one.trim().strip_prefix(name)?.strip_prefix(':'))
            .next_back()
            .map(|value| value.parse::<i64>().unwrap_or(-1));
        let value = match (chosen, default) {
            (Some(value), _) => u64::try_from(value).ok(),
            (None, default) => default,
        };
        if let Some(value) = value {
            scaled.push(format!("{name}:{}", value * 100 / hundredths));
        }
    }
    (!scaled.is_empty()).then(|| scaled.join(","))
}
