//! The folder for the results.
//!
//! Each session gets a folder of its own, so that none overwrites another's results: in
//! `mallard-results`, named for the command, its subject and the time. The link `latest` beside
//! them leads to the last one that has results; a session that ends without any leaves no folder. A
//! folder that the user names is used as it is.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use mallard_report::model::{Kind, Results};

/// The folder of all sessions.
const RESULTS_FOLDER: &str = "mallard-results";
/// The link to the last session's folder.
const LATEST_LINK: &str = "latest";
/// A subject may be any text; this much of it is in the name.
const SUBJECT_CHARS_MAX: usize = 40;

/// The files of results that can be read again.
pub const RESULTS_FILE: &str = "results.json";
pub const COMPARISON_FILE: &str = "compare.json";
pub const DIAGNOSIS_FILE: &str = "diagnose.json";
pub const TUNING_FILE: &str = "tune.json";
pub const MISUSE_FILE: &str = "misuse.json";
pub const SOAK_FILE: &str = "soak.json";

/// A folder that has been checked to be writable.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Made for this session, in the folder of all.
    of_session: bool,
}

impl Folder {
    /// Creates the folder and checks that it is writable, so that no session ends with results that
    /// it cannot save.
    pub fn open(
        chosen: Option<&Path>,
        command: &str,
        subject: &str,
        now: SystemTime,
    ) -> Result<Folder> {
        let Some(path) = chosen else {
            return Folder::of_session(Path::new(RESULTS_FOLDER), command, subject, now);
        };
        Folder::at(path)
    }

    /// Makes a new folder in `all`.
    fn of_session(all: &Path, command: &str, subject: &str, now: SystemTime) -> Result<Folder> {
        let time = humantime::format_rfc3339_seconds(now).to_string();
        let time = time.trim_end_matches('Z').replace(':', "");
        let name = format!("{command}-{}-{time}", plain(subject));
        let taken = |name: &String| all.join(name).exists();
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        let name = names.find(|name| !taken(name)).unwrap_or(name.clone());
        let mut folder = Folder::at(&all.join(&name))?;
        folder.of_session = true;
        Ok(folder)
    }

    fn at(path: &Path) -> Result<Folder> {
        let advice = || {
            let shown = path.display();
            format!("cannot write results to the folder {shown}; choose another with --output")
        };
        fs::create_dir_all(path).with_context(advice)?;
        let trial = path.join(format!(".trial-{}", std::process::id()));
        File::create_new(&trial)
            .and_then(|mut file| file.write_all(b"x"))
            .and_then(|()| fs::remove_file(&trial))
            .with_context(advice)?;
        Ok(Folder {
            path: path.to_owned(),
            of_session: false,
        })
    }

    /// Leads the link to this session's folder, which has its first file.
    fn link(&self) {
        let (Some(all), Some(name), true) =
            (self.path.parent(), self.path.file_name(), self.of_session)
        else {
            return;
        };
        // A link is a convenience: a file system without links has the folder all the same.
        let (link, new) = (
            all.join(LATEST_LINK),
            all.join(format!(".{LATEST_LINK}-{}", std::process::id())),
        );
        if fs::read_link(&link).is_ok_and(|to| to.as_os_str() == name) {
            return;
        }
        if symlink(name, &new).is_ok() && fs::rename(&new, &link).is_err() {
            let _ = fs::remove_file(&new);
        }
    }

