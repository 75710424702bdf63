//! Judges what was found on fresh runs alone: the luck that chose it cannot speak for it.

use mallard_statistics::{Comparison, holm};

use super::super::objective;
use super::super::space::Setting;
use super::{CONFIRMED_BLOCKS_MIN, IMPROVEMENT_MIN, Lab, Search, Step, compare};
use crate::subject::Figures;

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
            return Ok(());
        }
        self.lab.phase("confirmation on fresh runs");
        let most = self.confirmed_blocks();
        for _ in 0..most {
            let block = settings.len() as f64 * self.each();
            let late = self.lab.spent() + block > self.budget * 1.05;
            if late && self.outcome.confirmation.len() >= CONFIRMED_BLOCKS_MIN {
                break;
            }
            let block = self.block(&settings)?;
            self.outcome.confirmation.push(block);
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
        let compared = pairs.map(|(one, other)| match one == other {
            true => None,
            false => self.compare(one, other),
        });
        let all: Vec<f64> = compared.iter().flatten().map(|c| c.p).collect();
        let adjusted = holm(&all);
        let mut adjusted = adjusted.into_iter();
        let better = compared.map(|c| {
            let c = c?;
            let p = adjusted.next()?;
            Some(p <= mallard_statistics::ALPHA && c.ratio <= 1.0 - IMPROVEMENT_MIN)
        });
        // What is not compared with itself counts as better: it is the same.
        let [to_control, to_default, base] = better;
        let string = found != default;
        if string && to_control.unwrap_or(true) && to_default.unwrap_or(true) {
            match self.beyond(found, control) {
                None => self.outcome.recommended = Some(found.clone()),
                Some(reason) => self.outcome.refused = Some(reason),
            }
        }
        if self.outcome.recommended.is_none() && default != control && base == Some(true) {
            match self.beyond(default, control) {
                None => self.outcome.recommended = Some(default.clone()),
                Some(reason) => {
                    self.outcome.refused.get_or_insert(reason);
                }
            }
        }
    }

    /// Compares the scores of two settings over the fresh blocks.
    fn compare(&self, one: &Setting, other: &Setting) -> Option<Comparison> {
        compare(&self.outcome.confirmation, one, other, |figures| {
            self.goal.score(figures)
        })
    }

    /// The limit that a setting breaks, if there is one.
    fn beyond(&self, setting: &Setting, control: &Setting) -> Option<String> {
        self.goal.within.iter().find_map(|(name, limit)| {
            let log = |figures: &Figures| Some(objective::positive(figures, name)?.ln());
            let c = compare(&self.outcome.confirmation, setting, control, log)?;
            let broken = if *limit < 0.0 {
                c.ratio.ln() < *limit
            } else {
                c.ratio.ln() > *limit
            };
            let change = |ratio: f64| (ratio - 1.0) * 100.0;
            broken.then(|| {
                format!(
                    "{} would change {name} by {:+.1} %, and the limit is {:+.1} %",
                    setting.shown(),
                    change(c.ratio),
                    change(limit.exp())
                )
            })
        })
    }
}
