//! Makes the found string short: options that gain little are left out.
//!
//! The fit of the race says what each option gains, and how sure that is. First, each option whose
//! gain is in doubt is left out by itself in fresh blocks.

use super::super::model::Fit;
use super::super::space::{Knob, Setting};
use super::{Lab, Phase, Search, Step};

/// Options that gain less than this together are left out.
const PRUNED_GAIN_MAX: f64 = 0.01;

/// Blocks of fresh runs that judge doubtful options by leaving each out.
pub(super) const PRUNING_BLOCKS: usize = 4;
/// So many doubtful options are judged that way, the smallest gains first.
pub(super) const DOUBTFUL_OPTIONS_MAX: usize = 4;

impl<L: Lab> Search<'_, L> {
    /// The best value of each option, without those that gain little.
    pub(super) fn prune(&mut self, default: &Setting, knobs: &[Knob], fit: Fit) -> Step<Setting> {
        let best = gains(knobs, &fit);
        let doubtful: Vec<&Gain> = best
            .iter()
            .filter(|gain| gain.is_doubtful())
            .take(DOUBTFUL_OPTIONS_MAX)
            .collect();
        let gains = if doubtful.is_empty() {
            best
        } else {
            self.leave_each_out(default, &best, &doubtful)?;
            let fit = self.fit(default, knobs);
            let mut again: Vec<Gain> = best.iter().filter_map(|gain| gain.of(&fit)).collect();
            again.sort_by(|a, b| a.gain.total_cmp(&b.gain));
            self.outcome.noise = fit.noise;
            again
        };
        let (mut setting, mut lost) = (default.clone(), 0.0);
        for one in gains {
            if lost + one.gain <= PRUNED_GAIN_MAX {
                lost += one.gain;
                let left = (one.knob.key.clone(), one.value, one.gain, one.error);
                self.outcome.left_out.push(left);
            } else {
                setting = setting.with(one.knob, &one.value);
            }
        }
        Ok(setting)
    }

    /// Runs the whole string beside the string without each doubtful option, in fresh blocks.
    fn leave_each_out(&mut self, default: &Setting, best: &[Gain], doubtful: &[&Gain]) -> Step<()> {
        let of = |without: Option<&Gain>| {
            let kept = best
                .iter()
                .filter(|gain| without.is_none_or(|left| left.knob.key != gain.knob.key));
            kept.fold(default.clone(), |setting, gain| {
                setting.with(gain.knob, &gain.value)
            })
        };
        let mut settings = vec![default.clone(), of(None)];
        for gain in doubtful {
            let setting = of(Some(gain));
            if !settings.contains(&setting) {
                settings.push(setting);
            }
        }
        self.lab.phase(Phase::Pruning);
        while self.outcome.pruning < PRUNING_BLOCKS && self.runs_left() >= settings.len() {
            self.block(&settings)?;
            self.outcome.pruning += 1;
        }
        Ok(())
    }
}

/// What the best value of an option gains over its default.
#[derive(Debug, Clone)]
struct Gain<'a> {
    knob: &'a Knob,
    value: String,
    gain: f64,
    /// Its standard error.
    error: f64,
}

impl<'a> Gain<'a> {
    /// The same value by another fit.
    fn of(&self, fit: &Fit) -> Option<Gain<'a>> {
        let (gain, error) = fit.gain(self.knob, &self.value, &self.knob.values[0])?;
        Some(Gain {
            gain,
            error,
            ..self.clone()
        })
    }

    /// Whether it may be that little that it is not worth its place.
    fn is_doubtful(&self) -> bool {
        self.gain - 2.0 * self.error <= PRUNED_GAIN_MAX
    }
}

/// The best value of each option that is not its default, from the smallest gain on.
fn gains<'a>(knobs: &'a [Knob], fit: &Fit) -> Vec<Gain<'a>> {
    let gain = |knob: &'a Knob| {
        let value = fit.best(knob, &knob.values)?.to_owned();
        let (gain, error) = fit.gain(knob, &value, &knob.values[0])?;
        (value != knob.values[0]).then_some(Gain {
            knob,
            value,
            gain,
            error,
        })
    };
    let mut gains: Vec<Gain> = knobs.iter().filter_map(gain).collect();
    gains.sort_by(|a, b| a.gain.total_cmp(&b.gain));
    gains
}
