//! The conditions of a `bench` session: settings for the report, and the environment of the
//! workloads.

use mallard_formats::variables;
use mallard_report::units;
use mallard_runner::Cpus;

use super::CXX_VERSION;
use crate::options::common::Common;
use crate::race::runs::Runs;
use crate::race::settings;

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
    let mut shown = vec![
        settings::runs(runs),
        settings::order(),
        settings::cpus(cpus),
        settings::memory_warmed(common),
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
        shown.push(("removed from the environment", ignored.join(", ")));
    }
    settings::owned(shown)
}

/// Environment variables that would silently tune one of the allocators. `GLIBC_TUNABLES` is not
/// among them: [`mallard_allocators::environment`] keeps the user's value in front of an
/// allocator's own, so removing it would reach only the allocators without one.
pub fn foreign_settings() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names
        .filter(|name| variables::is_option(name) && name != "GLIBC_TUNABLES")
        .collect()
}
