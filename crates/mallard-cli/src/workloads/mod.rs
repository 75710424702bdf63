//! The programs of the experiments: embeds them in the lab, writes them out when needed, and parses
//! their output.

pub mod conditions;
pub mod setting;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use mallard_allocators::probe::same_file;
use mallard_allocators::{Allocator, Kind};
use mallard_report::model::{Failure, Latency, Run};
use mallard_report::suite::REMOTE_METRIC;
use mallard_runner::{End, Measurement};
use object::Endianness;
use object::elf::{DT_SONAME, FileHeader64};
use object::read::elf::{Dyn, ElfFile, FileHeader};

use crate::race;
use setting::Setting;

/// The build's output: programs, and the objects of those that can be linked with a library.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/workloads.rs"));

/// The compiler that built the workloads.
const CXX: &str = env!("MALLARD_CXX");
pub const CXX_VERSION: &str = env!("MALLARD_CXX_VERSION");

/// A workload prints a few lines. Output beyond this is not its answer.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The programs, written to a folder.
#[derive(Debug)]
pub struct Workloads {
    folder: PathBuf,
}

impl Workloads {
    /// Writes all of them to `folder`, which must allow executing programs.
    pub fn install(folder: &Path) -> Result<Workloads> {
        for (name, content) in FILES {
            let path = folder.join(name);
            fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o700)
                .open(&path)
                .and_then(|mut file| file.write_all(content))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(Workloads {
            folder: folder.to_owned(),
        })
    }

    /// The program with this name for an allocator under a setting. An error is a sentence.
    pub fn program(
        &self,
        name: &str,
        setting: Setting,
        allocator: &Allocator,
    ) -> Result<PathBuf, String> {
        match setting {
            Setting::Linked => self.linked(name, allocator),
            _ => Ok(self.plain(name)),
        }
    }

    /// The program as built, for preloading any allocator.
    pub fn plain(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Links a program with an allocator's library, instead of preloading it. For glibc it is the
    /// program as built.
    fn linked(&self, name: &str, allocator: &Allocator) -> Result<PathBuf, String> {
        let Some(library) = &allocator.file else {
            return Ok(self.plain(name));
        };
        let folder = self.folder.join(format!("linked-{}", allocator.name));
        let program = folder.join(name);
        if program.exists() {
            return Ok(program);
        }
        fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        // The program looks the library up by its soname, whatever the name of its file.
        let own_name = soname(library).unwrap_or_else(|| format!("lib{}.so", allocator.name));
        let link = folder.join(own_name);
        symlink(library, &link)
            .map_err(|error| format!("cannot make the link {}: {error}", link.display()))?;

        let mut search = std::ffi::OsString::from("-Wl,--no-as-needed,-rpath,");
        search.push(&folder);
        let mut command = Command::new(CXX);
        let object = self.plain(&format!("{name}.o"));
        command.arg(object).arg("-o").arg(&program);
        command.arg(search).arg(&link).args(["-pthread", "-ldl"]);
        match command.output() {
            Ok(output) if output.status.success() => Ok(program),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let last = said.trim().lines().last().unwrap_or("no error message");
                Err(format!("{CXX} cannot link the program with it: {last}"))
            }
            Err(error) => Err(format!("linking needs the C++ compiler {CXX}: {error}")),
        }
    }
}

/// A library's soname.
fn soname(library: &Path) -> Option<String> {
    let content = fs::read(library).ok()?;
    let elf = ElfFile::<FileHeader64<Endianness>>::parse(&*content).ok()?;
    let (endian, data) = (elf.endian(), elf.data());
    let sections = elf.elf_header().sections(endian, data).ok()?;
    let (dynamic, strings) = sections.dynamic(endian, data).ok()??;
    let strings = sections.strings(endian, data, strings).ok()?;
    let entry = dynamic
        .iter()
        .find(|entry| entry.d_tag(endian) == DT_SONAME)?;
    let name = entry.string(endian, strings).ok()?;
    String::from_utf8(name.to_vec()).ok()
}

/// Whether the lab carries a program of this name.
#[cfg(test)]
pub fn is_carried(name: &str) -> bool {
    FILES.iter().any(|(file, _)| *file == name)
}

