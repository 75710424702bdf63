//! Runs settings for the search, and keeps a line of every run, so that a session can go on.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use mallard_allocators::Allocator;
use serde::{Deserialize, Serialize};

use super::search::Lab;
use super::space::{self, Setting};
use crate::progress::Spinner;
use crate::subject::{Figures, Subject};

/// The file of all runs, one JSON object a line.
pub const RUNS: &str = "runs.jsonl";

/// One run as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    pub allocator: String,
    pub options: BTreeMap<String, String>,
    pub seconds: f64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Figures,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Reads the runs of an interrupted session. A line that was cut by its end is left out.
pub fn kept(folder: &Path) -> Result<VecDeque<Kept>> {
    let path = folder.join(RUNS);
    let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = BufReader::new(file).lines().map_while(std::io::Result::ok);
    Ok(lines
        .map_while(|line| serde_json::from_str(&line).ok())
        .collect())
}

pub struct Bench<'a> {
    pub subject: Subject<'a>,
    pub allocators: BTreeMap<String, Allocator>,
    /// The runs of an earlier session, which are not repeated.
    pub earlier: VecDeque<Kept>,
    pub log: File,
    pub spent: f64,
    pub budget: f64,
    pub runs: usize,
    pub doing: String,
    pub spinner: Spinner,
}

impl<'a> Bench<'a> {
    pub fn new(
        subject: Subject<'a>,
        allocators: &[Allocator],
        earlier: VecDeque<Kept>,
        log: File,
        budget: f64,
    ) -> Bench<'a> {
        let named = allocators.iter().map(|a| (a.name.clone(), a.clone()));
        Bench {
            subject,
            allocators: named.collect(),
            earlier,
            log,
            spent: 0.0,
            budget,
            runs: 0,
            doing: String::new(),
            spinner: Spinner::new(),
        }
    }
}

impl Bench<'_> {
    fn earlier(&mut self, setting: &Setting) -> Option<Kept> {
        let next = self.earlier.front()?;
        let is_same = next.allocator == setting.allocator && next.options == setting.options;
        if !is_same {
            // Other options were given: what is left of that session is of another search.
            self.spinner.say(
                "the earlier session took another way from here on; its other runs are not used",
            );
            self.earlier.clear();
            return None;
        }
        self.earlier.pop_front()
    }

    fn fresh(&mut self, setting: &Setting) -> Option<Kept> {
        let allocator = &self.allocators[&setting.allocator];
        let (conf, variables) = space::environment(setting, allocator);
        let begun = Instant::now();
        let spec = self.subject.spec(allocator, conf.as_deref(), &variables);
        let (figures, failure) = match spec {
            Ok(spec) => match self.subject.once(&spec)? {
                Ok(figures) => (figures, None),
                Err(failure) => (Vec::new(), Some(failure.reason)),
            },
            Err(reason) => (Vec::new(), Some(reason)),
        };
        Some(Kept {
            allocator: setting.allocator.clone(),
            options: setting.options.clone(),
            seconds: begun.elapsed().as_secs_f64(),
            figures,
            failure,
        })
    }
}

impl Lab for Bench<'_> {
    fn run(&mut self, setting: &Setting) -> Option<Result<Figures, String>> {
        self.runs += 1;
        let share = (self.spent / self.budget * 100.0).min(100.0);
        self.spinner.show(format!(
            "{} · run {} · {share:.0} % of the budget",
            self.doing, self.runs
        ));
        let kept = match self.earlier(setting) {
            Some(kept) => kept,
            None => self.fresh(setting)?,
        };
        self.spent += kept.seconds;
        // A full disk loses the resumption, not the session.
        let line = serde_json::to_string(&kept).expect("figures are numbers");
        let _ = writeln!(self.log, "{line}");
        Some(match kept.failure {
            None => Ok(kept.figures),
            Some(reason) => {
                self.spinner
                    .say(&format!("{} failed: {reason}", setting.shown()));
                Err(reason)
            }
        })
    }

    fn spent(&self) -> f64 {
        self.spent
    }

    fn phase(&mut self, text: &str) {
        self.doing = text.to_owned();
        self.spinner.say(text);
    }
}
