//! Builds the peers of `bench/peers`.
//!
//! A separate cargo builds each peer into the cache. The name of the library contains a hash of
//! everything it is built from, so the library is found again, and changed sources or a changed
//! lock file lead to a new library. A log beside it keeps the build's output.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::builds::peers::Peer;
use crate::cache::files;

/// A step in preparing an allocator, to be shown on the terminal.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    pub allocator: &'a str,
    pub state: State,
    /// The latest line of the build's output, or the reason for a failure; may be empty.
    pub line: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Building,
    Probing,
    Ready,
    Unavailable,
}

/// A peer's build that produced no library.
#[derive(Debug)]
pub(crate) struct BuildFailure {
    pub(crate) reason: String,
    pub(crate) log: Option<PathBuf>,
}

/// What is read of a lock file.
#[derive(Deserialize)]
struct Lock {
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
}

/// The workspace `bench/peers`, and the folder for what is built from it.
#[derive(Debug)]
pub(crate) struct Workshop {
    workspace: PathBuf,
    cache: PathBuf,
}

impl Workshop {
    /// Opens the workspace at `chosen`, or else at `MALLARD_PEERS`, or else in the checkout from
    /// which the lab was built.
    pub(crate) fn open(chosen: Option<&Path>, cache: Option<&Path>) -> Result<Workshop, String> {
        let workspace = chosen
            .map(Path::to_owned)
            .or_else(|| std::env::var_os("MALLARD_PEERS").map(PathBuf::from))
            .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/peers"));
        if !workspace.join("Cargo.toml").is_file() {
            return Err(format!(
                "its sources are not here ({})",
                workspace.display()
            ));
        }
        let workspace = workspace
            .canonicalize()
            .map_err(|error| format!("{}: {error}", workspace.display()))?;
        Ok(Workshop {
            workspace,
            cache: files::cache_folder(cache)?.join("peers"),
        })
    }

    /// The version, in the lock file, of the crate with the peer's sources.
    pub(crate) fn sources_version(&self, peer: &Peer) -> Option<String> {
        let text = fs::read_to_string(self.workspace.join("Cargo.lock")).ok()?;
        let lock: Lock = toml::from_str(&text).ok()?;
        let sources = peer.sources?;
        let mut packages = lock.package.into_iter();
        let package = packages.find(|package| package.name == sources)?;
        Some(package.version)
    }

    /// The library, if it has been built from the current sources.
    pub(crate) fn find_built(&self, peer: &Peer) -> Option<PathBuf> {
        peer.sources?;
        let library = self.library(peer).ok()?;
        library.is_file().then_some(library)
    }

    /// Builds the library and passes on each line of cargo's progress.
    pub(crate) fn build(
        &self,
        peer: &Peer,
        progress: &mut dyn FnMut(&str),
    ) -> Result<PathBuf, BuildFailure> {
        let failed = |reason: String| BuildFailure { reason, log: None };
        let library = self.library(peer).map_err(failed)?;
        let folder = library.parent().expect("a library lies in a folder");
        fs::create_dir_all(folder)
            .map_err(|error| failed(format!("cannot make {}: {error}", folder.display())))?;
        let log = folder.join("build.log");
        let with_log = |reason: String| BuildFailure {
            reason,
            log: Some(log.clone()),
        };

        let built = self.run_cargo(peer, &log, progress).map_err(with_log)?;
        let content = fs::read(&built)
            .map_err(|error| with_log(format!("cannot read {}: {error}", built.display())))?;
        files::replace(&library, &content)
            .map_err(|error| with_log(format!("cannot write {}: {error}", library.display())))?;
        Ok(library)
    }

    /// The path of the library once it is built.
    fn library(&self, peer: &Peer) -> Result<PathBuf, String> {
        let stamp = self
            .stamp(peer)
            .map_err(|error| format!("cannot read {}: {error}", self.workspace.display()))?;
        Ok(self
            .cache
            .join(format!("{}-{stamp}", peer.name))
            .join(peer.file_name()))
    }

    /// A hash of everything that the library is built from.
    fn stamp(&self, peer: &Peer) -> std::io::Result<String> {
        let mut files = vec![
            self.workspace.join("Cargo.toml"),
            self.workspace.join("Cargo.lock"),
        ];
        for folder in ["build", peer.member.name] {
            list_files(&self.workspace.join(folder), &mut files)?;
        }
        files.sort();
        let mut hash = Sha256::new();
        for file in files {
            let name = file.strip_prefix(&self.workspace).unwrap_or(&file);
            let content = fs::read(&file)?;
            hash.update(name.as_os_str().as_encoded_bytes());
            hash.update([0]);
            hash.update(content.len().to_le_bytes());
            hash.update(content);
        }
        Ok(files::hex(&hash.finalize()[..6]))
    }