/// A workload's report on its run.
#[derive(Debug, Default, PartialEq)]
pub struct WorkloadReport {
    pub seconds: f64,
    pub operations: f64,
    malloc: PathBuf,
    free: PathBuf,
    pub latency: Option<Latency>,
    pub end_rss_bytes: Option<u64>,
    pub lazy_free_bytes: Option<u64>,
    pub huge_bytes: Option<u64>,
    /// The peak of a child, for a program that measures starting processes, or of all processes of
    /// a family together.
    pub child_rss_bytes: Option<u64>,
    /// The largest sum of the RSS of a family's processes.
    pub family_rss_bytes: Option<u64>,
    pub curve: Vec<(f64, u64)>,
    /// The share of the blocks' pages that lie on another NUMA node than their thread.
    pub remote_percent: Option<f64>,
}

/// The name of the sum of a family's RSS.
pub const RSS_SUM: &str = "rss_sum";

impl WorkloadReport {
    /// Reads the lines `name value` that a workload prints; none if one is missing.
    pub fn read(text: &str) -> Option<WorkloadReport> {
        let field = |name: &str| {
            text.lines()
                .filter_map(|line| line.split_once(' '))
                .find_map(|(key, value)| (key == name).then_some(value))
        };
        let number = |name| field(name)?.parse().ok().filter(|n: &f64| n.is_finite());
        let whole = |name| field(name)?.parse::<u64>().ok();
        let latency = || {
            Some(Latency {
                p50_ns: number("p50_ns")?,
                p99_ns: number("p99_ns")?,
                p999_ns: number("p999_ns"),
                max_ns: number("max_ns")?,
                slow_calls: whole("slow_calls"),
            })
        };
        let point = |line: &str| {
            let (at, bytes) = line.strip_prefix("curve ")?.split_once(' ')?;
            Some((at.parse().ok()?, bytes.trim().parse().ok()?))
        };
        Some(WorkloadReport {
            seconds: number("seconds").filter(|seconds| *seconds > 0.0)?,
            operations: number("operations")?,
            malloc: field("malloc")?.into(),
            free: field("free")?.into(),
            latency: latency(),
            end_rss_bytes: whole("end_rss_bytes"),
            lazy_free_bytes: whole("lazy_free_bytes"),
            huge_bytes: whole("huge_bytes"),
            child_rss_bytes: whole("child_rss_bytes"),
            family_rss_bytes: whole("family_rss_bytes"),
            curve: text.lines().filter_map(point).collect(),
            remote_percent: number("remote_percent"),
        })
    }

    /// Reads only which files provide the functions: what a workload says before it is done.
    pub fn providers(text: &str) -> Option<WorkloadReport> {
        let path = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.find_map(|(key, value)| (key == name).then(|| PathBuf::from(value)))
        };
        Some(WorkloadReport {
            malloc: path("malloc")?,
            free: path("free")?,
            ..WorkloadReport::default()
        })
    }

    /// Checks that the process's `malloc` and `free` came from `allocator`. An error is a sentence
    /// that names the library that served instead.
    pub fn check_served_by(&self, allocator: &Allocator) -> Result<(), String> {
        for (function, object) in [("malloc", &self.malloc), ("free", &self.free)] {
            let right = match &allocator.file {
                Some(file) => same_file(file, object),
                None => {
                    allocator.kind == Kind::Glibc
                        && object.file_name().is_some_and(|name| name == "libc.so.6")
                }
            };
            if !right {
                return Err(format!(
                    "not measured: the process took `{function}` from {} instead",
                    object.display()
                ));
            }
        }
        Ok(())
    }
}

