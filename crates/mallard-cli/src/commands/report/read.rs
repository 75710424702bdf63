//! Finds out what kind of lab file a file is, by the fields that only that kind has, and reads it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use mallard_report::diagnosis::{self, Diagnosis};
use mallard_report::history::{Checked, History};
use mallard_report::misuse::{self, Misuse};
use mallard_report::model::Results;
use mallard_report::sites::Sites;
use mallard_report::soak::{self, Soak};
use mallard_report::tuning::{self, Tuning};
use serde_json::Value;

use crate::commands::baseline;
use crate::session::folder::{
    COMPARISON_FILE, DIAGNOSIS_FILE, MISUSE_FILE, RESULTS_FILE, SOAK_FILE, TUNING_FILE,
};

/// What a file holds.
pub enum Found {
    Results(Box<Results>),
    Diagnosis(Box<Diagnosis>),
    Tuning(Box<Tuning>),
    Misuse(Box<Misuse>),
    Soak(Box<Soak>),
    Baseline(Box<History>),
    Check(Box<Checked>),
    Profile(Box<Sites>),
}

impl Found {
    /// The command that wrote it.
    pub fn command(&self) -> &'static str {
        match self {
            Found::Results(_) => "bench or compare",
            Found::Diagnosis(_) => "diagnose",
            Found::Tuning(_) => "tune",
            Found::Misuse(_) => "bench misuse",
            Found::Soak(_) => "soak",
            Found::Baseline(_) => "baseline",
            Found::Check(_) => "baseline check",
            Found::Profile(_) => "profile",
        }
    }
}

/// The files that a folder of results may have.
const NAMES: [&str; 6] = [
    RESULTS_FILE,
    COMPARISON_FILE,
    DIAGNOSIS_FILE,
    TUNING_FILE,
    MISUSE_FILE,
    SOAK_FILE,
];

/// Reads a file, or the one in a folder. Returns its path, too.
pub fn read(path: &Path) -> Result<(PathBuf, Found)> {
    let path = if path.is_dir() {
        in_folder(path)?
    } else {
        path.to_owned()
    };
    let shown = path.display();
    let bytes = fs::read(&path).with_context(|| format!("cannot read {shown}"))?;
    let Ok(value) = serde_json::from_slice::<Value>(&bytes) else {
        // A profile is shown by the command that knows its symbols.
        bail!(
            "{shown} is not a JSON file of the lab; `mallard profile` shows heap profiles, \
             `mallard trace info` recordings"
        );
    };
    let has = |key: &str| value.get(key).is_some();
    let text = String::from_utf8_lossy(&bytes);
    let wrong = |error: String| anyhow::anyhow!("{shown}: {error}");
    let found = if has("experiments") {
        let results = mallard_report::read_json(&mut &bytes[..]);
        Found::Results(Box::new(results.map_err(|error| wrong(error.to_string()))?))
    } else if has("answer") && has("figures") {
        newest(&value, diagnosis::SCHEMA).map_err(wrong)?;
        Found::Diagnosis(Box::new(Diagnosis::from_json(&text).map_err(wrong)?))
    } else if has("points") && has("sentence") {
        newest(&value, tuning::SCHEMA).map_err(wrong)?;
        Found::Tuning(Box::new(Tuning::from_json(&text).map_err(wrong)?))
    } else if has("misuses") && has("seeds") {
        newest(&value, misuse::SCHEMA).map_err(wrong)?;
        Found::Misuse(Box::new(Misuse::from_json(&text).map_err(wrong)?))
    } else if has("bounds") && has("phases") {
        newest(&value, soak::SCHEMA).map_err(wrong)?;
        Found::Soak(Box::new(Soak::from_json(&text).map_err(wrong)?))
    } else if has("saves") && has("gates") {
        Found::Baseline(Box::new(baseline::history(&text).map_err(wrong)?))
    } else if has("now") && has("gates") {
        Found::Check(Box::new(baseline::checked(&text).map_err(wrong)?))
    } else if has("view") && has("rows") {
        Found::Profile(Box::new(Sites::of(&text).map_err(wrong)?))
    } else {
        bail!(
            "{shown} is not a result that can be shown again: those of bench, compare, replay, diagnose, \
             tune, soak, baseline check and profile, and the files of baselines can"
        );
    };
    Ok((path, found))
}

fn in_folder(folder: &Path) -> Result<PathBuf> {
    let mut files = NAMES.iter().map(|name| folder.join(name));
    files.find(|file| file.is_file()).with_context(|| {
        let shown = folder.display();
        if folder.exists() {
            format!("{shown} has none of {}", NAMES.join(", "))
        } else {
            format!("there is no {shown}")
        }
    })
}

/// Refuses what a newer lab wrote.
fn newest(value: &Value, known: u32) -> Result<(), String> {
    match value.get("schema").and_then(Value::as_u64) {
        Some(schema) if schema > u64::from(known) => Err(format!(
            "it was written by a newer mallard (schema {schema}; this one reads up to {known})"
        )),
        _ => Ok(()),
    }
}
