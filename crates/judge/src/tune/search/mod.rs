//! The search: from what there is to one short string, or to "keep the defaults".
//!
//! 1. *Noise*: the control beside itself.
//! 2. *Allocators* at their defaults, in turns; those that are clearly behind drop out.
//! 3. *Screening*: each value of each option once or twice on the best allocator. A value that
//!    fails, or is far worse than the default, is never tried again.
//! 4. *Racing*: settings that draw every option at random among its remaining values ([`model`]).
//!    After each round, values that are worse than the best by more than the noise drop out; half
//!    and twice the best number become its rivals.
//! 5. *Pruning*: fresh runs of the whole string, and of the string without each option whose gain
//!    is in doubt. Options that gain little are left out, from the smallest gain on, as long as all
//!    of them together cost at most a percent.
//! 6. *Confirmation*: control, default and the found string on fresh runs only, so that luck in the
//!    search does not count. A string that fails here is not recommended.
//!
//! Steps 5 and 6 are in `prune` and `confirm`; `size` says how many runs all steps take.
//!
//! Given the same outcomes of runs, the search always takes the same path, so a session resumes
//! from the runs that it had.

mod confirm;
mod prune;
mod size;

use std::collections::BTreeMap;

use super::goal::Goal;
use super::model::{self, Fit, Observation};
use super::space::{self, Knob, Setting};
use crate::figures::RunFigures;
use crate::schedule;
use crate::statistics::shape::{self, Shape};
use crate::statistics::{Comparison, paired};

pub use size::{DEFAULTS_RUNS_MIN, runs_of_all};

/// What runs a setting.
pub trait Lab {
    /// One run, or why it failed; none if a stop ended it.
    fn run(&mut self, setting: &Setting) -> Option<Result<RunFigures, String>>;

    /// The seconds that all runs have taken.
    fn spent(&self) -> f64;

    /// Learns what the next runs are for.
    fn phase(&mut self, phase: Phase);
}

/// The steps of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Noise,
    Allocators,
    Screening,
    Racing,
    Pruning,
    Confirmation,
}

/// Why a better setting is not recommended: it breaks a limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub setting: Setting,
    pub metric: String,
    /// By how much it would change the metric, as a ratio, and how much is allowed; none where one
    /// of the two is zero.
    pub ratio_and_limit: Option<(f64, f64)>,
}

/// Why the fresh runs say nothing about what was found: a setting failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Unproven {
    pub found: Setting,
    /// The other one that failed; none if what was found did.
    pub other: Option<Setting>,
    pub reason: String,
}

/// A block: each setting once, with its figures unless it failed.
pub type Block = Vec<(Setting, RunFigures)>;

/// What the search found.
#[derive(Debug, Default)]
pub struct SearchOutcome {
    /// The recommended setting; none to keep the control.
    pub recommended: Option<Setting>,
    /// The best that was found, recommended or not.
    pub found: Option<Setting>,
    /// The blocks of fresh runs that judged it.
    pub confirmation: Vec<Block>,
    /// Why a better string is not recommended, if there was one.
    pub refused: Option<Refusal>,
    /// Why the fresh runs could not judge what was found.
    pub unproven: Option<Unproven>,
    /// Options that are not in the string, with what they would gain and its standard error.
    pub left_out: Vec<(String, String, f64, f64)>,
    /// The fresh blocks that ran the string without each doubtful option.
    pub pruning: usize,
    /// The standard deviation of a run, as a share.
    pub noise: f64,
    /// The smallest gain that the confirmation would have seen.
    pub smallest: f64,
    pub failures: Vec<(Setting, String)>,
    pub blocks: Vec<Block>,
    pub runs: usize,
    /// A stop, or the end of the budget, came before the confirmation.
    pub unconfirmed: bool,
    pub base: Option<String>,
    /// The allocators that the budget did not allow, and the options of which it allowed no value.
    pub untried: Vec<String>,
    /// The settings with all options at random.
    pub drawn: usize,
    /// The budget ended the race before the choice was clear.
    pub race_cut: bool,
    /// What the control's runs look like in their order, as multiples of each other, if they fall
    /// into two groups or drift.
    pub shape: Option<Shape>,
}

impl SearchOutcome {
    /// Whether there is no answer, not even to keep the control.
    pub fn cannot_tell(&self) -> bool {
        let unproven = self.unproven.is_some() || self.tried_nothing();
        self.unconfirmed || (self.recommended.is_none() && unproven)
    }