/// A workload's run counts if it succeeded, printed its result and was served by its allocator.
pub fn judge(allocator: &Allocator, measured: &Measurement) -> Result<Run, Failure> {
    let fail = |reason: String| Err(race::failure(reason, measured));
    match measured.end {
        End::Code(0) => {}
        End::TimedOut => return fail(race::NOT_IN_TIME.to_owned()),
        _ => return fail("the workload failed".to_owned()),
    }
    let text = measured.stdout.head(ANSWER_BYTES_MAX).unwrap_or_default();
    let Some(answer) = WorkloadReport::read(&text) else {
        return fail("the workload did not print its result".to_owned());
    };
    if let Err(reason) = answer.check_served_by(allocator) {
        return fail(reason);
    }
    let figures = race::figures(measured);
    Ok(Run {
        seconds: answer.seconds,
        // If the work consists of starting processes, the memory of one of them counts.
        peak_rss_bytes: answer
            .child_rss_bytes
            .unwrap_or_else(|| race::peak(measured, answer.end_rss_bytes)),
        ops_per_second: Some(answer.operations / answer.seconds),
        latency: answer.latency,
        end_rss_bytes: answer.end_rss_bytes,
        lazy_free_bytes: answer.lazy_free_bytes,
        huge_bytes: answer.huge_bytes,
        curve: answer.curve,
        metrics: [
            (REMOTE_METRIC, answer.remote_percent),
            (RSS_SUM, answer.family_rss_bytes.map(|bytes| bytes as f64)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect(),
        ..figures
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "seconds 0.25\noperations 1000\nmalloc /lib/my lib.so\nfree /lib/my lib.so\n";

    fn allocator(file: Option<&str>) -> Allocator {
        Allocator {
            name: "a".to_owned(),
            kind: if file.is_some() {
                Kind::Peer
            } else {
                Kind::Glibc
            },
            version: String::new(),
            file: file.map(PathBuf::from),
            environment: Vec::new(),
            conf_variable: None,
            options: None,
            base: None,
        }
    }

    #[test]
    fn a_complete_answer_is_parsed_and_an_incomplete_one_is_rejected() {
        let answer = WorkloadReport::read(TEXT).unwrap();
        assert_eq!((answer.seconds, answer.operations), (0.25, 1000.0));
        for line in TEXT.lines() {
            assert_eq!(
                WorkloadReport::read(&TEXT.replace(line, "")),
                None,
                "without {line}"
            );
        }
        assert_eq!(WorkloadReport::read(&TEXT.replace("0.25", "nan")), None);
    }

    #[test]
    fn optional_results_are_parsed_if_they_are_complete() {
        let reported = "p50_ns 20\np99_ns 90.5\np999_ns 400\nmax_ns 9000\nslow_calls 3\n\
                    end_rss_bytes 4096\nhuge_bytes 0\ncurve 0.0 800\ncurve 0.5 400\n";
        let answer = WorkloadReport::read(&format!("{reported}{TEXT}")).unwrap();
        let latency = answer.latency.unwrap();
        assert_eq!((latency.p99_ns, latency.slow_calls), (90.5, Some(3)));
        assert_eq!(
            (answer.end_rss_bytes, answer.huge_bytes),
            (Some(4096), Some(0))
        );
        assert_eq!(answer.curve, [(0.0, 800), (0.5, 400)]);
        let half = reported.replace("max_ns 9000\n", "");
        assert_eq!(
            WorkloadReport::read(&format!("{half}{TEXT}"))
                .unwrap()
                .latency,
            None
        );
    }

    #[test]
    fn a_process_served_by_another_allocator_does_not_count() {
        let answer = WorkloadReport::read(TEXT).unwrap();
        assert_eq!(
            answer.check_served_by(&allocator(Some("/lib/my lib.so"))),
            Ok(())
        );
        let error = answer
            .check_served_by(&allocator(Some("/lib/other.so")))
            .unwrap_err();
        assert!(error.contains("/lib/my lib.so"), "{error}");
        assert!(answer.check_served_by(&allocator(None)).is_err());

        let mixed =
            WorkloadReport::read(&TEXT.replace("free /lib/my lib.so", "free /lib/libc.so.6"))
                .unwrap();
        let error = mixed
            .check_served_by(&allocator(Some("/lib/my lib.so")))
            .unwrap_err();
        assert!(
            error.contains("`free`") && error.contains("libc.so.6"),
            "{error}"
        );
    }

    #[test]
    fn the_soname_of_a_library_is_found() {
        let libc = fs::read_to_string("/proc/self/maps").unwrap();
        let libc = libc
            .lines()
            .find(|line| line.ends_with("/libc.so.6"))
            .unwrap();
        let libc = &libc[libc.find('/').unwrap()..];
        assert_eq!(soname(Path::new(libc)).as_deref(), Some("libc.so.6"));
        assert_eq!(soname(&std::env::current_exe().unwrap()), None);
    }
}
