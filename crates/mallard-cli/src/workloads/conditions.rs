//! The conditions of a `bench` session: settings for the report, and the environment of the
//! workloads.

use mallard_measure::Cpus;
use mallard_report::units;

use super::CXX_VERSION;
use crate::options::common::Common;
use crate::race::runs::Runs;

/// A workload that takes longer than this hangs.
pub const LIMIT_SECONDS: u64 = 600;
/// `cargo run` sets this variable. The workloads do not need it, and with it the loader might find
/// another library of the same name.
pub const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// Everything that is needed to repeat the session, except the experiments' own parameters.
pub fn settings(
    common: &Common,
    runs: Runs,
    cpus: &Cpus,
    ignored: &[String],
) -> Vec<(String, String)> {
    let limit = common.limit(Some(LIMIT_SECONDS));
    let mut settings = vec![
        ("runs", runs.to_string()),
        (
            "order",
            "allocators take turns; each follows every other equally often".to_owned(),
        ),
        ("CPUs", cpus.to_string()),
        (
            "memory warmed before each run",
            if common.no_warm { "no" } else { "yes" }.to_owned(),
        ),
        (
            "time limit of a run",
            limit.map_or("none".to_owned(), |limit| {
                units::elapsed(limit.as_secs_f64())
            }),
        ),
        ("workloads compiled by", CXX_VERSION.to_owned()),
        ("workloads compiled with", "-O2 -fno-builtin".to_owned()),
    ];
    if !ignored.is_empty() {
        settings.push(("removed from the environment", ignored.join(", ")));
    }
    let owned = settings.into_iter();
    owned
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Environment variables that would silently tune one of the allocators.
pub fn foreign_settings() -> Vec<String> {
    const PREFIXES: [&str; 6] = [
        "MALLOC_",
        "MALLARD_CONF",
        "_RJEM_MALLOC_CONF",
        "TCMALLOC_",
        "MIMALLOC_",
        "RPMALLOC_",
    ];
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names
        .filter(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .collect()
}