    /// Runs the build and returns the library in the output folder of the peer's build script.
    fn run_cargo(
        &self,
        peer: &Peer,
        log: &Path,
        progress: &mut dyn FnMut(&str),
    ) -> Result<PathBuf, String> {
        let package = format!("peer-{}", peer.member.name);
        let mut command = mallard_cargo::command();
        command
            .args([
                "build",
                "--release",
                "--locked",
                "--message-format=json-render-diagnostics",
            ])
            // With `-vv`, cargo shows a build script's output as it appears.
            .args(["-vv", "--package", &package, "--target-dir"])
            .arg(self.cache.join("target"))
            .args(peer.member.feature.iter().flat_map(|it| ["--features", it]))
            .current_dir(&self.workspace);
        let mut log_file = fs::File::create(log)
            .map_err(|error| format!("cannot write {}: {error}", log.display()))?;
        let messages = run_logged(&mut command, &mut log_file, progress)?;
        messages
            .lines()
            .filter_map(|line| output_folder(line, &package))
            .map(|folder| folder.join(peer.member.file_name()))
            .find(|library| library.is_file())
            .ok_or_else(|| {
                format!(
                    "its build succeeded but did not produce {}",
                    peer.member.file_name()
                )
            })
    }
}

/// Runs cargo, sending its progress to the log and to `progress`; returns its messages.
fn run_logged(
    command: &mut Command,
    log: &mut fs::File,
    progress: &mut dyn FnMut(&str),
) -> Result<String, String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("it must be built, but cargo cannot be run: {error}"))?;
    let mut stdout = child.stdout.take().expect("stdout is piped");
    let stderr = child.stderr.take().expect("stderr is piped");
    // Both pipes must be drained at the same time: if one fills, cargo blocks.
    let messages = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stdout.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let mut error_lines = Vec::new();
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        // A failure to write the log, such as a full disk, must not stop the build.
        let _ = writeln!(log, "{line}");
        if line.trim_start().starts_with("error") {
            error_lines.push(line.trim().to_owned());
        }
        if let Some(line) = worth_showing(line.trim()) {
            progress(&line);
        }
    }
    let status = child
        .wait()
        .map_err(|error| format!("cannot wait for cargo: {error}"))?;
    let messages = messages.join().unwrap_or_default();
    if status.success() {
        return Ok(messages);
    }
    let said = error_lines
        .first()
        .map_or_else(|| status.to_string(), String::clone);
    Err(format!("it could not be built: {said}"))
}

/// The part of a line of cargo's output that shows progress: its own steps and, shortened, the
/// output of build scripts. None for command lines and for warnings in third-party code.
fn worth_showing(line: &str) -> Option<String> {
    // `[peer-tcmalloc 0.1.0] compiled 8 of 170 files`
    if let Some((_, said)) = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] "))
    {
        let (first, last) = (said.split(' ').next()?, said.rsplit(' ').next()?);
        let compiles = ["cc", "gcc", "c++", "g++", "clang", "clang++"].contains(&first)
            && [".c", ".cc", ".cpp"]
                .iter()
                .any(|ending| last.ends_with(ending));
        let shown = if compiles {
            format!("Compiling {last}")
        } else {
            said.trim().to_owned()
        };
        return (!shown.is_empty()).then_some(shown);
    }
    const STEP_WORDS: [&str; 8] = [
        "error",
        "Updating",
        "Locking",
        "Downloading",
        "Downloaded",
        "Compiling",
        "Blocking",
        "Finished",
    ];
    let step = STEP_WORDS.iter().any(|step| line.starts_with(step));
    step.then(|| line.to_owned())
}

/// The output folder of the build script of `package`, if `message` has it.
fn output_folder(message: &str, package: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "build-script-executed" {
        return None;
    }
    // `path+file:///…/bench/peers/jemalloc#peer-jemalloc@0.1.0`
    let (_, id) = message["package_id"].as_str()?.rsplit_once('#')?;
    let (name, _) = id.split_once('@')?;
    (name == package).then(|| PathBuf::from(message["out_dir"].as_str().unwrap_or_default()))
}

