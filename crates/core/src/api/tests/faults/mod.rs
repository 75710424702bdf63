//! Failures on purpose: scenarios in which one call of the system fails, or all from one on, or
//! two at random.
//!
//! Each scenario runs once to count its fault points (`sys::faults`), and then again and again,
//! each time in a forked process of its own that has not called the allocator before. What must
//! hold: no signal; null and `ENOMEM`, or success; `errno` stays otherwise; the contents of blocks
//! stay; when all is freed, no page and no record is lost; and the next request succeeds.
//!
//! `cargo test` runs a sample. With `MALLARD_EVERY_FAULT=1` every case runs, in minutes.
//! `MALLARD_FAULT` repeats a case by the words with which it is reported, and `MALLARD_FAULT_SEED`
//! is the seed of the pairs.

mod process;
mod scenarios;
mod sweep;
mod world;

use scenarios::SCENARIOS;

/// Runs the scenario of this name.
fn sweep(name: &str) {
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name);
    sweep::sweep(scenario.expect("there is such a scenario"));
}

/// A test for each scenario, because they run in parallel.
macro_rules! tests {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                crate::testing::own_process!();
                sweep(stringify!($name));
            }
        )*

        #[test]
        fn every_scenario_is_run() {
            let run = [$(stringify!($name)),*];
            assert!(SCENARIOS.iter().map(|scenario| scenario.name).eq(run));
        }
    };
}

tests! {
    start start_with_options fill without_caches runs large resize purge trimmed hooks threads
    forks tailored sampled guards page arenas caches background
}