    /// Whether the budget allowed no setting but one.
    pub fn tried_nothing(&self) -> bool {
        let mut settings = self.blocks.iter().flatten().map(|(setting, _)| setting);
        let first = settings.next();
        !self.untried.is_empty() && settings.all(|setting| Some(setting) == first)
    }
}

/// An improvement below this is not worth a change.
pub const IMPROVEMENT_MIN: f64 = 0.02;
/// The control runs beside itself in so many blocks.
const NOISE_BLOCKS: usize = 3;
/// The allocators take turns in so many rounds at most, each of so many blocks.
const ALLOCATOR_ROUNDS: usize = 4;
const ALLOCATOR_BLOCKS: usize = 2;
/// Values of a block in the screening, besides the default.
const SCREENED_PER_BLOCK: usize = 6;
/// A value drops out if it is worse than the best by more than this many standard errors.
const BEHIND_ERRORS: f64 = 2.5;
const FAR_BEHIND_ERRORS: f64 = 4.0;
/// Random settings of a block, besides the default.
const DRAWN_PER_BLOCK: usize = 5;
const BLOCKS_PER_ROUND: usize = 4;
/// More random settings do not change the choice.
const DRAWN_MAX: usize = 400;
/// Values that cannot differ by more than this need no more runs.
const FINE_ERROR: f64 = 0.003;
/// A confirmation has at least so many blocks, and at most so many.
const CONFIRMED_BLOCKS_MIN: usize = 8;
const CONFIRMED_BLOCKS_MAX: usize = 20;
/// A confirmation has the control, the default and the found string.
const CONFIRMED_SETTINGS_MAX: usize = 3;
/// A control that failed so often runs no more.
const CONTROL_FAILURES_MAX: usize = 3;

pub struct Search<'a, L: Lab> {
    lab: &'a mut L,
    goal: &'a Goal,
    /// Seconds for all runs.
    budget: f64,
    outcome: SearchOutcome,
    observations: Vec<Observation>,
    /// Values that failed.
    broken: Vec<Setting>,
    control: Option<Setting>,
    draws: u64,
}

/// A stop ended the search.
struct Stopped;

type Step<T> = Result<T, Stopped>;

/// The allocators with their options; the first, at its defaults, is the control.
pub fn search<L: Lab>(
    lab: &mut L,
    goal: &Goal,
    budget: f64,
    bases: &[(String, Vec<Knob>)],
) -> SearchOutcome {
    let mut search = Search::new(lab, goal, budget);
    let ended = search.all(bases);
    search.end(ended)
}

/// What a budget allows that is too small for options: the second allocator beside the control,
/// both at their defaults, by fresh blocks.
pub fn defaults<L: Lab>(
    lab: &mut L,
    goal: &Goal,
    budget: f64,
    bases: &[(String, Vec<Knob>)],
) -> SearchOutcome {
    let mut search = Search::new(lab, goal, budget);
    let ended = search.defaults(bases);
    search.end(ended)
}

impl<'a, L: Lab> Search<'a, L> {
    fn new(lab: &'a mut L, goal: &'a Goal, budget: f64) -> Search<'a, L> {
        Search {
            lab,
            goal,
            budget,
            outcome: SearchOutcome::default(),
            observations: Vec::new(),
            broken: Vec::new(),
            control: None,
            draws: 0,
        }
    }

    fn end(mut self, ended: Step<()>) -> SearchOutcome {
        self.outcome.unconfirmed |= ended.is_err();
        let control = self.control.as_ref();
        let own = self.observations.iter();
        let own = own.filter(|o| Some(&o.setting) == control);
        let figures: Vec<f64> = own.map(|o| o.score.exp()).collect();
        self.outcome.shape = shape::of(&figures);
        self.outcome
    }
}

