//! The experiments: what each of them does, claims and varies, and the rows that follow from the
//! options. Nothing here runs anything; [`crate::bench`] does.

use mallard_allocators::{Allocator, Kind, environment};

use crate::amount::{Count, For, Sizes};
use crate::args::Bench;

/// One of the seeds' experiments, as it is by default.
#[derive(Debug)]
pub struct Experiment {
    /// Also the name of the workload's program.
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub claim: &'static str,
    pub axis: &'static str,
    /// Blocks that each thread allocates: by default, and with `--quick`.
    count: [u64; 2],
    sizes: Size,
    threads: &'static [u32],
    /// Nanoseconds that a block takes in all, roughly: for the time left.
    cost_ns: f64,
}

/// Which block sizes a workload takes.
#[derive(Debug, Clone, Copy)]
enum Size {
    One(u64),
    Range(Sizes),
    /// The program's own business, roughly of this size.
    Fixed(u64),
}

pub const ALL: [Experiment; 5] = [
    Experiment {
        name: "pairs",
        title: "malloc and free in pairs",
        description: "Each thread allocates a block, writes its first byte and frees it, over and \
                      over: the fast paths and nothing else.",
        claim: "jemalloc 2.0 times as fast as glibc with 1 thread, 1.8 times with 32, 1.7 times \
                with 64.",
        axis: "threads",
        count: [10_000_000, 1_000_000],
        sizes: Size::One(128),
        threads: &[1, 4, 16, 32, 64],
        cost_ns: 14.0,
    },
    Experiment {
        name: "batch",
        title: "many small blocks, then all freed",
        description: "Each thread allocates blocks of random small sizes into a list, then frees \
                      them all.",
        claim: "jemalloc 4.4 times as fast as glibc with 32 threads.",
        axis: "threads",
        count: [500_000, 60_000],
        sizes: Size::Range(Sizes { min: 16, max: 255 }),
        threads: &[32],
        cost_ns: 150.0,
    },
    Experiment {
        name: "arenas",
        title: "number of arenas under growth",
        description: "Each thread allocates blocks of one size and clears each, then frees them \
                      all, with different numbers of arenas.",
        claim: "On 64 CPUs, 1 arena takes 2.83 s, 4 take 1.20 s, 8 take 0.86 s, 16 take 0.81 s, \
                64 take 0.89 s.",
        axis: "narenas",
        count: [100_000, 25_000],
        sizes: Size::One(256),
        threads: &[16],
        cost_ns: 300.0,
    },
    Experiment {
        name: "tune",
        title: "settings under random sizes",
        description: "Each thread allocates blocks of random sizes up to a page and fills each, \
                      then frees them all, with different settings.",
        claim: "More arenas and longer decay bring throughput, less of both save memory; which \
                setting wins is to be measured.",
        axis: "setting",
        count: [50_000, 10_000],
        sizes: Size::Range(Sizes { min: 16, max: 4096 }),
        threads: &[16],
        cost_ns: 1500.0,
    },
    Experiment {
        name: "map",
        title: "std::map filled in order",
        description: "A C++ std::map<int, int> takes the numbers from 0 upwards and ends, in one \
                      thread, with the allocator preloaded and with it linked.",
        claim: "glibc 11.9 s, jemalloc 9.9 s, tcmalloc 9.8 s.",
        axis: "loading",
        count: [10_000_000, 1_000_000],
        sizes: Size::Fixed(40),
        threads: &[1],
        cost_ns: 300.0,
    },
];

/// What a row changes about an allocator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Setting {
    Default,
    Narenas(u32),
    DirtyDecay(i64),
    BackgroundThread(bool),
    /// Linked with the program instead of preloaded.
    Linked,
}

/// An experiment under given options.
#[derive(Debug)]
pub struct Plan {
    pub experiment: &'static Experiment,
    /// The name, and the number of threads where several would have the same name.
    pub name: String,
    pub parameters: Vec<(String, String)>,
    pub rows: Vec<PlannedRow>,
}

#[derive(Debug)]
pub struct PlannedRow {
    pub label: String,
    pub x: Option<f64>,
    pub threads: u32,
    pub setting: Setting,
    /// For the workload's program.
    pub arguments: Vec<String>,
    /// The peak to be expected.
    pub peak_bytes: u64,
    /// Seconds that a run takes, roughly.
    pub weight: f64,
}

