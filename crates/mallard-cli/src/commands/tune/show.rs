//! What a search found, as a sentence, a string to type, and the trade-offs.

use anyhow::Result;
use mallard_allocators::Allocator;
use mallard_judge::figures::{Metric, RunFigures};
use mallard_judge::statistics::Comparison;
use mallard_judge::statistics::shape::Shape;
use mallard_judge::tune::goal::{self, Goal};
use mallard_judge::tune::search::{self, Block, IMPROVEMENT_MIN, Refusal, SearchOutcome, Unproven};
use mallard_judge::tune::space::Setting;
use mallard_report::tuning::{self, Point, Tuning};

use super::{lab, setting};
use crate::options::command_line;
use crate::session::folder::{Folder, TUNING_FILE};
use crate::session::machine;
use crate::subject::Target;
use crate::terminal::output;

pub struct Found<'a> {
    pub target: &'a Target,
    pub goal: &'a Goal,
    pub metrics: &'a [Metric],
    pub control: Setting,
    pub allocators: &'a [Allocator],
    pub outcome: &'a SearchOutcome,
    /// Executions of a run.
    pub times: usize,
    pub spent: f64,
    /// The seconds of a search that tries every value.
    pub needed: f64,
    /// Ctrl-C ended the search.
    pub stopped: bool,
    pub folder: &'a Folder,
}

