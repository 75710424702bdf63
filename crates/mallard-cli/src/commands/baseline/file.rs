//! The file of a baseline: what was measured, how, and every block of figures, so that a check can
//! repeat it. Made for version control: one JSON file per baseline, with the last saves.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mallard_judge::baseline::blocks::{self, Block};
use mallard_report::model::{Machine, Metric};
use serde::{Deserialize, Serialize};

use crate::allocators::choice::Choice;
use crate::service::Subject;
use crate::terminal::exit::usage;

/// The folder of all baselines.
const FOLDER: &str = ".mallard/baselines";
/// The version of the structure. A reader of version N reads all versions up to N.
const SCHEMA: u32 = 1;
/// Older saves are dropped.
const SAVES_MAX: usize = 20;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Baseline {
    pub schema: u32,
    pub name: String,
    /// The program and its arguments; empty for a service.
    pub program: Vec<String>,
    pub subject: Subject,
    /// The allocator of the subject.
    pub choice: Choice,
    pub conf: Option<String>,
    pub anchor: Option<String>,
    /// In the form of `--fail-if`.
    pub gates: Vec<String>,
    /// From the oldest to the newest, which checks compare with.
    pub saves: Vec<Save>,
}

/// The blocks of one `save`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Save {
    /// In RFC 3339.
    pub saved: String,
    /// The commit of the folder in which it was saved.
    pub commit: Option<String>,
    pub machine: Machine,
    pub metrics: Vec<Metric>,
    pub blocks: Vec<Block>,
}

impl Save {
    pub fn logs(&self, metric: &str) -> Vec<f64> {
        blocks::logs(&self.blocks, metric)
    }

    /// The median of a metric of the subject, or of the anchor.
    pub fn median(&self, metric: &str, anchor: bool) -> Option<f64> {
        blocks::median(&self.blocks, metric, anchor)
    }

    pub fn day(&self) -> &str {
        self.saved.get(..10).unwrap_or(&self.saved)
    }
}

impl Baseline {
    pub fn new(name: &str) -> Baseline {
        Baseline {
            schema: SCHEMA,
            name: name.to_owned(),
            program: Vec::new(),
            subject: Subject::default(),
            choice: Choice::default(),
            conf: None,
            anchor: None,
            gates: Vec::new(),
            saves: Vec::new(),
        }
    }

    pub fn last(&self) -> Result<&Save> {
        self.saves
            .last()
            .with_context(|| format!("the baseline {} has no save", self.name))
    }

    /// Reads a baseline by its name.
    pub fn read(name: &str) -> Result<Baseline> {
        let path = path(name)?;
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let known = names();
                let known = if known.is_empty() {
                    "there is none here".to_owned()
                } else {
                    format!("there are {}", known.join(", "))
                };
                return Err(usage(format!(
                    "there is no baseline `{name}` ({}); {known}; `mallard baseline save {name} -- PROGRAM` makes one",
                    path.display()
                )));
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        Baseline::of(&text).map_err(|reason| anyhow::anyhow!("{}: {reason}", path.display()))
    }

    /// Reads a baseline from the text of its file.
    pub fn of(text: &str) -> Result<Baseline, String> {
        let baseline: Baseline = serde_json::from_str(text)
            .map_err(|error| format!("it is not a baseline of this lab: {error}"))?;
        if baseline.schema > SCHEMA {
            return Err(format!(
                "it has version {} of the format, and this lab reads up to {SCHEMA}",
                baseline.schema
            ));
        }
        Ok(baseline)
    }

    /// Writes the file, which replaces the old one only when it is whole.
    pub fn write(&mut self) -> Result<PathBuf> {
        let path = path(&self.name)?;
        let from = self.saves.len().saturating_sub(SAVES_MAX);
        self.saves.drain(..from);
        let failed = || format!("cannot write {}", path.display());
        fs::create_dir_all(FOLDER).with_context(failed)?;
        let part = path.with_extension("json.part");
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&part, text)
            .and_then(|()| fs::rename(&part, &path))
            .with_context(failed)?;
        Ok(path)
    }
}

/// Checks a name and returns its file.
pub fn path(name: &str) -> Result<PathBuf> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        return Err(usage(format!(
            "'{name}' is not a valid name: use letters, digits, '.', '_' and '-', not starting with '.'"
        )));
    }
    Ok(Path::new(FOLDER).join(format!("{name}.json")))
}

/// The names of all baselines here.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            entry
                .file_name()
                .to_str()?
                .strip_suffix(".json")
                .map(str::to_owned)
        })
        .collect();
    names.sort();
    names
}

/// The commit that is checked out here, if there is one.
pub fn commit() -> Option<String> {
    let git = std::process::Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .output();
    let git = git.ok().filter(|output| output.status.success())?;
    let commit = String::from_utf8_lossy(&git.stdout).trim().to_owned();
    (!commit.is_empty()).then_some(commit)
}