/// The experiment of this name. The error is a sentence.
pub fn find(name: &str) -> Result<&'static Experiment, String> {
    let known = || ALL.iter().map(|experiment| experiment.name);
    if let Some(found) = ALL.iter().find(|experiment| experiment.name == name) {
        return Ok(found);
    }
    let distance = |known: &&str| strsim::damerau_levenshtein(name, known);
    let nearest = known().min_by_key(distance);
    let near = nearest.filter(|known| distance(known) <= known.len() / 2);
    let hint = near.map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
    let known = known().collect::<Vec<_>>().join(", ");
    Err(format!(
        "unknown experiment `{name}`{hint}; known are {known}"
    ))
}

/// The experiments asked for, each once, in their own order; all where none is named.
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

impl Setting {
    /// The label of its row.
    fn label(self, axis: &str) -> String {
        match self {
            Setting::Default if axis == "loading" => "preloaded".to_owned(),
            Setting::Default => mallard_report::stats::DEFAULT_ROW.to_owned(),
            Setting::Linked => "linked".to_owned(),
            Setting::Narenas(n) if axis == "narenas" => n.to_string(),
            setting => setting.conf().unwrap_or_default(),
        }
    }

    /// As an option string.
    fn conf(self) -> Option<String> {
        match self {
            Setting::Default | Setting::Linked => None,
            Setting::Narenas(n) => Some(format!("narenas:{n}")),
            Setting::DirtyDecay(ms) => Some(format!("dirty_decay_ms:{ms}")),
            Setting::BackgroundThread(on) => Some(format!("background_thread:{on}")),
        }
    }

    /// The variables that put `allocator` under a process with this setting; none where it does
    /// not have the setting.
    pub fn environment(self, allocator: &Allocator) -> Option<Vec<(String, String)>> {
        match (self, self.conf()) {
            (Setting::Linked, _) => Some(allocator.environment.clone()),
            (_, None) => Some(environment(allocator, None)),
            (_, Some(conf)) if allocator.reads_conf() => Some(environment(allocator, Some(&conf))),
            // glibc's name for the same thing.
            (Setting::Narenas(n), _) if allocator.kind == Kind::Glibc => {
                Some(vec![("MALLOC_ARENA_MAX".to_owned(), n.to_string())])
            }
            _ => None,
        }
    }
}

impl Experiment {
    /// The plans for this experiment: one, or one for each number of threads where the threads are
    /// not what the rows vary. `cpus` is how many the threads share. The error is a sentence.
    pub fn plans(&'static self, options: &Bench, cpus: usize) -> Result<Vec<Plan>, String> {
        let threads = self.thread_counts(options);
        if self.axis == "threads" {
            return Ok(vec![self.plan(
                options,
                cpus,
                self.name.to_owned(),
                &threads,
            )?]);
        }
        let several = threads.len() > 1;
        let plans = threads.iter().map(|&count| {
            let name = match several {
                true => format!("{}-{count}-threads", self.name),
                false => self.name.to_owned(),
            };
            self.plan(options, cpus, name, &[count])
        });
        plans.collect()
    }

    fn plan(
        &'static self,
        options: &Bench,
        cpus: usize,
        name: String,
        threads: &[u32],
    ) -> Result<Plan, String> {
        let count = For::pick(&options.count, self.name);
        let count = count.map_or(self.count[usize::from(options.quick)], |Count(count)| count);
        let sizes = self.sizes(For::pick(&options.size, self.name))?;
        let mut rows = Vec::new();
        for &threads in threads {
            for setting in self.settings(options) {
                rows.push(self.row(options, cpus, count, sizes, threads, setting));
            }
        }
        Ok(Plan {
            experiment: self,
            name,
            parameters: self.parameters(options, count, sizes, threads),
            rows,
        })
    }

    fn row(
        &self,
        options: &Bench,
        cpus: usize,
        count: u64,
        sizes: Size,
        threads: u32,
        setting: Setting,
    ) -> PlannedRow {
        let parallel = cpus.min(threads as usize).max(1) as f64;
        let blocks = count as f64 * f64::from(threads);
        let bytes = match self.name {
            "pairs" => 0.0,
            _ => blocks * (sizes.mean() + 24.0),
        };
        let by_threads = self.axis == "threads";
        PlannedRow {
            label: match by_threads {
                true => threads.to_string(),
                false => setting.label(self.axis),
            },
            x: match setting {
                _ if by_threads => Some(f64::from(threads)),
                Setting::Narenas(n) if self.axis == "narenas" => Some(f64::from(n)),
                _ => None,
            },
            threads,
            setting,
            arguments: self.arguments(options, count, sizes, threads),
            peak_bytes: bytes as u64,
            // A process and the warm-up before it cost something too.
            weight: blocks * self.cost_ns / 1e9 / parallel + bytes * 1e-10 + 0.03,
        }
    }

