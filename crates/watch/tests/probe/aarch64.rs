//! The probe on AArch64: programs run under qemu, and the lab of this machine reads what the probe
//! counts and records.
//!
//! qemu shows no fault of the order of memory, and its counter is not this machine's clock: the
//! stamps are those of `CLOCK_MONOTONIC`.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::Ordering::Relaxed;

use mallard_testing::skipped;
use mallard_trace::{Recording, Writer, summary};

use super::*;

const PAGES: [&str; 3] = ["4096", "16384", "65536"];

/// What `scripts/setup-cross.sh` gets, and the probe that it builds.
struct Cross {
    bin: PathBuf,
    place: Place,
}

impl Cross {
    /// `None` where the tools are missing, which is said.
    fn new() -> Option<Cross> {
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
        let cache = || std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let usual = || Some(cache().or_else(home)?.join("mallard/cross"));
        let folder = std::env::var_os("MALLARD_CROSS").map(PathBuf::from);
        let bin = folder.or_else(usual)?.join("bin");
        if !bin.join("qemu-aarch64").exists() {
            skipped("no tools for AArch64 (scripts/setup-cross.sh aarch64)");
            return None;
        }
        let place = Place(tempfile::tempdir().unwrap());
        let cross = Cross { bin, place };
        fs::copy(cross.build_probe(), cross.probe()).unwrap();
        Some(cross)
    }

    fn probe(&self) -> PathBuf {
        self.place.0.path().join(PROBE_NAME)
    }

    fn tool(&self, name: &str) -> String {
        let path = self.bin.join(format!("aarch64-linux-gnu-{name}"));
        path.display().to_string()
    }

    fn build_probe(&self) -> PathBuf {
        const TARGET: &str = "aarch64-unknown-linux-gnu";
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("aarch64-probe");
        let mut cargo = mallard_cargo::command();
        cargo
            .args(["build", "--release", "--locked", "--target", TARGET])
            .args(["-p", "mallard-probe", "--manifest-path"])
            .arg(crates.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&folder)
            .env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
                self.tool("gcc"),
            );
        let output = cargo.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        folder.join(TARGET).join("release").join(PROBE_NAME)
    }

    /// The command that runs a program under qemu, with the probe and its folder.
    fn command(&self, page: &str, folder: Option<&Folder>, words: &[&str]) -> Command {
        let mut command = Command::new(self.bin.join("qemu-aarch64"));
        command.args(["-p", page]);
        if let Some(folder) = folder {
            let preload = format!("LD_PRELOAD={}", self.probe().display());
            let shared = format!("{}={}", layout::VARIABLE, folder.path().display());
            command.args(["-E", &preload, "-E", &shared]);
        }
        command.args(words);
        command
    }

    fn observed(&self, page: &str, program: &Path, what: &str) -> (Output, Folder) {
        let folder = Folder::new(Ask::default(), self.place.0.path()).unwrap();
        let words = [program.to_str().unwrap(), what];
        let output = self.command(page, Some(&folder), &words).output().unwrap();
        (output, folder)
    }
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn counts_are_exact_and_operators_throw_on_aarch64() {
    let Some(cross) = Cross::new() else { return };
    let program = cross.place.compile("counted.c", &cross.tool("gcc"));
    let operators = cross.place.compile("operators.cpp", &cross.tool("g++"));
    for page in PAGES {
        let live = |what: &str| {
            let (output, folder) = cross.observed(page, &program, what);
            assert!(output.status.success(), "{page} {what}: {output:?}");
            let segments = found(&folder);
            assert!(segments[0].allocator().ends_with("/libc.so.6"));
            (output, segments)
        };
        let start = live("errno").1[0].counts().live;
        let (output, segments) = live("one");
        let counts = segments[0].counts();
        assert_eq!(counts.live - start, number(&output, "live"), "{page}");
        assert!(counts.calls[0] > 1000 && counts.failed == 0, "{counts:?}");
        let (output, _) = live("errno");
        assert_eq!(number(&output, "errno"), 77, "{page}");

        let (output, segments) = live("threads");
        let difference = segments[0].counts().live - start - number(&output, "live");
        assert!(difference.abs() <= 4096, "{page}: {difference}");
        let unfreed = live("leave").1[0].counts().live;
        let (output, segments) = live("fork");
        assert_eq!(segments.len(), 2, "{page}");
        for segment in &segments {
            let is_child = segment.header().forked_from.load(Relaxed) != 0;
            let (name, start) = if is_child {
                ("child", unfreed)
            } else {
                ("parent", start)
            };
            let difference = segment.counts().live - start - number(&output, name);
            assert_eq!(difference, 0, "{page} {name}");
        }

        let (output, _folder) = cross.observed(page, &operators, "");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.trim(), "20000 10 1", "{page}: {output:?}");
    }
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_recording_of_an_aarch64_program_is_whole_and_in_order() {
    let Some(cross) = Cross::new() else { return };
    let program = cross.place.compile("counted.c", &cross.tool("gcc"));
    let ask = Ask {
        record: Some(Record {
            chunks: 64,
            lossy: false,
            monotonic: true,
        }),
        ..Ask::default()
    };
    let folder = Folder::new(ask, cross.place.0.path()).unwrap();
    let words = [program.to_str().unwrap(), "threads"];
    let mut child = cross
        .command(PAGES[0], Some(&folder), &words)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let file = Cursor::new(Vec::new());
    let writer = Writer::new(file, &Start::default()).unwrap();
    let drain = Drain::new(folder.path(), Clock::monotonic(), writer);
    let (outcome, file) = drain.until_end_of(child.id(), Limits::default(), || false, |_, _| {});
    assert!(child.wait().unwrap().success());
    assert!(
        matches!(outcome.ended, Ended::Program) && outcome.threads > 1,
        "{outcome:?}"
    );
    let file = Cursor::new(file.unwrap().into_inner());
    let reader = mallard_trace::Reader::new(file).unwrap();
    let summary = summary::of(&mut Recording::index(reader).unwrap()).unwrap();
    let process = summary.processes.values().next().unwrap();
    assert!(process.threads > 1 && process.calls > 10_000, "{process:?}");
    assert_eq!(process.lives.lost, 0, "{process:?}");
}
