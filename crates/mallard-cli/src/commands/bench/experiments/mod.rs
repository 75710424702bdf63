//! The basic experiments: what each does and varies, and the published claim about it.
//!
//! [`options`] holds the options on the command line, and [`plan`] the resulting rows.
//! [`crate::commands::bench`] runs them. The full suite takes its first rows from here.

pub mod options;
pub mod plan;

use crate::options::amount::Sizes;

/// One of the basic experiments, with its defaults.
#[derive(Debug)]
pub struct Experiment {
    /// Also the name of the workload's program.
    pub name: &'static str,
    pub title: &'static str,
    /// The pattern of allocation.
    pub description: &'static str,
    /// A sentence on what its rows vary besides the number of threads, or empty.
    varies: &'static str,
    pub claim: &'static str,
    pub axis: &'static str,
    /// Blocks that each thread allocates: by default, and with `--quick`.
    pub count: [u64; 2],
    pub sizes: Size,
    pub threads: &'static [u32],
    /// The approximate total time per block in nanoseconds, for the estimate of the time left.
    pub cost_ns: f64,
}

/// Which block sizes a workload takes.
#[derive(Debug, Clone, Copy)]
pub enum Size {
    One(u64),
    Range(Sizes),
    /// The program chooses them; this is their approximate mean.
    Fixed(u64),
}

pub const ALL: [Experiment; 5] = [
    Experiment {
        name: "pairs",
        title: "malloc and free in pairs",
        description: "Each thread allocates a block, writes its first byte and frees it, over and \
                      over. This runs only the fast paths.",
        varies: "",
        claim: "jemalloc 2.0 times as fast as glibc with 1 thread, 1.8 times with 32, 1.7 times \
                with 64.",
        axis: "threads",
        count: [10_000_000, 600_000],
        sizes: Size::One(128),
        threads: &[1, 4, 16, 32, 64],
        cost_ns: 14.0,
    },
    Experiment {
        name: "batch",
        title: "many small blocks, then all freed",
        description: "Each thread allocates blocks of random small sizes into a list, then frees \
                      them all.",
        varies: "",
        claim: "jemalloc 4.4 times as fast as glibc with 32 threads.",
        axis: "threads",
        count: [500_000, 40_000],
        sizes: Size::Range(Sizes { min: 16, max: 255 }),
        threads: &[32],
        cost_ns: 150.0,
    },
    Experiment {
        name: "arenas",
        title: "growth in many threads",
        description: "Each thread allocates blocks of one size and clears each, then frees them \
                      all.",
        varies: "The rows differ in the number of arenas.",
        claim: "On 64 CPUs, 1 arena takes 2.83 s, 4 take 1.20 s, 8 take 0.86 s, 16 take 0.81 s, \
                64 take 0.89 s.",
        axis: "narenas",
        count: [100_000, 15_000],
        sizes: Size::One(256),
        threads: &[16],
        cost_ns: 300.0,
    },
    Experiment {
        name: "tune",
        title: "random sizes up to a page",
        description: "Each thread allocates blocks of random sizes up to a page and fills each, \
                      then frees them all.",
        varies: "The rows differ in one setting each.",
        claim: "More arenas and longer decay raise throughput, less of both saves memory; which \
                setting wins must be measured.",
        axis: "setting",
        count: [50_000, 6_000],
        sizes: Size::Range(Sizes { min: 16, max: 4096 }),
        threads: &[16],
        cost_ns: 1500.0,
    },
    Experiment {
        name: "map",
        title: "std::map filled in order",
        description: "A C++ std::map<int, int> is filled with the numbers from 0 upwards and destroyed, in one \
                      thread.",
        varies: "The rows differ in how the program gets the allocator: preloaded or linked.",
        claim: "glibc 11.9 s, jemalloc 9.9 s, tcmalloc 9.8 s.",
        axis: "loading",
        count: [10_000_000, 600_000],
        sizes: Size::Fixed(40),
        threads: &[1],
        cost_ns: 300.0,
    },
];

fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|experiment| experiment.name)
}

/// The name of an experiment that this one may be meant for.
pub fn nearest(name: &str) -> Option<&'static str> {
    let distance = |known: &&str| strsim::damerau_levenshtein(name, known);
    let nearest = names().min_by_key(distance);
    nearest.filter(|known| distance(known) <= known.len() / 2)
}

/// The experiment with this name. An error is a sentence.
pub fn find(name: &str) -> Result<&'static Experiment, String> {
    if let Some(found) = ALL.iter().find(|experiment| experiment.name == name) {
        return Ok(found);
    }
    let near = nearest(name);
    let hint = near.map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
    let known = names().collect::<Vec<_>>().join(", ");
    Err(format!(
        "unknown experiment `{name}`{hint}; choose from {known}"
    ))
}

/// The requested experiments without duplicates, in their own order; all if none is named.
pub fn select<S: AsRef<str>>(names: &[S]) -> Result<Vec<&'static Experiment>, String> {
    let mut wanted = Vec::new();
    for name in names.iter().map(|name| name.as_ref().trim()) {
        if name != "all" {
            wanted.push(find(name)?.name);
        }
    }
    let everything = wanted.is_empty();
    let chosen = ALL.iter();
    Ok(chosen
        .filter(|experiment| everything || wanted.contains(&experiment.name))
        .collect())
}

impl Experiment {
    /// The description, including what the rows vary.
    pub fn described(&self) -> String {
        [self.description, self.varies]
            .join(" ")
            .trim_end()
            .to_owned()
    }
}

impl Size {
    /// The mean size in bytes.
    pub fn mean(self) -> f64 {
        match self {
            Size::One(size) | Size::Fixed(size) => size as f64,
            Size::Range(Sizes { min, max }) => (min as f64 + max as f64) / 2.0,
        }
    }
}

#[cfg(test)]
mod tests;
