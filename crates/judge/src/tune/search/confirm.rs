//! Judges the found string only by fresh runs, so that luck in the search does not count.

use super::super::goal;
use super::super::space::Setting;
use super::{
    Block, CONFIRMED_BLOCKS_MIN, IMPROVEMENT_MIN, Lab, Phase, Refusal, Search, Step, Unproven,
    compare,
};
use crate::figures::{RunFigures, figure};
use crate::statistics::{ALPHA, Comparison, holm};

impl<L: Lab> Search<'_, L> {
    /// Fresh runs of the control, the default and the found string decide.
    pub(super) fn confirm(
        &mut self,
        control: &Setting,
        default: &Setting,
        found: &Setting,
    ) -> Step<()> {
        let mut settings = vec![control.clone()];
        for setting in [default, found] {
            if !settings.contains(setting) {
                settings.push(setting.clone());
            }
        }
        if settings.len() == 1 {
            let blocks = self.confirmed_blocks();
            self.note_noise(blocks);
            self.outcome.unproven = self.unproven(control, default, found);
            return Ok(());
        }
        self.lab.phase(Phase::Confirmation);
        // A search of the defaults alone learns the noise here.
        while self.outcome.confirmation.len() < self.confirmed_blocks() {
            let block = settings.len() as f64 * self.each();
            let late = self.lab.spent() + block > self.budget * 1.05;
            if late && self.outcome.confirmation.len() >= CONFIRMED_BLOCKS_MIN {
                break;
            }
            let block = self.block(&settings)?;
            self.outcome.confirmation.push(block);
            if default == control && self.broken.contains(found) {
                // Nothing is left that more blocks could judge.
                break;
            }
        }
        self.note_noise(self.outcome.confirmation.len());
        self.judge(control, default, found);
        Ok(())
    }

    /// The noise of a run, and the smallest improvement that so many blocks show. A search that
    /// ends before its options has fitted no noise until now.
    fn note_noise(&mut self, blocks: usize) {
        let noise = self.noise();
        self.outcome.noise = noise;
        self.outcome.smallest =
            (2.8 * std::f64::consts::SQRT_2 * noise / (blocks as f64).sqrt()).exp_m1();
    }

    fn judge(&mut self, control: &Setting, default: &Setting, found: &Setting) {
        let pairs = [(found, control), (found, default), (default, control)];
        let compared = pairs.map(|(one, other)| {
            if one == other {
                None
            } else {
                self.compare(one, other)
            }
        });
        let all: Vec<f64> = compared.iter().flatten().map(|c| c.p).collect();
        let adjusted = holm(&all);
        let mut adjusted = adjusted.into_iter();
        let better = compared.map(|c| {
            let c = c?;
            let p = adjusted.next()?;
            Some(p <= ALPHA && c.ratio <= 1.0 - IMPROVEMENT_MIN)
        });
        let [to_control, to_default, base] = better;
        // A setting is not compared with itself. Any other comparison must have been made.
        let beats = |other: &Setting, better: Option<bool>| found == other || better == Some(true);
        let works = |setting: &Setting| !self.broken.contains(setting);
        let (string, sound) = (found != default, works(found));
        if string && sound && beats(control, to_control) && beats(default, to_default) {
            match self.beyond(found, control) {
                None => self.outcome.recommended = Some(found.clone()),
                Some(reason) => self.outcome.refused = Some(reason),
            }
        }
        let base = default != control && works(default) && base == Some(true);
        if self.outcome.recommended.is_none() && base {
            match self.beyond(default, control) {
                None => self.outcome.recommended = Some(default.clone()),
                Some(reason) => {
                    self.outcome.refused.get_or_insert(reason);
                }
            }
        }
        if self.outcome.recommended.as_ref() != Some(found) {
            self.outcome.unproven = self.unproven(control, default, found);
        }
    }

    /// Why the fresh runs say nothing about what was found, if they do not.
    fn unproven(&self, control: &Setting, default: &Setting, found: &Setting) -> Option<Unproven> {
        let failure = |setting: &Setting| {
            let failures = self.outcome.failures.iter();
            failures.rev().find(|(failed, _)| failed == setting)
        };
        if self.broken.contains(found) {
            let (_, reason) = failure(found)?;
            return Some(Unproven {
                found: found.clone(),
                other: None,
                reason: reason.clone(),
            });
        }
        let has = |block: &&Block, wanted: &Setting| block.iter().any(|(one, _)| one == wanted);
        [control, default].into_iter().find_map(|other| {
            let blocks = self.outcome.confirmation.iter();
            let both = blocks.filter(|block| has(block, found) && has(block, other));
            let few = found != other && both.count() < CONFIRMED_BLOCKS_MIN;
            let (_, reason) = failure(other).filter(|_| few)?;
            Some(Unproven {
                found: found.clone(),
                other: Some(other.clone()),
                reason: reason.clone(),
            })
        })
    }

    /// Compares the scores of two settings over the fresh blocks.
    fn compare(&self, one: &Setting, other: &Setting) -> Option<Comparison> {
        compare(&self.outcome.confirmation, one, other, |figures| {
            self.goal.score(figures)
        })
    }

    /// The limit that a setting breaks, or that the runs cannot check, if there is one.
    fn beyond(&self, setting: &Setting, control: &Setting) -> Option<Refusal> {
        let blocks = &self.outcome.confirmation;
        let is_zero = |(one, figures): &(Setting, RunFigures), name: &str| {
            let concerns = one == setting || one == control;
            !concerns || figure(figures, name) == Some(0.0)
        };
        self.goal.within.iter().find_map(|(name, limit)| {
            if setting == control || blocks.iter().flatten().all(|run| is_zero(run, name)) {
                return None;
            }
            let log = |figures: &RunFigures| Some(goal::positive(figures, name)?.ln());
            let refusal = |ratio_and_limit| Refusal {
                setting: setting.clone(),
                metric: name.clone(),
                ratio_and_limit,
            };
            let Some(c) = compare(blocks, setting, control, log) else {
                return Some(refusal(None));
            };
            let broken = if *limit < 0.0 {
                c.ratio.ln() < *limit
            } else {
                c.ratio.ln() > *limit
            };
            broken.then(|| refusal(Some((c.ratio, limit.exp()))))
        })
    }
}
