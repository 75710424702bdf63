//! Samples summed up by site, line, module, size or thread.

use std::collections::HashMap;

use mallard_formats::profile::THREAD;

use super::stack::{Stacks, Step, Steps};
use super::{SampleTypes, View};
use crate::model::{LabelValue, Profile, Sample, Text};

/// What a row of a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Function,
    Line,
    Module,
    Size,
    Thread,
}

impl By {
    pub fn name(self) -> &'static str {
        match self {
            By::Function => "function",
            By::Line => "line",
            By::Module => "module",
            By::Size => "size",
            By::Thread => "thread",
        }
    }
}

/// The sums of some samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What the samples have in common.
    pub key: String,
    /// One sum for each type of the profile.
    pub sums: Vec<i128>,
    /// Where the heaviest stack of the row came from.
    pub heaviest: Origin,
    weight: u64,
}

/// A site and its callers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    pub site: Option<StackFrame>,
    pub callers: Vec<StackFrame>,
}

/// A function in a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackFrame {
    pub function: Text,
    /// Empty if unknown.
    pub file: String,
    /// 0 if unknown.
    pub line: u32,
    pub inlined: bool,
    /// The name of the file that holds the code; empty if unknown.
    pub module: String,
}

/// The rows of a profile, those with the largest main figure first.
pub fn rows(profile: &Profile, figures: SampleTypes, by: By) -> Vec<Row> {
    let mut stacks = Stacks::new(profile);
    let views = View::of(profile);
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut rows: Vec<Row> = Vec::new();
    for sample in &profile.samples {
        let steps = stacks.steps(&sample.stack);
        let key = key(&views, sample, &steps, by);
        let place = *places.entry(key).or_insert_with_key(|key| {
            rows.push(Row {
                key: key.clone(),
                sums: vec![0; profile.types.len()],
                heaviest: Origin::default(),
                weight: 0,
            });
            rows.len() - 1
        });
        let row = &mut rows[place];
        for (sum, value) in row.sums.iter_mut().zip(&sample.values) {
            *sum += i128::from(*value);
        }
        let weight = sample.values[figures.main].unsigned_abs();
        if row.heaviest.site.is_none() || weight > row.weight {
            row.weight = weight;
            row.heaviest = origin(&steps);
        }
    }
    rows.retain(|row| row.sums[figures.main] != 0);
    let main = figures.main;
    rows.sort_by(|a, b| {
        b.sums[main]
            .cmp(&a.sums[main])
            .then_with(|| a.key.cmp(&b.key))
    });
    rows
}

/// The key of the row that each sample belongs to.
pub fn keys(profile: &Profile, by: By) -> Vec<String> {
    let mut stacks = Stacks::new(profile);
    let views = View::of(profile);
    let samples = profile.samples.iter();
    samples
        .map(|sample| key(&views, sample, &stacks.steps(&sample.stack), by))
        .collect()
}

impl Row {
    pub fn main(&self, figures: SampleTypes) -> i128 {
        self.sums[figures.main]
    }

    pub fn blocks(&self, figures: SampleTypes) -> Option<i128> {
        figures.blocks.map(|place| self.sums[place])
    }

    /// The main figure of one block.
    pub fn average(&self, figures: SampleTypes) -> Option<f64> {
        let blocks = self.blocks(figures).filter(|&blocks| blocks > 0)?;
        Some(self.main(figures) as f64 / blocks as f64)
    }

    /// The sum of another view.
    pub fn of_view(&self, view: View, profile: &Profile) -> Option<i128> {
        let figures = view.figures(profile).ok()?;
        Some(self.sums[figures.main])
    }
}

fn key(views: &[(View, SampleTypes)], sample: &Sample, steps: &Steps<'_>, by: By) -> String {
    let key = match by {
        By::Function => steps.site().map(function),
        By::Line => steps.site().map(|site| match site.line {
            0 => site.name.to_string(),
            line => format!("{} {}:{line}", site.name, site.file),
        }),
        By::Module => {
            let mapping = steps.site().and_then(|site| site.mapping);
            mapping.map(|mapping| mapping.name().to_owned())
        }
        By::Thread => {
            let label = sample.labels.iter().find(|label| &*label.key == THREAD);
            label.map(|label| label.value.to_string())
        }
        By::Size => size(views, sample),
    };
    key.unwrap_or_else(|| "(unknown)".to_owned())
}

/// A function by its name. Names without a namespace, such as those of lambdas and of C's static
/// functions, may be those of several functions, so their file belongs to them.
fn function(site: &Step<'_>) -> String {
    let file = site.file.rsplit('/').next().unwrap_or_default();
    if file.is_empty() || site.name.contains("::") || site.name.contains('.') {
        return site.name.to_string();
    }
    format!("{} ({file})", site.name)
}

/// The size of a sample's blocks: exact by its label, else the power of two above their mean.
fn size(views: &[(View, SampleTypes)], sample: &Sample) -> Option<String> {
    let labels = sample.labels.iter().filter(|label| &*label.key == "bytes");
    let exact = labels
        .map(|label| &label.value)
        .find_map(|value| match value {
            LabelValue::Number { value, .. } => u64::try_from(*value).ok(),
            LabelValue::Text(text) => text.parse().ok(),
        });
    if let Some(bytes) = exact {
        return Some(mallard_report::units::size(bytes));
    }
    let mean = views.iter().find_map(|(_, of_view)| {
        let blocks = sample.values[of_view.blocks?];
        let bytes = u64::try_from(sample.values[of_view.main]).ok()?;
        bytes.checked_div(u64::try_from(blocks).ok()?)
    })?;
    let above = mean.max(8).checked_next_power_of_two().unwrap_or(1 << 63);
    Some(format!("≤ {}", mallard_report::units::size(above)))
}

fn origin(steps: &Steps<'_>) -> Origin {
    let place = |step: &Step<'_>| StackFrame {
        function: step.name.clone(),
        file: step.file.to_owned(),
        line: step.line,
        inlined: step.inlined,
        module: step
            .mapping
            .map_or_else(String::new, |mapping| mapping.name().to_owned()),
    };
    Origin {
        site: steps.site().map(place),
        callers: steps.callers().into_iter().map(place).collect(),
    }
}
