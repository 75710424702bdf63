//! What runs of random settings say about each value of each option.
//!
//! Every run sets all options at once, so every run says something about all of them; trying one
//! option at a time would take several times as many. The score of a run is taken as the sum of its
//! block (whatever slowed all runs of that time), of one effect for each value, and of noise.

use std::collections::BTreeMap;

use super::space::{Knob, Setting};

/// One run with its score.
#[derive(Debug, Clone)]
pub struct Observation {
    pub block: usize,
    pub setting: Setting,
    pub score: f64,
}

/// The effects of all values, relative to the mean of their option.
#[derive(Debug, Clone, Default)]
pub struct Fit {
    /// By option and value: the effect, and the number of runs that had it.
    effects: BTreeMap<(String, String), (f64, usize)>,
    /// The standard deviation of a run's score beside what the model explains.
    pub noise: f64,
}

/// Rounds of the fit; the steps of the last are far below any noise.
const FIT_ROUNDS: usize = 20;

/// Fits block effects and value effects to the observations, alternately.
pub fn fit(observations: &[Observation], knobs: &[Knob]) -> Fit {
    let mut values = Values::default();
    // Of each observation: its block and its value of each option, by number.
    let rows: Vec<(usize, Vec<usize>, f64)> = observations
        .iter()
        .map(|o| {
            let own = knobs
                .iter()
                .map(|knob| values.number(&knob.key, o.setting.value(knob)));
            (o.block, own.collect(), o.score)
        })
        .collect();
    let count = rows.iter().map(|row| row.0 + 1).max().unwrap_or(0);
    let mut blocks = vec![(0.0, 0usize); count];
    let mut effects = vec![(0.0, 0usize); values.names.len()];
    for _ in 0..FIT_ROUNDS {
        let explained = |own: &[usize], effects: &[(f64, usize)]| -> f64 {
            own.iter().map(|value| effects[*value].0).sum()
        };
        let means = |sums: Vec<(f64, usize)>| -> Vec<(f64, usize)> {
            sums.into_iter()
                .map(|(sum, count)| (sum / count.max(1) as f64, count))
                .collect()
        };
        let mut sums = vec![(0.0, 0usize); count];
        for (block, own, score) in &rows {
            sums[*block].0 += score - explained(own, &effects);
            sums[*block].1 += 1;
        }
        blocks = means(sums);
        for knob in 0..knobs.len() {
            let mut sums = vec![(0.0, 0usize); effects.len()];
            for (block, own, score) in &rows {
                let others = explained(own, &effects) - effects[own[knob]].0;
                sums[own[knob]].0 += score - blocks[*block].0 - others;
                sums[own[knob]].1 += 1;
            }
            for (value, mean) in means(sums)
                .into_iter()
                .enumerate()
                .filter(|(_, mean)| mean.1 > 0)
            {
                effects[value] = mean;
            }
        }
    }
    let rest = |(block, own, score): &(usize, Vec<usize>, f64)| {
        let explained: f64 = own.iter().map(|value| effects[*value].0).sum();
        (score - blocks[*block].0 - explained).powi(2)
    };
    let squares: f64 = rows.iter().map(rest).sum();
    let used = blocks.iter().filter(|block| block.1 > 0).count();
    let parameters = used + effects.len().saturating_sub(knobs.len());
    let freedom = rows.len().saturating_sub(parameters).max(1);
    Fit {
        effects: values.names.into_iter().zip(effects).collect(),
        noise: (squares / freedom as f64).sqrt(),
    }
}

/// Numbers for the values of options.
#[derive(Default)]
struct Values {
    numbers: BTreeMap<String, BTreeMap<String, usize>>,
    names: Vec<(String, String)>,
}

impl Values {
    fn number(&mut self, key: &str, value: &str) -> usize {
        if let Some(number) = self.numbers.get(key).and_then(|of| of.get(value)) {
            return *number;
        }
        let number = self.names.len();
        self.names.push((key.to_owned(), value.to_owned()));
        let of = self.numbers.entry(key.to_owned()).or_default();
        of.insert(value.to_owned(), number);
        number
    }
}

impl Fit {
    fn of(&self, knob: &Knob, value: &str) -> Option<(f64, usize)> {
        self.effects
            .get(&(knob.key.clone(), value.to_owned()))
            .copied()
    }

    /// The best of some values: that with the lowest effect.
    pub fn best<'a>(&self, knob: &Knob, values: &'a [String]) -> Option<&'a str> {
        let known = values
            .iter()
            .filter_map(|value| Some((value, self.of(knob, value)?.0)));
        known
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(value, _)| value.as_str())
    }

    /// By how much one value is better than another, with the standard error of that.
    pub fn gain(&self, knob: &Knob, value: &str, over: &str) -> Option<(f64, f64)> {
        let (one, one_runs) = self.of(knob, value)?;
        let (other, other_runs) = self.of(knob, over)?;
        let error = self.noise * (1.0 / one_runs as f64 + 1.0 / other_runs as f64).sqrt();
        Some((other - one, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_found_below_the_drift_of_blocks() {
        let knob = |key: &str| Knob {
            key: key.to_owned(),
            values: ["0", "1", "2"].map(str::to_owned).to_vec(),
            is_number: true,
        };
        let knobs = [knob("a"), knob("b")];
        let mut observations = Vec::new();
        for run in 0..36usize {
            let (a, b) = (run % 3, (run / 3) % 3);
            let mut setting = Setting::default_of("x");
            setting = setting
                .with(&knobs[0], &a.to_string())
                .with(&knobs[1], &b.to_string());
            let block = run / 4;
            let score = block as f64 * 0.5 + [0.0, -0.1, 0.2][a] + [0.0, 0.05, 0.1][b];
            observations.push(Observation {
                block,
                setting,
                score,
            });
        }
        let fit = fit(&observations, &knobs);
        assert_eq!(fit.best(&knobs[0], &knobs[0].values), Some("1"));
        let (gain, error) = fit.gain(&knobs[0], "1", "0").unwrap();
        assert!((gain - 0.1).abs() < 0.02, "{gain}");
        assert!(error < 0.02 && fit.noise < 0.02, "{error} {}", fit.noise);
        assert_eq!(fit.best(&knobs[1], &knobs[1].values), Some("0"));
    }
}