    fn thread_counts(&self, options: &Bench) -> Vec<u32> {
        if self.name == "map" || options.threads.is_empty() {
            return self.threads.to_vec();
        }
        let mut threads = options.threads.clone();
        threads.sort_unstable();
        threads.dedup();
        threads
    }

    /// What the rows vary besides the threads.
    fn settings(&self, options: &Bench) -> Vec<Setting> {
        fn given<T: Copy>(given: &[T], default: &[T], quick: &[T], options: &Bench) -> Vec<T> {
            match (given.is_empty(), options.quick) {
                (false, _) => given.to_vec(),
                (true, true) => quick.to_vec(),
                (true, false) => default.to_vec(),
            }
        }
        let narenas = |default: &[u32]| {
            given(&options.narenas, default, &[1, 16], options)
                .into_iter()
                .map(Setting::Narenas)
        };
        let mut settings = vec![Setting::Default];
        match self.name {
            "arenas" => settings.extend(narenas(&[1, 4, 8, 16, 32, 64])),
            "tune" => {
                settings.extend(narenas(&[1, 4, 8, 16, 32]));
                let decay = given(
                    &options.decay,
                    &[0, 1000, 5000, 30000, -1],
                    &[0, -1],
                    options,
                );
                settings.extend(decay.into_iter().map(Setting::DirtyDecay));
                let background = &options.background_thread;
                let background = given(background, &[true, false], &[true], options);
                settings.extend(background.into_iter().map(Setting::BackgroundThread));
            }
            "map" => settings.push(Setting::Linked),
            _ => {}
        }
        settings
    }

    fn sizes(&self, given: Option<Sizes>) -> Result<Size, String> {
        let name = self.name;
        match (self.sizes, given) {
            (default, None) => Ok(default),
            (Size::One(_), Some(Sizes { min, max })) if min == max => Ok(Size::One(min)),
            (Size::One(_), Some(Sizes { min, max })) => Err(format!(
                "--size {min}-{max}: `{name}` allocates blocks of one size; for the others write \
                 --size batch={min}-{max} --size tune={min}-{max}"
            )),
            (Size::Range(_), Some(sizes)) => Ok(Size::Range(sizes)),
            (fixed @ Size::Fixed(_), Some(_)) => Ok(fixed),
        }
    }

    fn arguments(&self, options: &Bench, count: u64, sizes: Size, threads: u32) -> Vec<String> {
        let mut arguments = vec![format!("count={count}")];
        match sizes {
            Size::One(size) => arguments.push(format!("size={size}")),
            Size::Range(Sizes { min, max }) => {
                arguments.extend([format!("min={min}"), format!("max={max}")]);
            }
            Size::Fixed(_) => return arguments,
        }
        arguments.push(format!("threads={threads}"));
        arguments.push(format!("together={}", u8::from(options.together)));
        if self.name == "batch" {
            arguments.push(format!("touch={}", u8::from(options.touch)));
        }
        arguments
    }

    fn parameters(
        &self,
        options: &Bench,
        count: u64,
        sizes: Size,
        threads: &[u32],
    ) -> Vec<(String, String)> {
        let mut parameters = Vec::new();
        let mut add = |name: &str, value: String| parameters.push((name.to_owned(), value));
        add("blocks per thread", count.to_string());
        match sizes {
            Size::One(size) => add("block size", format!("{size} bytes")),
            Size::Range(Sizes { min, max }) => {
                add("block sizes", format!("{min} to {max} bytes, random"));
            }
            Size::Fixed(_) => {}
        }
        if let ([threads], true) = (threads, self.axis != "threads") {
            add("threads", threads.to_string());
        }
        if options.together && self.name != "map" {
            add("start", "all threads together".to_owned());
        }
        if options.touch && self.name == "batch" {
            add("blocks are", "written to".to_owned());
        }
        if self
            .settings(options)
            .iter()
            .any(|setting| matches!(setting, Setting::Narenas(_)))
        {
            add("narenas in glibc", "MALLOC_ARENA_MAX".to_owned());
        }
        parameters
    }
}

impl Size {
    fn mean(self) -> f64 {
        match self {
            Size::One(size) | Size::Fixed(size) => size as f64,
            Size::Range(Sizes { min, max }) => (min as f64 + max as f64) / 2.0,
        }
    }
}

#[cfg(test)]
mod tests;
