//! Heap profiles as this project's reader and other people's tools see them: Mallard, Debian's
//! jemalloc and Go write them, jeprof and `go tool pprof` have to find the same figures.
//!
//! A program that is not installed is reported as `ignored`, with its name on standard error;
//! `scripts/setup-tests.sh` installs them all, and with `MALLARD_REQUIRE_PROGRAMS=1` a missing one
//! is a failure.

mod dumps;
mod gdb;
mod stacks;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Arguments;
use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, installed, repository, scratch};
use mallard_profile::model::Profile;
use mallard_profile::names::{self, Options};
use mallard_profile::view::View;
use mallard_profile::view::rows::{By, rows};
use mallard_profile::view::trim::trimmed;
use mallard_profile::{read, write};

#[cfg(target_arch = "x86_64")]
const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
#[cfg(target_arch = "aarch64")]
const JEMALLOC: &str = "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2";

/// The functions of `profiled.c` that allocate.
const SITES: [&str; 3] = ["small", "mixed", "large"];

/// The kinds of figures, by jeprof's options, and the views that have them here.
const KINDS: [(&str, View, bool); 4] = [
    ("inuse_space", View::Live, false),
    ("inuse_objects", View::Live, true),
    ("alloc_space", View::Allocs, false),
    ("alloc_objects", View::Allocs, true),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = vec![
        installed::trial(
            "jeprof_finds_the_same_figures",
            &["cc", "jeprof", "addr2line", "nm", "objdump", JEMALLOC],
            || jeprof(Path::new(JEMALLOC)),
        ),
        installed::trial(
            "jeprof_finds_the_same_figures_in_what_mallard_writes",
            &["cc", "jeprof", "addr2line", "nm", "objdump"],
            || jeprof(&Library::release().shared),
        ),
        installed::trial(
            "go_s_pprof_finds_the_same_figures_in_what_mallard_writes",
            &["cc", "go"],
            go_on_mallard_s,
        ),
        installed::trial(
            "a_profile_that_mallard_wrote_has_the_program_s_blocks",
            &["cc"],
            blocks_of_the_program,
        ),
        installed::trial(
            "go_s_pprof_finds_the_same_figures_in_what_is_written",
            &["cc", "go", JEMALLOC],
            go_on_ours,
        ),
        installed::trial(
            "a_profile_that_go_wrote_has_go_s_figures",
            &["go"],
            ours_on_go,
        ),
        installed::trial("threads_live_through_being_sampled", &["c++"], threads_live),
    ];
    trials.extend(dumps::trials());
    trials.extend(gdb::trials());
    trials.extend(stacks::trials());
    libtest_mimic::run(&arguments, trials).exit();
}

/// Figures of functions: of each alone, and with what it called.
type Figures = BTreeMap<String, (f64, f64)>;

/// The program, and the profile that this allocator wrote of it with these further options.
fn recorded(folder: &Path, allocator: &Path, more: &str) -> Result<(PathBuf, PathBuf), String> {
    let program = Source::new("profiled.c")
        .flags(&["-O1", "-fno-optimize-sibling-calls", "-fno-inline"])
        .try_compile()?;
    let prefix = folder.join("profile");
    let conf = format!(
        "prof:true,prof_final:true,prof_accum:true,lg_prof_sample:12{more},prof_prefix:{}",
        prefix.display()
    );
    run(Command::new(&program)
        .env("LD_PRELOAD", allocator)
        .env("MALLOC_CONF", conf))?;
    let entries = fs::read_dir(folder).map_err(|error| error.to_string())?;
    let mut files = entries.flatten().map(|entry| entry.path());
    let is_profile = |path: &PathBuf| path.extension().is_some_and(|e| e == "heap" || e == "gz");
    let profile = files.find(is_profile);
    Ok((program, profile.ok_or("the allocator wrote no profile")?))
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "{command:?} ended with {}:\n{errors}",
        output.status
    ))
}

fn read(path: &Path) -> Result<Profile, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let mut profile = read::profile(&bytes).map_err(|error| error.to_string())?;
    names::name(&mut profile, &Options::default());
    Ok(profile)
}