impl Found<'_> {
    /// Prints the outcome and writes tune.json and tune.html.
    pub fn show(&self, json: bool) -> Result<()> {
        let found = self.tuning();
        let text = serde_json::to_string_pretty(&found)? + "\n";
        self.folder.text(TUNING_FILE, &text)?;
        let page = self.folder.text("tune.html", &tuning::page(&found))?;
        if json {
            output::text(&text)?
        } else {
            output::text(&tuning::text(&found))?;
            output::text(&format!("  report        {}\n", page.display()))?;
        }
        Ok(())
    }

    fn tuning(&self) -> Tuning {
        let outcome = self.outcome;
        let points = self.points();
        Tuning {
            schema: tuning::SCHEMA,
            title: self.target.shown(),
            sentence: self.sentence(),
            typed: outcome
                .recommended
                .as_ref()
                .map(|setting| self.typed(setting)),
            lines: self.lines(&points),
            work: self.goal.work.clone(),
            memory: self.goal.memory.clone(),
            points,
            command: command_line::words(),
            machine: machine::describe(&mallard_runner::Cpus::allowed()),
        }
    }

    /// The lines below the sentence: a label and a text.
    fn lines(&self, points: &[Point]) -> Vec<(String, String)> {
        let outcome = self.outcome;
        let mut lines = self.against();
        let mut line = |label: &str, text: String| lines.push((label.to_owned(), text));
        if let Some(reason) = &outcome.refused {
            line("refused", refused(reason, &self.control));
        }
        if let (Some(reason), Some(_)) = (&outcome.unproven, &outcome.recommended) {
            line("not confirmed", unproven(reason));
        }
        let left: Vec<String> = outcome
            .left_out
            .iter()
            .map(|(key, value, gain, error)| {
                let noise = if gain.abs() < 2.0 * error {
                    ", within noise"
                } else {
                    ""
                };
                format!("{key}:{value} ({:+.1} %{noise})", gain * 100.0)
            })
            .collect();
        if !left.is_empty() {
            let fresh = match outcome.pruning {
                0 => String::new(),
                blocks => format!(" · each doubtful one left out in {blocks} fresh blocks"),
            };
            line("left out", left.join(" · ") + &fresh);
        }
        if let Some(text) = self.untried() {
            line("not tried", text);
        }
        if let Some(shape) = &outcome.shape {
            line("runs vary", shaped(shape, &self.control));
        }
        for (index, point) in points.iter().filter(|point| point.front).enumerate() {
            let label = if index == 0 { "trade-offs" } else { "" };
            let (work, memory) = (change(point.work), change(point.memory));
            let text = format!("{}: {} {work}, memory {memory}", point.name, self.goal.work);
            line(label, text);
        }
        for (setting, reason) in &outcome.failures {
            line("failed", format!("{}: {reason}", setting.shown()));
        }
        line(
            "how sure",
            format!(
                "{} runs{} in {:.1} s; a run varies by {:.1} %; these runs can detect an improvement of {:.1} %",
                outcome.runs,
                lab::executions(self.times),
                self.spent,
                outcome.noise * 100.0,
                outcome.smallest * 100.0
            ),
        );
        lines
    }

    /// What was found against the control, and against the defaults of its allocator.
    fn against(&self) -> Vec<(String, String)> {
        let outcome = self.outcome;
        let mut lines = Vec::new();
        let mut line = |label: &str, text: String| lines.push((label.to_owned(), text));
        if let Some(setting) = &outcome.recommended {
            line("against", self.changes(setting, &self.control));
            let default = Setting::default_of(&setting.allocator);
            if default != self.control && default != *setting {
                line("", self.changes(setting, &default));
            }
            return lines;
        }
        let found = outcome.found.as_ref();
        if let Some(found) = found.filter(|found| **found != self.control) {
            line("best found", found.shown());
            if !outcome.confirmation.is_empty() {
                line("against", self.changes(found, &self.control));
            }
        }
        lines
    }

    fn sentence(&self) -> String {
        let outcome = self.outcome;
        let percent = |share: f64| format!("{:.1}", share * 100.0);
        match (&outcome.recommended, &outcome.unproven) {
            _ if outcome.unconfirmed => {
                "Not confirmed: the search ended before its last step; continue with --resume."
                    .to_owned()
            }
            (Some(setting), _) => format!("Use {}.", self.named(setting)),
            (None, Some(reason)) => format!("Cannot tell: {}.", unproven(reason)),
            (None, None) if outcome.refused.is_some() => format!(
                "Keep {}: every better setting breaks a limit.",
                self.named(&self.control)
            ),
            (None, None) if outcome.tried_nothing() => {
                "Cannot tell: the budget allowed no options.".to_owned()
            }
            (None, None) if self.tried_defaults_only() => format!(
                "Keep {}: {} by {} % or more; the budget allowed no options.",
                self.named(&self.control),
                match &outcome.found {
                    Some(found) if *found != self.control => {
                        format!("{} is not better", self.named(found))
                    }
                    _ => "no other allocator is better".to_owned(),
                },
                percent(outcome.smallest.max(IMPROVEMENT_MIN))
            ),
            (None, None) if outcome.smallest <= IMPROVEMENT_MIN => format!(
                "Keep {}: nothing is better by {:.0} % or more; these runs can detect {} %.",
                self.named(&self.control),
                IMPROVEMENT_MIN * 100.0,
                percent(outcome.smallest)
            ),
            (None, None) => format!(
                "Keep {}: nothing is better by {} % or more; these runs cannot detect less.",
                self.named(&self.control),
                percent(outcome.smallest)
            ),
        }
    }

    /// Whether the budget was too small for any option.
    fn tried_defaults_only(&self) -> bool {
        let outcome = self.outcome;
        let mut settings = outcome.blocks.iter().flatten();
        !outcome.untried.is_empty() && settings.all(|(setting, _)| setting.options.is_empty())
    }

    /// What the budget did not allow.
    fn untried(&self) -> Option<String> {
        let outcome = self.outcome;
        if self.stopped {
            return None;
        }
        let enough = std::time::Duration::from_secs(self.needed.ceil() as u64 + 1);
        let enough = humantime::format_duration(enough)
            .to_string()
            .replace(' ', "");
        let what = if !outcome.untried.is_empty() {
            outcome.untried.join(", ")
        } else if outcome.race_cut && outcome.drawn == 0 && outcome.pruning == 0 {
            "options together".to_owned()
        } else {
            return None;
        };
        Some(format!(
            "{what}: the budget ended before; --budget {enough} is enough for all"
        ))
    }

    fn named(&self, setting: &Setting) -> String {
        if setting.options.is_empty() {
            format!("{} with its defaults", setting.allocator)
        } else {
            format!("{} with {}", setting.allocator, setting.conf())
        }
    }

    /// What a user types before the program.
    fn typed(&self, setting: &Setting) -> String {
        let allocator = self.allocators.iter().find(|a| a.name == setting.allocator);
        let Some(allocator) = allocator else {
            return setting.conf();
        };
        let own = setting::typed(setting, allocator);
        let preload = allocator
            .file
            .as_ref()
            .map(|file| format!("LD_PRELOAD={}", file.display()));
        let all: Vec<String> = preload.into_iter().chain(std::iter::once(own)).collect();
        all.iter()
            .filter(|part| !part.is_empty())
            .cloned()
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// How the metrics of a setting differ from those of another, over the fresh runs.
    fn changes(&self, setting: &Setting, other: &Setting) -> String {
        let blocks = &self.outcome.confirmation;
        let of = |name: &str| {
            let log = |figures: &RunFigures| Some(goal::positive(figures, name)?.ln());
            search::compare(blocks, setting, other, log).map(|c| format!("{name} {}", shown(&c)))
        };
        let wanted = |metric: &&Metric| {
            let name = metric.name.as_str();
            name == self.goal.work || name == self.goal.memory || name == "p99" || name == "cpu"
        };
        let parts: Vec<String> = self
            .metrics
            .iter()
            .filter(wanted)
            .filter_map(|metric| of(&metric.name))
            .collect();
        format!(
            "{} · {} fresh blocks beside {}",
            parts.join(", "),
            blocks.len(),
            other.shown()
        )
    }

    /// Every setting by its work and its memory, against the control, with the front of those that
    /// no other beats in both.
    fn points(&self) -> Vec<Point> {
        let mut settings: Vec<&Setting> = Vec::new();
        for (setting, _) in self.outcome.blocks.iter().flatten() {
            if !settings.contains(&setting) {
                settings.push(setting);
            }
        }
        let base = self.outcome.base.as_deref().map(Setting::default_of);
        // A block has the control, or the default of the best allocator, whose own place is known.
        let offset = |name: &str| {
            let base = base.as_ref().filter(|base| **base != self.control)?;
            ratio(&self.outcome.blocks, base, &self.control, name)
        };
        let offsets = [offset(&self.goal.work), offset(&self.goal.memory)];
        let place = |setting: &Setting, name: &str, offset: Option<f64>| {
            let direct = ratio(&self.outcome.blocks, setting, &self.control, name);
            let through =
                || Some(ratio(&self.outcome.blocks, setting, base.as_ref()?, name)? * offset?);
            direct.or_else(through)
        };
        let mut points: Vec<Point> = settings
            .into_iter()
            .filter_map(|setting| {
                let has = |block: &&Block| block.iter().any(|(other, _)| other == setting);
                Some(Point {
                    name: setting.shown(),
                    work: place(setting, &self.goal.work, offsets[0])?,
                    memory: place(setting, &self.goal.memory, offsets[1])?,
                    runs: self.outcome.blocks.iter().filter(has).count(),
                    recommended: self.outcome.recommended.as_ref() == Some(setting),
                    front: false,
                })
            })
            .collect();
        let rises = self.goal.work_rises;
        let beats = |one: &Point, other: &Point| {
            let work = if rises {
                one.work >= other.work
            } else {
                one.work <= other.work
            };
            let same = one.work == other.work && one.memory == other.memory;
            work && one.memory <= other.memory && !same
        };
        // A single run may be luck: only what ran in several blocks can be on the front.
        const SURE_RUNS_MIN: usize = 6;
        let sure: Vec<Point> = points
            .iter()
            .filter(|point| point.runs >= SURE_RUNS_MIN)
            .cloned()
            .collect();
        for point in &mut points {
            point.front =
                point.runs >= SURE_RUNS_MIN && !sure.iter().any(|other| beats(other, point));
        }
        points
    }
}