impl<L: Lab> Search<'_, L> {
    fn defaults(&mut self, bases: &[(String, Vec<Knob>)]) -> Step<()> {
        let control = Setting::default_of(&bases[0].0);
        self.control = Some(control.clone());
        let base = bases.get(1).unwrap_or(&bases[0]);
        let default = Setting::default_of(&base.0);
        let others = bases.iter().skip(2).map(|other| other.0.clone());
        let keys = base.1.iter().map(|knob| knob.key.clone());
        self.outcome.untried = others.chain(keys).collect();
        self.outcome.base = Some(base.0.clone());
        self.outcome.found = Some(default.clone());
        self.confirm(&control, &default, &default)
    }

    fn all(&mut self, bases: &[(String, Vec<Knob>)]) -> Step<()> {
        let control = Setting::default_of(&bases[0].0);
        self.control = Some(control.clone());
        self.lab.phase(Phase::Noise);
        for _ in 0..NOISE_BLOCKS {
            self.block(&[control.clone(), control.clone()])?;
        }
        let base = self.allocators(bases)?;
        self.outcome.base = Some(base.0.clone());
        let default = Setting::default_of(&base.0);
        let mut knobs = base.1.clone();
        self.screen(&default, &mut knobs)?;
        let fit = self.race(&default, &mut knobs)?;
        let found = self.prune(&default, &knobs, fit)?;
        self.outcome.found = Some(found.clone());
        self.confirm(&control, &default, &found)
    }

    /// Runs each of the settings once, in an order that is drawn. Failed ones are left out of the
    /// result.
    fn block(&mut self, settings: &[Setting]) -> Step<Block> {
        let number = self.outcome.blocks.len();
        let mut block = Vec::new();
        for index in schedule::shuffled(number, settings.len()) {
            let setting = &settings[index];
            if self.broken.contains(setting) {
                continue;
            }
            self.outcome.runs += 1;
            match self.lab.run(setting).ok_or(Stopped)? {
                Ok(figures) => block.push((setting.clone(), figures)),
                Err(reason) => {
                    self.outcome.failures.push((setting.clone(), reason));
                    let failures = self.outcome.failures.iter();
                    let count = failures.filter(|(failed, _)| failed == setting).count();
                    // Every comparison needs the control, so one bad run does not end it.
                    if Some(setting) != self.control.as_ref() || count >= CONTROL_FAILURES_MAX {
                        self.broken.push(setting.clone());
                    }
                }
            }
        }
        self.observe(number, &block);
        self.outcome.blocks.push(block.clone());
        Ok(block)
    }

    fn observe(&mut self, number: usize, block: &Block) {
        let is_control = |one: &&(Setting, RunFigures)| Some(&one.0) == self.control.as_ref();
        let plain = |one: &&(Setting, RunFigures)| one.0.options.is_empty();
        let control = block
            .iter()
            .find(is_control)
            .or_else(|| block.iter().find(plain));
        let Some((_, control)) = control else { return };
        for (setting, figures) in block {
            if let Some(score) = self.goal.score(figures) {
                // Beyond a limit, a setting is no better than it is far beyond.
                let penalty = 3.0 * self.goal.excess(figures, control);
                self.observations.push(Observation {
                    block: number,
                    setting: setting.clone(),
                    score: score + penalty,
                });
            }
        }
    }

    /// The seconds of a run so far.
    fn each(&self) -> f64 {
        self.lab.spent() / self.outcome.runs.max(1) as f64
    }

    /// How many more runs there is time for, besides those of the confirmation.
    fn runs_left(&self) -> usize {
        let confirmation = (CONFIRMED_SETTINGS_MAX * self.confirmed_blocks()) as f64 * self.each();
        let left = self.budget - self.lab.spent() - confirmation;
        (left / self.each().max(1e-6)).max(0.0) as usize
    }

    /// The blocks that show an improvement that is worth a change, within what is reasonable.
    fn confirmed_blocks(&self) -> usize {
        let needed = (2.8 * std::f64::consts::SQRT_2 * self.noise() / IMPROVEMENT_MIN).powi(2);
        (needed.ceil() as usize).clamp(CONFIRMED_BLOCKS_MIN, CONFIRMED_BLOCKS_MAX)
    }

    /// The noise of a run, from all blocks so far.
    fn noise(&self) -> f64 {
        let of = |knobs: &[Knob]| model::fit(&self.by_name(), knobs).noise;
        if self.outcome.noise > 0.0 {
            self.outcome.noise
        } else {
            of(&[name_knob()])
        }
    }

    /// The observations with the whole setting as a single option.
    fn by_name(&self) -> Vec<Observation> {
        let knob = name_knob();
        let named = self.observations.iter().map(|o| Observation {
            block: o.block,
            setting: Setting::default_of("").with(&knob, &o.setting.shown()),
            score: o.score,
        });
        named.collect()
    }

    /// The allocator that is best at its defaults.
    fn allocators<'b>(
        &mut self,
        bases: &'b [(String, Vec<Knob>)],
    ) -> Step<&'b (String, Vec<Knob>)> {
        let [first, _, ..] = bases else {
            return Ok(&bases[0]);
        };
        self.lab.phase(Phase::Allocators);
        let mut alive: Vec<&(String, Vec<Knob>)> = bases.iter().collect();
        let limit = self.budget * 0.2;
        let mut fit = Fit::default();
        let knob = name_knob();
        let best_of = |fit: &Fit, alive: &[&(String, Vec<Knob>)]| {
            let names: Vec<String> = alive.iter().map(|base| base.0.clone()).collect();
            fit.best(&knob, &names).map(str::to_owned)
        };
        for round in 0..ALLOCATOR_ROUNDS {
            for _ in 0..ALLOCATOR_BLOCKS {
                let settings: Vec<Setting> = alive
                    .iter()
                    .map(|base| Setting::default_of(&base.0))
                    .collect();
                self.block(&settings)?;
            }
            fit = model::fit(&self.by_name(), std::slice::from_ref(&knob));
            let Some(best) = best_of(&fit, &alive) else {
                break;
            };
            alive.retain(|base| {
                let behind = fit.gain(&knob, &best, &base.0);
                // The control stays: every block needs it.
                base.0 == first.0
                    || behind.is_some_and(|(gain, error)| gain <= BEHIND_ERRORS * error)
            });
            if (alive.len() == 1 || self.lab.spent() > limit) && round > 0 {
                break;
            }
        }
        let best = best_of(&fit, &alive).unwrap_or_else(|| first.0.clone());
        Ok(bases.iter().find(|base| base.0 == best).unwrap_or(first))
    }

    /// Drops the values that fail, or are far worse than the default.
    fn screen(&mut self, default: &Setting, knobs: &mut Vec<Knob>) -> Step<()> {
        self.lab.phase(Phase::Screening);
        let mut all: Vec<Setting> = Vec::new();
        for knob in knobs.iter() {
            all.extend(
                knob.values[1..]
                    .iter()
                    .map(|value| default.with(knob, value)),
            );
        }
        let rounds = if self.runs_left() > 6 * all.len() {
            2
        } else {
            1
        };
        for _ in 0..rounds {
            for some in all.chunks(SCREENED_PER_BLOCK) {
                if self.runs_left() < some.len() {
                    break;
                }
                let settings: Vec<Setting> = std::iter::once(default.clone())
                    .chain(some.iter().cloned())
                    .collect();
                self.block(&settings)?;
            }
        }
        let fit = model::fit(&self.by_name(), &[name_knob()]);
        let tried = |setting: &Setting| {
            let failed = self
                .outcome
                .failures
                .iter()
                .any(|(other, _)| other == setting);
            failed || self.observations.iter().any(|o| o.setting == *setting)
        };
        let untried = |knob: &&Knob| {
            let mut values = knob.values[1..].iter();
            !values.any(|value| tried(&default.with(knob, value)))
        };
        let untried: Vec<String> = (knobs.iter().filter(untried))
            .map(|knob| knob.key.clone())
            .collect();
        self.outcome.untried = untried;
        for knob in knobs.iter_mut() {
            let values = std::mem::take(&mut knob.values);
            let whole = Knob {
                values: values.clone(),
                ..knob.clone()
            };
            knob.values = values
                .iter()
                .enumerate()
                .filter(|(index, value)| {
                    let setting = default.with(&whole, value);
                    let far = fit.gain(&name_knob(), &default.shown(), &setting.shown());
                    let is_far = far.is_some_and(|(gain, error)| gain > FAR_BEHIND_ERRORS * error);
                    *index == 0 || !(self.broken.contains(&setting) || is_far || far.is_none())
                })
                .map(|(_, value)| value.clone())
                .collect();
        }
        knobs.retain(|knob| knob.values.len() > 1);
        Ok(())
    }

    /// Random settings in rounds, with fewer values from round to round.
    fn race(&mut self, default: &Setting, knobs: &mut [Knob]) -> Step<Fit> {
        self.lab.phase(Phase::Racing);
        // What may still win, by option. The default may lose here too.
        let mut alive: BTreeMap<String, Vec<String>> = knobs
            .iter()
            .map(|knob| (knob.key.clone(), knob.values.clone()))
            .collect();
        let mut decks: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut round = 0;
        let mut fit = self.fit(default, knobs);
        while alive.values().any(|values| values.len() > 1) && self.outcome.drawn < DRAWN_MAX {
            let pruning =
                prune::PRUNING_BLOCKS * (knobs.len().min(prune::DOUBTFUL_OPTIONS_MAX) + 2);
            if self.runs_left() < BLOCKS_PER_ROUND * (DRAWN_PER_BLOCK + 1) + pruning {
                self.outcome.race_cut = true;
                break;
            }
            for _ in 0..BLOCKS_PER_ROUND {
                let mut settings = vec![default.clone()];
                for _ in 0..DRAWN_PER_BLOCK {
                    settings.push(self.random(default, knobs, &alive, &mut decks));
                }
                self.outcome.drawn += DRAWN_PER_BLOCK;
                self.block(&settings)?;
            }
            round += 1;
            fit = self.fit(default, knobs);
            let mut open = false;
            for knob in knobs.iter_mut() {
                open |= narrow(knob, &fit, &mut alive, round);
            }
            if !open {
                break;
            }
        }
        self.outcome.noise = fit.noise;
        Ok(fit)
    }

    /// The effects of all values, from the runs on the allocator.
    fn fit(&self, default: &Setting, knobs: &[Knob]) -> Fit {
        let own = self
            .observations
            .iter()
            .filter(|o| o.setting.allocator == default.allocator);
        model::fit(&own.cloned().collect::<Vec<_>>(), knobs)
    }

    /// A setting with a value for each option, each value equally often.
    fn random(
        &mut self,
        default: &Setting,
        knobs: &[Knob],
        alive: &BTreeMap<String, Vec<String>>,
        decks: &mut BTreeMap<String, Vec<String>>,
    ) -> Setting {
        let mut setting = default.clone();
        for knob in knobs {
            let values = &alive[&knob.key];
            let deck = decks.entry(knob.key.clone()).or_default();
            deck.retain(|value| values.contains(value));
            if deck.is_empty() {
                deck.clone_from(values);
                for index in (1..deck.len()).rev() {
                    let other = (self.next() % (index as u64 + 1)) as usize;
                    deck.swap(index, other);
                }
            }
            let value = deck.pop().expect("an option has values");
            setting = setting.with(knob, &value);
        }
        setting
    }

    /// The next of numbers that are the same in every session.
    fn next(&mut self) -> u64 {
        self.draws += 1;
        schedule::draw(self.draws)
    }
}

