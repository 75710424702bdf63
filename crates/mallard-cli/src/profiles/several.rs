//! Several profiles: their sum, or each alone.
//!
//! What a pattern such as `jeprof.*.heap` matches is not always one sum: earlier profiles of a
//! process are in its last one, and other files may lie beside. These are left out, and named.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use mallard_profile::process::Reading;
use mallard_profile::view::sum::Parts;

use super::source::{self, Loaded, find_names, load, read_one};
use crate::options::search::SearchOptions;

/// Profiles that were read, and a sentence on each file that was not.
pub struct Read<T> {
    pub read: T,
    pub left_out: Vec<String>,
}

/// Each of the profiles alone.
///
/// # Errors
/// None of them can be read.
pub fn each(subjects: &[PathBuf], search: &SearchOptions) -> Result<Read<Vec<Loaded>>> {
    let mut read = Vec::new();
    let mut left_out = Vec::new();
    for subject in subjects {
        match check(subject).and_then(|()| load(subject, search)) {
            Ok(loaded) => read.push(loaded),
            Err(error) => left_out.push(reason(subject, &error)),
        }
    }
    if read.is_empty() {
        return Err(none(&left_out));
    }
    Ok(Read { read, left_out })
}

/// All of the profiles together, but for earlier ones of a process.
///
/// # Errors
/// None of them can be read.
pub fn sum(subjects: &[PathBuf], search: &SearchOptions) -> Result<Read<Loaded>> {
    let mut parts = Parts::default();
    let (mut names, mut notes, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for subject in subjects {
        match add(&mut parts, subject, subjects, search) {
            Ok(reading) => {
                names.push(reading.name);
                for note in reading.notes {
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
            }
            Err(reason) => left_out.push(reason),
        }
    }
    let name = match &names[..] {
        [] => return Err(none(&left_out)),
        [one] => one.clone(),
        several => format!("{} profiles together", several.len()),
    };
    let mut profile = parts.all();
    // A map of a JIT compiler is that of one process.
    let pid = match &names[..] {
        [one] => source::pid_of(one),
        _ => None,
    };
    let outcome = find_names(&mut profile, &name, pid, None, search);
    if parts.lost() {
        notes.push(
            "some of the profiles have fewer kinds of figures: only those that all have are summed"
                .to_owned(),
        );
    }
    let read = Loaded {
        name,
        profile,
        outcome,
        notes,
    };
    Ok(Read { read, left_out })
}

/// Reads one of several profiles and adds it; otherwise a sentence that says why not.
fn add(
    parts: &mut Parts,
    subject: &Path,
    subjects: &[PathBuf],
    search: &SearchOptions,
) -> Result<Reading, String> {
    if let Some(later) = later_one(subject, subjects) {
        return Err(format!(
            "{}: an earlier profile of the process of {}",
            subject.display(),
            later.display()
        ));
    }
    let read = check(subject).and_then(|()| read_one(subject, search));
    let added = read.and_then(|(mut reading, process)| {
        // Where the names of a running process are is known only while it runs.
        if process.is_some() {
            let pid = reading.pid;
            find_names(&mut reading.profile, &reading.name, pid, process, search);
        }
        parts.add(&reading.profile)?;
        Ok(reading)
    });
    added.map_err(|error| reason(subject, &error))
}

/// Refuses a file that has nothing.
fn check(subject: &Path) -> Result<()> {
    match fs::metadata(subject) {
        Ok(about) if about.is_file() && about.len() == 0 => {
            Err(anyhow!("{}: it is empty", subject.display()))
        }
        _ => Ok(()),
    }
}

/// A sentence on a file that was not read; most errors name it themselves.
fn reason(subject: &Path, error: &anyhow::Error) -> String {
    let (shown, said) = (subject.display().to_string(), format!("{error:#}"));
    if said.contains(&shown) {
        said
    } else {
        format!("{shown}: {said}")
    }
}

fn none(left_out: &[String]) -> anyhow::Error {
    anyhow!("none of these is a profile: {}", left_out.join("; "))
}

/// A later profile of the same process among the files, by the names that Mallard and jemalloc give
/// them: `PREFIX.PID.NUMBER.KIND.heap`.
fn later_one<'a>(file: &Path, files: &'a [PathBuf]) -> Option<&'a PathBuf> {
    let (process, number) = numbered(file)?;
    let later = files.iter().filter_map(|other| {
        let (of, at) = numbered(other)?;
        (of == process && at > number).then_some((at, other))
    });
    Some(later.max_by_key(|(at, _)| *at)?.1)
}

/// The process of a file with its folder and prefix, and the number of the file.
fn numbered(file: &Path) -> Option<(String, u64)> {
    let text = file.to_str()?;
    let name = text
        .strip_suffix(mallard_formats::profile::TEXT_SUFFIX)
        .or_else(|| text.strip_suffix(mallard_formats::profile::PPROF_SUFFIX))?;
    let mut parts = name.rsplitn(3, '.');
    let (_kind, number, process) = (parts.next()?, parts.next()?, parts.next()?);
    process.rsplit('.').next()?.parse::<u32>().ok()?;
    Some((process.to_owned(), number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_profiles_of_a_process_are_known_by_their_names() {
        let files = [
            "a/jeprof.11.0.i0.heap",
            "a/jeprof.11.12.f.heap",
            "a/jeprof.11.2.i1.heap",
            "a/jeprof.12.0.f.heap",
            "b/jeprof.11.99.f.heap",
            "a/app.11.99.f.pb.gz",
            "other.heap",
        ]
        .map(PathBuf::from);
        let later = |name: &str| later_one(Path::new(name), &files).and_then(|it| it.to_str());
        assert_eq!(
            later(files[0].to_str().unwrap()),
            Some("a/jeprof.11.12.f.heap")
        );
        assert_eq!(
            later(files[2].to_str().unwrap()),
            Some("a/jeprof.11.12.f.heap")
        );
        for last in [1, 3, 4, 5, 6] {
            assert_eq!(later(files[last].to_str().unwrap()), None);
        }
    }
}