/// Our figures of all functions, by their sites and by the stacks that contain them.
fn ours(profile: &Profile, view: View, objects: bool) -> Result<Figures, String> {
    let figures = view.figures(profile).map_err(|error| error.to_string())?;
    let place = if objects {
        figures.blocks.ok_or("no blocks")?
    } else {
        figures.main
    };
    let mut found = Figures::new();
    for row in rows(profile, figures, By::Function) {
        let site = row.heaviest.site.ok_or("a row without a site")?;
        let function = site.function.to_string();
        found.entry(function).or_default().0 += row.sums[place] as f64;
    }
    for line in write::collapsed(profile, place).lines() {
        let (stack, value) = line.rsplit_once(' ').ok_or("no figure")?;
        let value: f64 = value.parse().map_err(|_| "no figure")?;
        let mut functions: Vec<&str> = stack.split(';').collect();
        functions.sort_unstable();
        functions.dedup();
        for function in functions {
            found.entry(function.to_owned()).or_default().1 += value;
        }
    }
    Ok(found)
}

/// Lines of `flat flat% sum% cum cum% name`, as jeprof and pprof print them.
fn printed(text: &str, unit: &str) -> Figures {
    // pprof prints zero without a unit.
    let figure = |word: &str| word.strip_suffix(unit).unwrap_or(word).parse::<f64>().ok();
    text.lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [flat, _, _, cumulated, _, name, ..] = &words[..] else {
                return None;
            };
            Some(((*name).to_owned(), (figure(flat)?, figure(cumulated)?)))
        })
        .collect()
}

/// Compares the figures of one function. The others print whole numbers of what they sum up in
/// another order, so a few units may differ.
fn agree(what: &str, name: &str, ours: &Figures, theirs: &Figures) -> Result<(), String> {
    const DIFFERENCE_MAX: f64 = 8.0;
    let ours = ours
        .get(name)
        .ok_or(format!("{what}: {name} is not in our profile"))?;
    let theirs = theirs
        .get(name)
        .ok_or(format!("{what}: {name} is not in theirs"))?;
    let close = |a: f64, b: f64| (a - b).abs() <= DIFFERENCE_MAX;
    if close(ours.0, theirs.0) && close(ours.1, theirs.1) {
        return Ok(());
    }
    Err(format!(
        "{what} of {name}: {ours:?} here, {theirs:?} there (alone, with callees)"
    ))
}

fn jeprof(allocator: &Path) -> Result<(), String> {
    let folder = scratch("jeprof")?;
    let (program, file) = recorded(folder.path(), allocator, "")?;
    let profile = read(&file)?;
    for (kind, view, objects) in KINDS {
        let text = run(Command::new("jeprof")
            .args(["--text", "--show_bytes", &format!("--{kind}")])
            .args([&program, &file]))?;
        let (ours, theirs) = (ours(&profile, view, objects)?, printed(&text, ""));
        for site in SITES {
            agree(kind, site, &ours, &theirs)?;
            let (flat, _) = ours[site];
            if flat <= 0.0 {
                return Err(format!("{kind} of {site} is {flat}"));
            }
        }
        for caller in ["part", "other", "main"] {
            agree(kind, caller, &ours, &theirs)?;
        }
    }
    Ok(())
}

fn go_on_ours() -> Result<(), String> {
    let folder = scratch("pprof")?;
    let (_, file) = recorded(folder.path(), Path::new(JEMALLOC), "")?;
    let profile = trimmed(&read(&file)?);
    let written = folder.path().join("profile.pb.gz");
    let mut out = fs::File::create(&written).map_err(|error| error.to_string())?;
    write::pprof(&profile, &mut out).map_err(|error| error.to_string())?;
    for (kind, view, objects) in KINDS {
        let unit = if objects { "count" } else { "B" };
        let theirs = go_top(&written, kind, unit)?;
        let ours = ours(&profile, view, objects)?;
        for function in SITES.iter().chain(&["part", "other", "main"]) {
            agree(kind, function, &ours, &theirs)?;
        }
    }
    Ok(())
}