/// Why a better setting is not recommended.
fn refused(refusal: &Refusal, control: &Setting) -> String {
    let (setting, metric) = (refusal.setting.shown(), &refusal.metric);
    match refusal.ratio_and_limit {
        Some((ratio, limit)) => format!(
            "{setting} would change {metric} by {}, and the limit is {}",
            change(ratio),
            change(limit)
        ),
        None => format!(
            "{metric} of {setting} cannot be compared with that of {}, because one is zero",
            control.shown()
        ),
    }
}

/// Where the median of the control's runs misleads.
fn shaped(shape: &Shape, control: &Setting) -> String {
    let name = control.shown();
    match shape {
        Shape::TwoGroups {
            low,
            high,
            runs_high,
            runs,
        } => format!(
            "the runs of {name} fall into two groups, one {:.2} times the other ({runs_high} of {runs} in the higher one): a small gain cannot be told from a change of groups",
            high / low
        ),
        Shape::Drifts { first, last } => format!(
            "the runs of {name} drift, {} from the first third to the last; every run is compared with those beside it",
            change(last / first)
        ),
    }
}

/// Why the fresh runs say nothing about what was found.
fn unproven(unproven: &Unproven) -> String {
    let (found, reason) = (unproven.found.shown(), &unproven.reason);
    match &unproven.other {
        None => format!("{found} failed: {reason}"),
        Some(other) => format!(
            "{found} has too few runs beside {}, which failed: {reason}",
            other.shown()
        ),
    }
}

/// The ratio of two settings over all blocks that have both.
fn ratio(blocks: &[Block], one: &Setting, other: &Setting, name: &str) -> Option<f64> {
    if one == other {
        return Some(1.0);
    }
    let log = |figures: &RunFigures| Some(goal::positive(figures, name)?.ln());
    search::compare(blocks, one, other, log).map(|c| c.ratio)
}

fn change(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

fn shown(c: &Comparison) -> String {
    let end = |ratio: f64| format!("{:+.1}", (ratio - 1.0) * 100.0);
    match c.interval {
        Some(interval) => format!(
            "{} ({} to {})",
            change(c.ratio),
            end(interval.low),
            end(interval.high)
        ),
        None => change(c.ratio),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(allocator: &str) -> Setting {
        Setting::default_of(allocator)
    }

    #[test]
    fn what_is_not_recommended_has_its_reason() {
        let refusal = |ratio_and_limit| Refusal {
            setting: setting("a"),
            metric: "rss".to_owned(),
            ratio_and_limit,
        };
        let control = setting("c");
        let said = refused(&refusal(Some((1.2, 1.1))), &control);
        assert_eq!(
            said,
            "a would change rss by +20.0 %, and the limit is +10.0 %"
        );
        let said = refused(&refusal(None), &control);
        assert_eq!(
            said,
            "rss of a cannot be compared with that of c, because one is zero"
        );

        let unproven_beside = |other| Unproven {
            found: setting("a"),
            other,
            reason: "it died".to_owned(),
        };
        assert_eq!(unproven(&unproven_beside(None)), "a failed: it died");
        let said = unproven(&unproven_beside(Some(setting("b"))));
        assert_eq!(said, "a has too few runs beside b, which failed: it died");
    }
}
