//! What a diagnosis found about the subject, which says with which options to begin.

use std::path::{Path, PathBuf};

use anyhow::Result;
use mallard_report::diagnosis::TroubleKey;

use super::options::Options;
use crate::commands::report::read::{self, Found};
use crate::options::command_line;
use crate::subject::Target;
use crate::terminal::exit::usage;

/// The troubles of the diagnosis that the user names, or of the subject's own in the folder of
/// results; none if there is no such diagnosis.
pub fn troubles(options: &Options, target: &Target) -> Result<Vec<TroubleKey>> {
    let found = match &options.diagnosis {
        Some(path) => Some(named(path)?),
        None => own(options, target),
    };
    let Some((path, troubles)) = found.filter(|(_, troubles)| !troubles.is_empty()) else {
        return Ok(Vec::new());
    };
    let words: Vec<&str> = troubles.iter().map(TroubleKey::as_str).collect();
    eprintln!(
        "Options against {} come first ({}).",
        words.join(", "),
        path.display()
    );
    Ok(troubles)
}

fn named(path: &Path) -> Result<(PathBuf, Vec<TroubleKey>)> {
    match read::read(path)? {
        (path, Found::Diagnosis(d)) => Ok((
            path,
            d.troubles.into_iter().map(|trouble| trouble.key).collect(),
        )),
        (path, other) => Err(usage(format!(
            "--diagnosis {}: it is a result of {}",
            path.display(),
            other.command()
        ))),
    }
}

/// The diagnosis of the same subject, if it was made here.
fn own(options: &Options, target: &Target) -> Option<(PathBuf, Vec<TroubleKey>)> {
    let typed = match target {
        Target::Program { words, .. } => command_line::typed(words),
        Target::Service { service, .. } => options.subject.typed(service),
        Target::Recording(_) => return None,
    };
    let folder = crate::session::folder::in_results(&format!("diagnose-{}", target.name()));
    let (path, found) = read::read(&folder).ok()?;
    match found {
        Found::Diagnosis(d) if d.program == typed => Some((
            path,
            d.troubles.into_iter().map(|trouble| trouble.key).collect(),
        )),
        _ => None,
    }
}