/// Drops values of an option that are behind, and gives the best number its neighbours. Returns
/// whether more runs could change the choice.
fn narrow(
    knob: &mut Knob,
    fit: &Fit,
    alive: &mut BTreeMap<String, Vec<String>>,
    round: usize,
) -> bool {
    let values = alive.get_mut(&knob.key).expect("every option has values");
    let Some(best) = fit.best(knob, values).map(str::to_owned) else {
        return true;
    };
    let mut fine = true;
    values.retain(|value| match fit.gain(knob, &best, value) {
        Some((gain, error)) => {
            let stays = *value == best || gain <= BEHIND_ERRORS * error;
            fine &= !stays || *value == best || error < FINE_ERROR;
            stays
        }
        None => true,
    });
    if round == 2 && knob.is_number {
        for value in space::neighbours(&best) {
            if !knob.values.contains(&value) {
                knob.values.push(value.clone());
                values.push(value);
                fine = false;
            }
        }
    }
    values.len() > 1 && !fine
}

/// Compares a logarithm of two settings over blocks that have both.
pub fn compare(
    blocks: &[Block],
    one: &Setting,
    other: &Setting,
    log: impl Fn(&RunFigures) -> Option<f64>,
) -> Option<Comparison> {
    let of = |block: &Block, wanted: &Setting| {
        let (_, figures) = block.iter().find(|(setting, _)| setting == wanted)?;
        log(figures)
    };
    let logs = blocks
        .iter()
        .filter_map(|block| Some(of(block, one)? - of(block, other)?));
    paired::compare_logs(logs)
}

fn name_knob() -> Knob {
    Knob {
        key: "name".to_owned(),
        values: vec![String::new()],
        is_number: false,
    }
}

#[cfg(test)]
mod tests;
