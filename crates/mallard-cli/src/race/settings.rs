//! The settings of a race, as its results show them.

use mallard_runner::Cpus;

use super::runs::Runs;
use crate::options::common::Common;

/// A name and its text.
pub type Setting = (&'static str, String);

pub fn runs(runs: Runs) -> Setting {
    ("runs", runs.to_string())
}

pub fn warm_up_runs(count: u32) -> Setting {
    ("warm-up runs", count.to_string())
}

pub fn order() -> Setting {
    let order = "allocators take turns; each follows every other equally often";
    ("order", order.to_owned())
}

pub fn cpus(cpus: &Cpus) -> Setting {
    ("CPUs", cpus.to_string())
}

pub fn memory_warmed(common: &Common) -> Setting {
    let is_warmed = if common.no_warm { "no" } else { "yes" };
    ("memory warmed before each run", is_warmed.to_owned())
}

/// The option string, if the user gave one.
pub fn conf(conf: Option<&str>) -> Option<Setting> {
    conf.map(|conf| ("option string", conf.to_owned()))
}

/// The settings in the form of the results.
pub fn owned(settings: Vec<Setting>) -> Vec<(String, String)> {
    let owned = settings.into_iter();
    owned
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
