//! The main row of each basic experiment as a row of the suite: without the settings that the
//! experiment varies, and with less work where many threads only confirm the result of few.

use std::sync::LazyLock;

use super::{Group, Program, SuiteRow};
use crate::commands::bench::experiments;
use crate::commands::bench::experiments::options::Options;
use crate::workloads::setting::Setting;

/// What the suite defines for such a row. The experiment defines everything else.
struct Main {
    name: &'static str,
    experiment: &'static str,
    threads: u32,
    setting: Setting,
    /// Blocks that each thread allocates, in full and with `--quick`.
    count: [u64; 2],
    seconds: [f64; 2],
}

const fn pairs(name: &'static str, threads: u32, count: [u64; 2], seconds: [f64; 2]) -> Main {
    Main {
        name,
        experiment: "pairs",
        threads,
        setting: Setting::Default,
        count,
        seconds,
    }
}

const fn map(name: &'static str, setting: Setting) -> Main {
    Main {
        name,
        experiment: "map",
        threads: 1,
        setting,
        count: [10_000_000, 1_000_000],
        seconds: [1.5, 0.15],
    }
}

const fn of_16_threads(name: &'static str, count: [u64; 2], seconds: [f64; 2]) -> Main {
    Main {
        name,
        experiment: name,
        threads: 16,
        setting: Setting::Default,
        count,
        seconds,
    }
}

const MAIN: [Main; 10] = [
    pairs("pairs-1", 1, [20_000_000, 4_000_000], [0.3, 0.06]),
    pairs("pairs-4", 4, [10_000_000, 2_000_000], [0.3, 0.06]),
    pairs("pairs-16", 16, [3_000_000, 600_000], [0.35, 0.07]),
    pairs("pairs-32", 32, [1_500_000, 300_000], [0.35, 0.07]),
    pairs("pairs-64", 64, [750_000, 150_000], [0.35, 0.07]),
    Main {
        name: "batch",
        experiment: "batch",
        threads: 32,
        setting: Setting::Default,
        count: [500_000, 60_000],
        seconds: [1.2, 0.2],
    },
    of_16_threads("arenas", [100_000, 25_000], [0.3, 0.08]),
    of_16_threads("tune", [50_000, 10_000], [1.2, 0.25]),
    map("map", Setting::Default),
    map("map-linked", Setting::Linked),
];

/// The rows, made once.
pub fn rows() -> &'static [SuiteRow] {
    static ROWS: LazyLock<Vec<SuiteRow>> = LazyLock::new(|| MAIN.iter().map(row).collect());
    &ROWS
}

fn row(main: &Main) -> SuiteRow {
    let experiment = experiments::find(main.experiment).expect("the experiment exists");
    let [full, quick] = main
        .count
        .map(|count| experiment.row(&Options::default(), 1, count, main.threads, main.setting));
    SuiteRow {
        name: main.name,
        group: Group::Basic,
        title: match main.setting {
            Setting::Linked => format!("{}, allocator linked", experiment.title).leak(),
            _ => experiment.title,
        },
        description: experiment.description,
        seconds_are: None,
        peak_bytes: [full.peak_bytes, quick.peak_bytes],
        program: Program::Workload {
            name: experiment.name,
            arguments: kept(full.arguments),
            quick: kept(quick.arguments),
        },
        threads: main.threads,
        seconds: main.seconds,
        setting: main.setting,
        nodes: 1,
    }
}

/// Leaks the words to make them static. The rows are made only once.
fn kept(words: Vec<String>) -> &'static [&'static str] {
    let words = words.into_iter().map(|word| &*word.leak());
    words.collect::<Vec<_>>().leak()
}
