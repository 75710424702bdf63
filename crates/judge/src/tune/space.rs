//! What can be set: the options that are worth trying, with a few sensible values each.
//!
//! Options without effect (docs/options.md) are never tried. The first value of each option is its
//! default, which stands for leaving the option out. Numbers are spread by factors, because that is
//! how such options act.

use std::collections::BTreeMap;

use crate::diagnose::model::TroubleKey;

/// An option of an allocator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knob {
    pub key: String,
    /// The first is the default.
    pub values: Vec<String>,
    /// Whether values between and beyond these make sense.
    pub is_number: bool,
}

/// An allocator with some options set; options at their defaults are left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Setting {
    pub allocator: String,
    pub options: BTreeMap<String, String>,
}

impl Setting {
    pub fn default_of(allocator: &str) -> Setting {
        Setting {
            allocator: allocator.to_owned(),
            options: BTreeMap::new(),
        }
    }

    /// The same with one option at a value, which may be its default.
    pub fn with(&self, knob: &Knob, value: &str) -> Setting {
        let mut changed = self.clone();
        if knob.values.first().is_some_and(|default| default == value) {
            changed.options.remove(&knob.key);
        } else {
            changed.options.insert(knob.key.clone(), value.to_owned());
        }
        changed
    }

    /// The value of an option, its default if it is left out.
    pub fn value<'a>(&'a self, knob: &'a Knob) -> &'a str {
        self.options
            .get(&knob.key)
            .map_or(knob.values[0].as_str(), String::as_str)
    }

    /// The options as Mallard and jemalloc read them.
    pub fn conf(&self) -> String {
        let options = self
            .options
            .iter()
            .map(|(key, value)| format!("{key}:{value}"));
        options.collect::<Vec<_>>().join(",")
    }

    /// The name in tables.
    pub fn shown(&self) -> String {
        if self.options.is_empty() {
            self.allocator.clone()
        } else {
            format!("{} {}", self.allocator, self.conf())
        }
    }
}

/// The options of an allocator, by its name in the catalog, on a machine with some CPUs.
pub fn knobs(allocator: &str, cpus: usize) -> Vec<Knob> {
    let arenas: Vec<String> = [1usize, 4, 16, 32, 64]
        .into_iter()
        .filter(|arenas| *arenas <= 4 * cpus.max(1))
        .map(|arenas| arenas.to_string())
        .collect();
    let numbers = |key: &str, values: &[&str]| knob(key, values, true);
    let words = |key: &str, values: &[&str]| knob(key, values, false);
    let with_default = |default: &str, more: &[String]| -> Vec<String> {
        std::iter::once(default.to_owned())
            .chain(more.iter().cloned())
            .collect()
    };
    match allocator {
        "mallard" => vec![
            Knob {
                key: "narenas".to_owned(),
                values: with_default("default", &arenas),
                is_number: true,
            },
            words("percpu_arena", &["disabled", "percpu"]),
            numbers(
                "tcache_max",
                &["65536", "4096", "32768", "131072", "262144"],
            ),
            numbers("dirty_decay_ms", &["10000", "0", "1000", "30000", "-1"]),
            words("background_thread", &["auto", "true", "false"]),
            words("thp", &["auto", "always", "never"]),
            words("dirty_max", &["none", "25%"]),
            words("tailored_classes", &["true", "false"]),
        ],
        "jemalloc" => vec![
            Knob {
                key: "narenas".to_owned(),
                values: with_default(&(4 * cpus).to_string(), &arenas),
                is_number: true,
            },
            words("percpu_arena", &["disabled", "percpu"]),
            numbers("lg_tcache_max", &["15", "12", "17", "18"]),
            numbers("dirty_decay_ms", &["10000", "0", "1000", "30000", "-1"]),
            numbers("muzzy_decay_ms", &["0", "10000"]),
            words("background_thread", &["false", "true"]),
            words("thp", &["default", "always", "never"]),
            words("metadata_thp", &["disabled", "auto"]),
        ],
        "glibc" => vec![
            Knob {
                key: "arena_max".to_owned(),
                values: with_default(&(8 * cpus).to_string(), &arenas),
                is_number: true,
            },
            numbers("trim_threshold", &["131072", "16777216", "1073741824"]),
            numbers("mmap_threshold", &["131072", "4194304", "1073741824"]),
            numbers("tcache_count", &["7", "64", "1000"]),
            numbers("top_pad", &["131072", "16777216"]),
            words("hugetlb", &["0", "1"]),
        ],
        _ => Vec::new(),
    }
}

