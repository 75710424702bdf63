//! The rows of an experiment under given options.

use super::options::{For, Options};
use super::{Experiment, Size};
use crate::options::amount::{Count, Sizes};
use crate::workloads::setting::Setting;

/// Further settings of tune: single options, then the scenarios that tuning guides recommend.
const FURTHER: [&str; 9] = [
    "muzzy_decay_ms:5000",
    "tcache_max:65536",
    "tcache_max:131072",
    "metadata_thp:auto",
    "metadata_thp:always",
    "dirty_decay_ms:30000,muzzy_decay_ms:60000",
    "dirty_decay_ms:-1,muzzy_decay_ms:-1",
    "background_thread:true,dirty_decay_ms:2000",
    "dirty_decay_ms:1000,muzzy_decay_ms:3000",
];

/// An experiment under given options.
#[derive(Debug)]
pub struct Plan {
    pub experiment: &'static Experiment,
    /// The experiment's name, with the number of threads if several plans would share the name.
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
    /// The arguments of the workload's program.
    pub arguments: Vec<String>,
    /// The expected peak RSS.
    pub peak_bytes: u64,
    /// The approximate seconds of one run.
    pub weight: f64,
}

impl Experiment {
    /// The plans for this experiment: one, or one per number of threads if the rows vary something
    /// else. The threads share `cpus` CPUs. An error is a sentence.
    pub fn plans(&'static self, options: &Options, cpus: usize) -> Result<Vec<Plan>, String> {
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
            let name = if several {
                format!("{}-{count}-threads", self.name)
            } else {
                self.name.to_owned()
            };
            self.plan(options, cpus, name, &[count])
        });
        plans.collect()
    }

    fn plan(
        &'static self,
        options: &Options,
        cpus: usize,
        name: String,
        threads: &[u32],
    ) -> Result<Plan, String> {
        let count = For::pick(&options.count, self.name);
        let count = count.map_or(self.count[usize::from(options.quick)], |Count(count)| count);
        let sizes = self.sizes_for(For::pick(&options.size, self.name))?;
        let mut rows = Vec::new();
        for &threads in threads {
            for setting in self.settings(options) {
                rows.push(self.row_of(options, cpus, count, sizes, threads, setting));
            }
        }
        Ok(Plan {
            experiment: self,
            name,
            parameters: self.parameters(options, count, sizes, threads),
            rows,
        })
    }

    /// A row that uses the experiment's own sizes.
    pub fn row(
        &self,
        options: &Options,
        cpus: usize,
        count: u64,
        threads: u32,
        setting: Setting,
    ) -> PlannedRow {
        self.row_of(options, cpus, count, self.sizes, threads, setting)
    }

    fn row_of(
        &self,
        options: &Options,
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
            label: if by_threads {
                threads.to_string()
            } else {
                setting.label(self.axis)
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
            // The last two terms are for the warm-up and for starting the process.
            weight: blocks * self.cost_ns / 1e9 / parallel + bytes * 1e-10 + 0.03,
        }
    }

    fn thread_counts(&self, options: &Options) -> Vec<u32> {
        if self.name == "map" || options.threads.is_empty() {
            return self.threads.to_vec();
        }
        let mut threads = options.threads.clone();
        threads.sort_unstable();
        threads.dedup();
        threads
    }

    /// What the rows vary besides the threads.
    fn settings(&self, options: &Options) -> Vec<Setting> {
        fn given<T: Copy>(given: &[T], default: &[T], quick: &[T], options: &Options) -> Vec<T> {
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
        if !options.sets.is_empty() {
            settings.extend(self.sets(&options.sets));
            return settings;
        }
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
                let none = options.narenas.is_empty() && options.decay.is_empty();
                if none && options.background_thread.is_empty() {
                    let further = if options.quick {
                        &FURTHER[FURTHER.len() - 1..]
                    } else {
                        &FURTHER
                    };
                    settings.extend(further.iter().copied().map(Setting::Options));
                }
            }
            "map" => settings.push(Setting::Linked),
            _ => {}
        }
        settings
    }

    /// The rows of `--set` that this experiment varies.
    fn sets(&self, sets: &[String]) -> Vec<Setting> {
        let arenas = |set: &str| set.strip_prefix("narenas:")?.parse().ok();
        let sets = sets.iter();
        match self.name {
            "arenas" => sets
                .filter_map(|set| arenas(set))
                .map(Setting::Narenas)
                .collect(),
            // A setting is copied into every row and lives as long as the command line.
            "tune" => sets
                .map(|set| match arenas(set) {
                    Some(arenas) => Setting::Narenas(arenas),
                    None => Setting::Options(set.clone().leak()),
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    fn sizes_for(&self, given: Option<Sizes>) -> Result<Size, String> {
        let name = self.name;
        match (self.sizes, given) {
            (default, None) => Ok(default),
            (Size::One(_), Some(Sizes { min, max })) if min == max => Ok(Size::One(min)),
            (Size::One(_), Some(Sizes { min, max })) => Err(format!(
                "--size {min}-{max}: `{name}` allocates blocks of one size only; for the others use \
                 --size batch={min}-{max} --size tune={min}-{max}"
            )),
            (Size::Range(_), Some(sizes)) => Ok(Size::Range(sizes)),
            (fixed @ Size::Fixed(_), Some(_)) => Ok(fixed),
        }
    }

    fn arguments(&self, options: &Options, count: u64, sizes: Size, threads: u32) -> Vec<String> {
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
        options: &Options,
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
            add("start", "all threads at the same moment".to_owned());
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
