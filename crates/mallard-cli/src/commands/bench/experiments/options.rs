//! The options of the basic experiments.

use std::str::FromStr;

use crate::options::amount::{Count, Sizes};

/// `[EXPERIMENT=]VALUE`: what `--count` and `--size` take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct For<T> {
    /// `None` means all experiments.
    pub experiment: Option<&'static str>,
    pub value: T,
}

/// How much work the rows do, and which values the experiments vary.
#[derive(Debug, Default, clap::Args)]
pub struct Options {
    /// Numbers of threads for pairs, batch, arenas and tune [default: pairs: 1,4,16,32,64; batch:
    /// 32; arenas and tune: 16]
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: Vec<u32>,

    /// Do less work in each run, in under two minutes
    #[arg(short, long)]
    pub quick: bool,

    /// Blocks that each thread allocates, in all experiments or in one [default: pairs and map:
    /// 10M; batch: 500k; arenas: 100k; tune: 50k; fewer with --quick]
    #[arg(long, value_name = "[EXPERIMENT=]N")]
    pub count: Vec<For<Count>>,

    /// Block size in bytes, or a range for random sizes [default: pairs: 128; batch: 16-255;
    /// arenas: 256; tune: 16-4096]
    #[arg(long, value_name = "[EXPERIMENT=]BYTES[-BYTES]")]
    pub size: Vec<For<Sizes>>,

    /// Settings to try in tune, and in arenas those of narenas: each option string is one row, such
    /// as dirty_decay_ms:0,muzzy_decay_ms:0 (can be repeated)
    #[arg(long = "set", value_name = "KEY:VALUE,…")]
    pub sets: Vec<String>,

    /// Numbers of arenas to try in arenas and tune
    #[arg(hide = true, long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4095))]
    pub narenas: Vec<u32>,

    /// Values of dirty_decay_ms to try in tune
    #[arg(hide = true, long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true, value_parser = clap::value_parser!(i64).range(-1..))]
    pub decay: Vec<i64>,

    /// Values of background_thread to try in tune: true, false
    #[arg(
        hide = true,
        long,
        value_name = "LIST",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    pub background_thread: Vec<bool>,

    /// Start all threads at the same moment, so that their blocks exist at the same time
    #[arg(long)]
    pub together: bool,

    /// Write a byte to every block in batch, which leaves them untouched by default
    #[arg(long)]
    pub touch: bool,
}

impl Options {
    /// An option on the command line that applies only to the basic experiments.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--threads", !self.threads.is_empty()),
            ("--count", !self.count.is_empty()),
            ("--size", !self.size.is_empty()),
            ("--set", !self.sets.is_empty()),
            ("--narenas", !self.narenas.is_empty()),
            ("--decay", !self.decay.is_empty()),
            ("--background-thread", !self.background_thread.is_empty()),
            ("--together", self.together),
            ("--touch", self.touch),
        ];
        given
            .iter()
            .find(|(_, given)| *given)
            .map(|(name, _)| *name)
    }
}

impl<T: Copy> For<T> {
    /// The value for an experiment: the last one that names it, or else the last one for all.
    pub fn pick(given: &[For<T>], experiment: &str) -> Option<T> {
        let last = |wanted: &dyn Fn(&For<T>) -> bool| given.iter().rev().find(|g| wanted(g));
        last(&|g| g.experiment == Some(experiment))
            .or_else(|| last(&|g| g.experiment.is_none()))
            .map(|g| g.value)
    }
}

impl<T: FromStr<Err = String>> FromStr for For<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<For<T>, String> {
        let (experiment, value) = match text.split_once('=') {
            Some((name, value)) => (Some(super::find(name)?.name), value),
            None => (None, text),
        };
        let value = value.parse()?;
        Ok(For { experiment, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_for_one_experiment_takes_precedence_over_one_for_all() {
        let given: Vec<For<Count>> = ["7", "pairs=8", "9"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        assert_eq!(For::pick(&given, "pairs"), Some(Count(8)));
        assert_eq!(For::pick(&given, "batch"), Some(Count(9)));
        assert_eq!(For::pick(&[], "batch"), None::<Count>);
    }

    #[test]
    fn a_value_for_an_unknown_experiment_is_rejected_with_the_nearest() {
        let error = "pair=8".parse::<For<Count>>().unwrap_err();
        assert!(error.contains("did you mean `pairs`?"), "{error}");
    }
}