/// The options that act on each trouble of a diagnosis, the likeliest first.
static AGAINST: [(TroubleKey, &[&str]); 11] = [
    (
        TroubleKey::Locks,
        &[
            "narenas",
            "arena_max",
            "percpu_arena",
            "tcache_max",
            "lg_tcache_max",
            "tcache_count",
        ],
    ),
    (
        TroubleKey::Growth,
        &["thp", "hugetlb", "top_pad", "metadata_thp"],
    ),
    (
        TroubleKey::Trim,
        &[
            "trim_threshold",
            "top_pad",
            "dirty_decay_ms",
            "muzzy_decay_ms",
        ],
    ),
    (
        TroubleKey::Mmap,
        &["mmap_threshold", "dirty_decay_ms", "muzzy_decay_ms"],
    ),
    (
        TroubleKey::Decay,
        &["dirty_decay_ms", "muzzy_decay_ms", "dirty_max"],
    ),
    (
        TroubleKey::SlowPurge,
        &[
            "background_thread",
            "dirty_decay_ms",
            "trim_threshold",
            "mmap_threshold",
        ],
    ),
    (
        TroubleKey::HandOff,
        &[
            "narenas",
            "arena_max",
            "tcache_max",
            "lg_tcache_max",
            "tcache_count",
        ],
    ),
    (
        TroubleKey::Caches,
        &[
            "tcache_max",
            "lg_tcache_max",
            "tcache_count",
            "mmap_threshold",
        ],
    ),
    (
        TroubleKey::Work,
        &[
            "tcache_max",
            "lg_tcache_max",
            "tcache_count",
            "tailored_classes",
            "thp",
        ],
    ),
    (
        TroubleKey::HeldBack,
        &[
            "dirty_decay_ms",
            "dirty_max",
            "background_thread",
            "arena_max",
            "trim_threshold",
        ],
    ),
    (
        TroubleKey::Pinned,
        &["narenas", "arena_max", "tailored_classes", "thp"],
    ),
];

/// Puts the options against the troubles first. Where the budget does not allow all values, those
/// that come last are not tried.
pub fn order(knobs: &mut [Knob], troubles: &[TroubleKey]) {
    let wanted: Vec<&str> = troubles
        .iter()
        .filter_map(|trouble| AGAINST.iter().find(|(key, _)| key == trouble))
        .flat_map(|(_, options)| options.iter().copied())
        .collect();
    let rank = |knob: &Knob| wanted.iter().position(|key| *key == knob.key);
    knobs.sort_by_key(|knob| rank(knob).unwrap_or(usize::MAX));
}

fn knob(key: &str, values: &[&str], is_number: bool) -> Knob {
    Knob {
        key: key.to_owned(),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
        is_number,
    }
}

/// Half and twice a number, where it is one above zero.
pub fn neighbours(value: &str) -> Vec<String> {
    match value.parse::<i64>() {
        Ok(number) if number >= 2 => vec![(number / 2).to_string(), (number * 2).to_string()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_against_what_was_found_come_first_and_the_others_keep_their_order() {
        let mut knobs = ["thp", "narenas", "dirty_decay_ms", "tcache_max"]
            .map(|key| knob(key, &["0", "1"], false));
        order(&mut knobs, &[TroubleKey::HeldBack, TroubleKey::Locks]);
        let keys: Vec<&str> = knobs.iter().map(|knob| knob.key.as_str()).collect();
        assert_eq!(keys, ["dirty_decay_ms", "narenas", "tcache_max", "thp"]);
        order(&mut knobs, &[TroubleKey::Leak]);
        assert_eq!(knobs[0].key, "dirty_decay_ms", "nothing acts on a leak");
    }

    #[test]
    fn a_default_is_left_out_of_the_string() {
        let knob = knob("dirty_decay_ms", &["10000", "0"], true);
        let plain = Setting::default_of("mallard");
        let set = plain.with(&knob, "0");
        assert_eq!(
            (set.conf().as_str(), set.value(&knob)),
            ("dirty_decay_ms:0", "0")
        );
        assert_eq!(set.with(&knob, "10000"), plain);
        assert_eq!(plain.value(&knob), "10000");
        assert_eq!(neighbours("16"), ["8", "32"]);
        assert!(neighbours("-1").is_empty() && neighbours("always").is_empty());
    }
}