fn go_on_mallard_s() -> Result<(), String> {
    let folder = scratch("mallard-pprof")?;
    let library = &Library::release().shared;
    let (_, file) = recorded(folder.path(), library, ",prof_format:pprof")?;
    let profile = read(&file)?;
    // As Go sums up whole numbers of each sample.
    for (kind, view, objects) in KINDS {
        let unit = if objects { "count" } else { "B" };
        let theirs = go_top(&file, kind, unit)?;
        let ours = ours(&profile, view, objects)?;
        for function in SITES.iter().chain(&["part", "other", "main"]) {
            agree(kind, function, &ours, &theirs)?;
        }
    }
    Ok(())
}

/// The blocks that `profiled.c` keeps, by the functions that ask for them.
const KEPT: [(&str, f64, f64); 3] = [
    ("small", 24_000.0, 24_000.0 * 80.0),
    ("mixed", 5000.0, 500.0 * 10_240.0 + 4500.0 * 48.0),
    ("large", 70.0, 70.0 * 81_920.0),
];

fn blocks_of_the_program() -> Result<(), String> {
    let folder = scratch("mallard-blocks")?;
    let library = &Library::release().shared;
    // Every block is sampled: there is no error of sampling.
    // Nor are there classes that the heap makes for sizes that it often meets.
    let options = ",lg_prof_sample:0,tailored_classes:false";
    let (_, file) = recorded(folder.path(), library, options)?;
    let profile = read(&file)?;
    let blocks = ours(&profile, View::Live, true)?;
    let bytes = ours(&profile, View::Live, false)?;
    for (site, count, size) in KEPT {
        let found = (blocks[site].0, bytes[site].0);
        if found != (count, size) {
            return Err(format!("{site}: {found:?} instead of {:?}", (count, size)));
        }
    }
    Ok(())
}

/// Runs `profiled_life.cpp`, on each build for half of the seconds that
/// `MALLARD_PROFILED_SECONDS` says (6).
fn threads_live() -> Result<(), String> {
    let asked = std::env::var("MALLARD_PROFILED_SECONDS").ok();
    let seconds = asked.and_then(|n| n.parse().ok()).unwrap_or(6u64);
    let plugin = Source::new("plugin.cpp")
        .flags(&["-O1", "-shared", "-fPIC"])
        .try_compile()?;
    for library in Library::under_test() {
        let program = Source::new("profiled_life.cpp")
            .flags(&["-O1", "-pthread"])
            .link(&library.shared)
            .try_compile()?;
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        let file = sandbox.write("profile", "");
        let mut command = sandbox.command(&program);
        command.arg(&plugin).arg(&file);
        let outcome = sandbox.run_own(command.arg((seconds / 2).max(1).to_string()));
        let text = outcome.expect_success();
        if text != "all threads ended\n" || !outcome.stderr_text().is_empty() {
            return Err(format!("{}: {text}{}", library.name, outcome.stderr_text()));
        }
        read(&file)?;
    }
    Ok(())
}

/// What `go tool pprof -top` finds in a file.
fn go_top(file: &Path, kind: &str, unit: &str) -> Result<Figures, String> {
    let text = run(Command::new("go")
        .args("tool pprof -top -nodefraction=0 -edgefraction=0 -nodecount=10000".split(' '))
        .args([&format!("-sample_index={kind}"), &format!("-unit={unit}")])
        .arg(file))?;
    Ok(printed(&text, if unit == "B" { "B" } else { "" }))
}

fn ours_on_go() -> Result<(), String> {
    let folder = scratch("go-profile")?;
    let file = folder.path().join("heap.pb.gz");
    let source = repository().join("crates/e2e/programs/profiled.go");
    run(Command::new("go").arg("run").arg(source).arg(&file))?;
    let profile = read(&file)?;
    let theirs = go_top(&file, "inuse_space", "B")?;
    let ours = ours(&profile, View::Live, false)?;
    for function in ["main.small", "main.large", "main.main"] {
        agree("inuse_space", function, &ours, &theirs)?;
    }
    Ok(())
}