fn list_files(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            if entry.file_name() != OsStr::new("target") {
                list_files(&entry.path(), files)?;
            }
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builds::peers::PEERS;

    fn workspace() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (file, content) in [
            ("Cargo.toml", "[workspace]\n"),
            (
                "Cargo.lock",
                "[[package]]\nname = \"rpmalloc-sys\"\nversion = \"0.2.3+b0\"\n",
            ),
            ("build/lib.rs", "shared"),
            ("rpmalloc/build.rs", "one"),
            ("snmalloc/build.rs", "other"),
        ] {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        folder
    }

    fn workshop(workspace: &Path) -> Workshop {
        Workshop::open(Some(workspace), Some(&workspace.join("cache"))).unwrap()
    }

    fn peer(name: &str) -> &'static Peer {
        PEERS.iter().find(|peer| peer.name == name).unwrap()
    }

    fn rpmalloc() -> &'static Peer {
        peer("rpmalloc")
    }

    #[test]
    fn every_peer_with_sources_is_a_member_of_the_repository_s_workspace() {
        let workshop = Workshop::open(None, None).unwrap();
        for peer in PEERS.iter().filter(|peer| peer.sources.is_some()) {
            assert!(
                workshop
                    .workspace
                    .join(peer.member.name)
                    .join("build.rs")
                    .is_file(),
                "{}",
                peer.name
            );
            assert!(workshop.sources_version(peer).is_some(), "{}", peer.name);
        }
    }

    #[test]
    fn the_stamp_follows_the_peer_s_sources_and_the_shared_ones_alone() {
        let folder = workspace();
        let workshop = workshop(folder.path());
        let before = workshop.stamp(rpmalloc()).unwrap();
        assert_eq!(workshop.stamp(rpmalloc()).unwrap(), before);

        fs::write(folder.path().join("snmalloc/build.rs"), "changed").unwrap();
        assert_eq!(workshop.stamp(rpmalloc()).unwrap(), before);
        for file in ["rpmalloc/build.rs", "build/lib.rs", "Cargo.lock"] {
            let last = workshop.stamp(rpmalloc()).unwrap();
            fs::write(folder.path().join(file), "changed").unwrap();
            assert_ne!(workshop.stamp(rpmalloc()).unwrap(), last, "{file}");
        }
    }

    #[test]
    fn a_built_library_is_found_until_its_sources_change() {
        let folder = workspace();
        let workshop = workshop(folder.path());
        assert_eq!(workshop.find_built(rpmalloc()), None);
        let library = workshop.library(rpmalloc()).unwrap();
        fs::create_dir_all(library.parent().unwrap()).unwrap();
        fs::write(&library, "").unwrap();
        assert_eq!(workshop.find_built(rpmalloc()), Some(library));
        fs::write(folder.path().join("rpmalloc/build.rs"), "changed").unwrap();
        assert_eq!(workshop.find_built(rpmalloc()), None);
    }

    #[test]
    fn the_crate_s_version_is_read_from_the_lock_file() {
        let folder = workspace();
        let workshop = workshop(folder.path());
        assert_eq!(
            workshop.sources_version(rpmalloc()).as_deref(),
            Some("0.2.3+b0")
        );
        assert_eq!(workshop.sources_version(peer("snmalloc")), None);
    }

    #[test]
    fn a_build_that_fails_says_why_and_keeps_its_log() {
        let folder = workspace();
        let mut lines = Vec::new();
        let failure = workshop(folder.path())
            .build(rpmalloc(), &mut |line| lines.push(line.to_owned()))
            .unwrap_err();
        assert!(
            failure.reason.contains("could not be built"),
            "{}",
            failure.reason
        );
        let log = fs::read_to_string(failure.log.unwrap()).unwrap();
        assert!(log.contains("error"), "{log}");
        assert!(!lines.is_empty());
    }

    #[test]
    fn missing_sources_are_named() {
        let reason = Workshop::open(Some(Path::new("/nowhere/at/all")), None).unwrap_err();
        assert!(reason.contains("/nowhere/at/all"), "{reason}");
    }

    #[test]
    fn progress_is_short_and_without_noise() {
        let shown = |line| worth_showing(line);
        let script = |said: &str| worth_showing(&format!("[peer-tcmalloc 0.1.0] {said}"));
        assert_eq!(
            script("compiled 8 of 170 files").unwrap(),
            "compiled 8 of 170 files"
        );
        assert_eq!(
            script("gcc -O3 -c -o src/pa.o src/pa.c").unwrap(),
            "Compiling src/pa.c"
        );
        assert_eq!(
            script("checking for gcc... gcc").unwrap(),
            "checking for gcc... gcc"
        );
        assert_eq!(shown("Compiling cc v1.0.0").unwrap(), "Compiling cc v1.0.0");
        for noise in [
            "Running `/usr/bin/rustc --crate-name cc`",
            "warning: unused",
            "| ^^^",
            "",
        ] {
            assert_eq!(shown(noise), None, "{noise}");
        }
    }

    #[test]
    fn the_output_folder_is_read_from_the_right_message() {
        let message = r#"{"reason":"build-script-executed","out_dir":"/o/out",
            "package_id":"path+file:///p/rpmalloc#peer-rpmalloc@0.1.0"}"#
            .replace('\n', "");
        assert_eq!(
            output_folder(&message, "peer-rpmalloc"),
            Some(PathBuf::from("/o/out"))
        );
        assert_eq!(output_folder(&message, "peer-snmalloc"), None);
        assert_eq!(output_folder("not json", "peer-rpmalloc"), None);
    }
}
