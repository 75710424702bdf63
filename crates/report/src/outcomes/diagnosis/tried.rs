//! What suggestions brought that were tried (`mallard diagnose --try`).

use mallard_judge::diagnose::trial::Brought;
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use super::Figure;
use crate::units;

/// The suggestions that were tried, in turns with the program as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The runs of the program as it is, and with each suggestion.
    pub runs: usize,
    /// Whether any of them helps, in a sentence.
    pub sentence: String,
    /// The best first.
    pub trials: Vec<Trial>,
}

/// One suggestion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    pub command: String,
    /// The figure of the trouble first.
    pub brought: Vec<Brought>,
    /// Why there are no figures, if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Trial {
    /// What it makes worse for certain. System time is a part of CPU time.
    pub fn costs(&self) -> impl Iterator<Item = &Brought> {
        let all = self.brought.iter();
        all.filter(|one| one.hurts() && one.figure != Figure::SystemTime)
    }

    /// Whether it makes the figure of its trouble better for certain.
    pub fn helps(&self) -> bool {
        self.brought.first().is_some_and(Brought::helps)
    }
}

/// A figure's name.
pub fn name(figure: Figure) -> &'static str {
    match figure {
        Figure::WallTime => "wall time",
        Figure::CpuTime => "CPU time",
        Figure::SystemTime => "system time",
        Figure::PageFaults => "page faults",
        Figure::PeakRss => "peak RSS",
        Figure::LateRss => "late RSS",
    }
}

/// A value of a figure.
pub fn amount(figure: Figure, value: f64) -> String {
    match figure {
        Figure::WallTime | Figure::CpuTime | Figure::SystemTime => units::seconds(value),
        Figure::PageFaults => units::grouped(value.round()),
        Figure::PeakRss | Figure::LateRss => units::bytes(value),
    }
}

/// What a suggestion made of a figure.
pub fn before_and_after(brought: &Brought) -> String {
    let Brought {
        figure,
        before,
        after,
        ..
    } = *brought;
    format!(
        "{} {} → {}",
        name(figure),
        amount(figure, before),
        amount(figure, after)
    )
}

/// The ratio with its interval or range.
fn factor(brought: &Brought) -> String {
    let [ratio, low, high] = [brought.ratio, brought.low, brought.high].map(|ratio| {
        // Two decimals of a hundredth are none.
        if ratio < 0.095 {
            units::significant(ratio)
        } else {
            units::ratio(ratio)
        }
    });
    let kind = if brought.is_range { "range " } else { "" };
    format!("{ratio} ×, {kind}{low} to {high}")
}

/// What a figure is, if it became so.
fn word(brought: &Brought) -> &'static str {
    match () {
        () if brought.helps() => "better",
        () if brought.hurts() => "worse",
        () if brought.is_unclear() => "not clear",
        () => "the same",
    }
}

/// Each suggestion with its figures: that of the trouble, wall time, and what became worse.
pub fn lines(tried: &Tried) -> Vec<(&str, Vec<String>)> {
    let line = |one: &Brought| {
        let is = word(one);
        format!("{is}: {} ({})", before_and_after(one), factor(one))
    };
    let of = |trial: &Trial| {
        let is_told = |place: usize, one: &Brought| {
            let costs = trial.costs().any(|cost| cost.figure == one.figure);
            place == 0 || one.figure == Figure::WallTime || costs
        };
        let told = trial.brought.iter().enumerate();
        let told = told.filter(|(place, one)| is_told(*place, one));
        let told = told.map(|(_, one)| line(one));
        trial.failure.iter().cloned().chain(told).collect()
    };
    let trials = tried.trials.iter();
    trials
        .map(|trial| (trial.command.as_str(), of(trial)))
        .collect()
}

/// The section of the page.
pub fn section(tried: &Tried) -> Markup {
    html! {
        section {
            h2 { "What the suggestions brought" }
            p { (tried.sentence) }
            @if !tried.trials.is_empty() {
                p class="about" { (units::plural(tried.runs, "run")) " each, in turns with the program as it is. Late RSS is the mean of the last quarter of a run." }
                div class="scroll" { table {
                    thead { tr { th { "suggestion" } th { "figure" } th { "as it is" } th { "with it" } th { "ratio" } th { "" } } }
                    tbody {
                        @for trial in &tried.trials {
                            @if let Some(reason) = &trial.failure { tr { th scope="row" { code { (trial.command) } } td colspan="5" { (reason) } } }
                            @for (place, one) in trial.brought.iter().enumerate() {
                                tr {
                                    th scope="row" { @if place == 0 { code { (trial.command) } } }
                                    td { (name(one.figure)) }
                                    td { (amount(one.figure, one.before)) }
                                    td { (amount(one.figure, one.after)) }
                                    td { (factor(one)) }
                                    td { (word(one)) }
                                }
                            }
                        }
                    }
                } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brought(figure: Figure, before: f64, after: f64) -> Brought {
        let ratio = after / before;
        Brought {
            figure,
            before,
            after,
            ratio,
            low: ratio * 0.95,
            high: ratio * 1.05,
            is_range: false,
        }
    }

    #[test]
    fn a_line_has_the_figure_of_the_trouble_and_what_became_worse() {
        let tried = Tried {
            runs: 6,
            sentence: String::new(),
            trials: vec![
                Trial {
                    command: "mallard run -- ./a".to_owned(),
                    brought: vec![
                        brought(Figure::PageFaults, 100_000.0, 1_000.0),
                        brought(Figure::WallTime, 2.0, 1.0),
                        brought(Figure::CpuTime, 2.0, 1.0),
                        brought(Figure::PeakRss, 1e6, 2e6),
                    ],
                    failure: None,
                },
                Trial {
                    command: "X=1 ./a".to_owned(),
                    brought: Vec::new(),
                    failure: Some("it exits with code 1".to_owned()),
                },
            ],
        };
        let lines = lines(&tried);
        assert_eq!(lines[0].0, "mallard run -- ./a");
        let first = &lines[0].1;
        assert!(
            first[0].starts_with("better: page faults 100,000 → 1,000 (0.01"),
            "{first:?}"
        );
        assert!(
            first[1].starts_with("better: wall time 2.00 s → 1.00 s (0.50 ×"),
            "{first:?}"
        );
        assert!(first[2].starts_with("worse: peak RSS"), "{first:?}");
        assert_eq!(first.len(), 3, "CPU time is on the page");
        assert_eq!(lines[1].1, ["it exits with code 1"]);
        assert!(tried.trials[0].helps() && !tried.trials[1].helps());
        let page = section(&tried).into_string();
        assert!(page.contains("CPU time") && page.contains("it exits with code 1"));
    }
}