    /// Writes the results in every format and returns the files, the human-readable one first.
    pub fn write(&self, results: &Results) -> Result<Vec<PathBuf>> {
        let html = page_of(results.kind);
        let json = match results.kind {
            Kind::Bench | Kind::Suite => RESULTS_FILE,
            Kind::Compare => COMPARISON_FILE,
        };
        let mut files = vec![
            self.file(html, |out| mallard_report::write_html(results, out))?,
            self.file(json, |out| mallard_report::write_json(results, out))?,
        ];
        for experiment in &results.experiments {
            let name = format!("{}.csv", experiment.name);
            files.push(self.file(&name, |out| mallard_report::write_csv(experiment, out))?);
        }
        Ok(files)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A new file that grows during the session.
    pub fn log(&self, name: &str) -> Result<File> {
        let path = self.path.join(name);
        let log =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        self.link();
        Ok(log)
    }

    /// Writes a text and returns its path.
    pub fn text(&self, name: &str, text: &str) -> Result<PathBuf> {
        self.file(name, |out| out.write_all(text.as_bytes()))
    }

    fn file(
        &self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<PathBuf> {
        let (path, part) = (
            self.path.join(name),
            self.path.join(format!(".{name}.part")),
        );
        // Readers never see a partial file, even if this process is killed while writing.
        let written = File::create(&part)
            .map(BufWriter::new)
            .and_then(|mut out| {
                write(&mut out)?;
                out.flush()
            })
            .and_then(|()| fs::rename(&part, &path));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        self.link();
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.of_session {
            // Fails if there is a file in it, and then it is to stay.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// The name of the page of results.
pub fn page_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Bench | Kind::Suite => "report.html",
        Kind::Compare => "compare.html",
    }
}

/// A file in the folder of all sessions.
pub fn in_results(name: &str) -> PathBuf {
    Path::new(RESULTS_FOLDER).join(name)
}

/// Writes a text, and makes its folder.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(path, text))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Renames a file of an earlier session by the time when it was written, and says so. This is for
/// names that the user did not choose: what is asked for by name is written.
pub fn keep_earlier(path: &Path) -> Result<()> {
    let Some(earlier) = earlier_name(path) else {
        return Ok(());
    };
    fs::rename(path, &earlier)
        .with_context(|| format!("cannot rename the earlier {}", path.display()))?;
    eprintln!(
        "the earlier {} is {} now",
        path.display(),
        earlier.display()
    );
    Ok(())
}

/// A name that is free, with the time of the file; `None` if there is no such file.
fn earlier_name(path: &Path) -> Option<PathBuf> {
    let about = fs::symlink_metadata(path)
        .ok()
        .filter(|about| about.is_file())?;
    let time = humantime::format_rfc3339_seconds(about.modified().ok()?).to_string();
    let time = time.trim_end_matches('Z').replace(':', "");
    let stem = path.file_stem()?.to_string_lossy();
    let end = path
        .extension()
        .map_or(String::new(), |end| format!(".{}", end.to_string_lossy()));
    let numbered = (2..).map(|number| format!("-{number}"));
    std::iter::once(String::new())
        .chain(numbered)
        .map(|number| path.with_file_name(format!("{stem}-{time}{number}{end}")))
        .find(|name| fs::symlink_metadata(name).is_err())
}

/// A subject as a part of a file name.
fn plain(subject: &str) -> String {
    let fit = |c: char| {
        if c.is_ascii_alphanumeric() || "._+".contains(c) {
            c
        } else {
            '-'
        }
    };
    let plain: String = subject.chars().map(fit).take(SUBJECT_CHARS_MAX).collect();
    match plain.trim_matches(['-', '.']) {
        "" => "program".to_owned(),
        plain => plain.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_files_of_a_second_are_all_kept() {
        let place = tempfile::tempdir().unwrap();
        let page = place.path().join("page.html");
        keep_earlier(&page).unwrap();
        for text in ["1", "2", "3"] {
            keep_earlier(&page).unwrap();
            fs::write(&page, text).unwrap();
            let file = File::options().write(true).open(&page).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        for (name, text) in [
            ("page-1970-01-01T000000.html", "1"),
            ("page-1970-01-01T000000-2.html", "2"),
            ("page.html", "3"),
        ] {
            assert_eq!(fs::read_to_string(place.path().join(name)).unwrap(), text);
        }
    }

    #[test]
    fn every_session_has_a_folder_of_its_own_and_latest_is_the_last() {
        let place = tempfile::tempdir().unwrap();
        let now = SystemTime::UNIX_EPOCH;
        let open = |subject| Folder::of_session(place.path(), "compare", subject, now).unwrap();
        let (one, other) = (open("./a b"), open("./a b"));
        assert_eq!(one.path, place.path().join("compare-a-b-1970-01-01T000000"));
        assert_eq!(
            other.path,
            place.path().join("compare-a-b-1970-01-01T000000-2")
        );
        let latest = || place.path().join("latest").canonicalize().ok();
        assert_eq!(latest(), None, "nothing has results");
        one.text("a.txt", "a").unwrap();
        assert_eq!(latest(), one.path.canonicalize().ok());
        other.log("runs.jsonl").unwrap();
        assert_eq!(latest(), other.path.canonicalize().ok());

        // What ends without results leaves nothing.
        let failed = open("c");
        let path = failed.path.clone();
        drop(failed);
        drop(other);
        assert!(!path.exists());
        assert_eq!(
            latest().unwrap().file_name(),
            Some("compare-a-b-1970-01-01T000000-2".as_ref())
        );
    }
}
