//! What becomes of profiles that are asked for: of many call stacks, on a full disk, under names
//! that no file can have. And the figures in them, beside those that the program counted.

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::Trial;
use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Outcome, Sandbox, installed};
use mallard_profile::model::Profile;
use mallard_profile::read;
use mallard_profile::view::View;

pub fn trials() -> Vec<Trial> {
    let case = |name, run: fn() -> Result<(), String>| installed::trial(name, &["cc"], run);
    vec![
        case(
            "what_hinders_a_profile_is_told_and_nothing_is_lost",
            hindered,
        ),
        case("a_prefix_that_cannot_be_used_is_told", prefixes),
        case(
            "what_sites_pin_adds_up_to_the_free_bytes_in_slabs",
            fragmentation,
        ),
        case("lifetimes_are_those_of_the_program", lifetimes),
        case("live_bytes_are_those_that_the_allocator_counts", live),
        case("the_profiler_s_own_memory_is_small", memory),
    ]
}

/// Call stacks in the program's profiles.
const SITES: usize = 10_000;

fn program() -> Result<PathBuf, String> {
    Source::new("dumps.c")
        .flags(&["-O1", "-fno-optimize-sibling-calls"])
        .with_headers()
        .link(&Library::release().shared)
        .try_compile()
}

fn sandbox() -> Sandbox<'static> {
    Sandbox::temporary(Allocator::System)
}

/// Runs the program with these options.
fn run(sandbox: &Sandbox, conf: &str, words: &[&str]) -> Result<Outcome, String> {
    let mut command = sandbox.plain_command(program()?);
    command
        .args(words)
        .env("LD_PRELOAD", &Library::release().shared)
        .env("MALLOC_CONF", conf);
    sandbox.run(&mut command)
}

fn read(path: &Path) -> Result<Profile, String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    read::profile(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// The sum of a view's main figures, and of its blocks.
fn total(profile: &Profile, view: View) -> Result<(i128, i128), String> {
    let figures = view.figures(profile).map_err(|error| error.to_string())?;
    let blocks = figures.blocks.map_or(0, |place| profile.total(place));
    Ok((profile.total(figures.main), blocks))
}

fn expect(holds: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem()) }
}

fn hindered() -> Result<(), String> {
    let long = format!("{}/x", "n".repeat(4090));
    let part = "p".repeat(300);
    let files = [
        "first",
        "/dev/full",
        "/nowhere/x",
        "/proc/x",
        "/",
        &*long,
        &*part,
        "last",
    ];
    let reasons = [
        "/dev/full: the disk is full (error 28)".to_owned(),
        "/nowhere/x: no such folder (error 2)".to_owned(),
        "/proc/x: no such folder (error 2)".to_owned(),
        "/: it is a folder (error 21)".to_owned(),
        format!(
            "{0}…{0}/x: the name is too long (error 36)",
            "n".repeat(238)
        ),
        format!("{part}: the name is too long (error 36)"),
    ];
    for (format, name) in [("heap_v2", "text"), ("pprof", "pprof's form")] {
        let sandbox = sandbox();
        let conf = format!("prof:true,lg_prof_sample:0,prof_format:{format}");
        let count = SITES.to_string();
        let words = [&["sites", &*count][..], &files].concat();
        let outcome = run(&sandbox, &conf, &words)?;
        let text = outcome.stdout_text();
        let codes: Vec<&str> = text
            .lines()
            .filter_map(|line| line.rsplit_once(": ")?.1.split(',').next())
            .collect();
        let failed = libc_efault();
        let expected = ["0", failed, failed, failed, failed, failed, failed, "0"];
        expect(codes == expected, || text.clone())?;
        expect_lines(&outcome.stderr_text(), &reasons)?;
        // What was sampled before the failures is in the profile after them.
        for file in ["first", "last"] {
            let profile = read(&sandbox.path(file))?;
            let stacks: std::collections::HashSet<_> =
                profile.samples.iter().map(|sample| &sample.stack).collect();
            let (_, blocks) = total(&profile, View::Live)?;
            expect(stacks.len() >= SITES && blocks >= SITES as i128, || {
                format!("{file}: {} stacks, {blocks} blocks", stacks.len())
            })?;
        }
        for line in text.lines().filter(|line| line.contains("st: 0")) {
            eprintln!("a profile in {name}: {line}");
        }
    }
    Ok(())
}

/// Checks the lines about the files that could not be written: one for each reason. The fifth is
/// about a name that is shortened.
fn expect_lines(text: &str, reasons: &[String]) -> Result<(), String> {
    let lines: Vec<&str> = text
        .lines()
        .map(|line| {
            line.strip_prefix("mallard: cannot write the heap profile ")
                .unwrap_or(line)
        })
        .collect();
    let of_long = lines.get(4).copied().unwrap_or_default();
    expect(
        of_long.contains("nnn…nnn") && of_long.ends_with("n/x: the name is too long (error 36)"),
        || of_long.to_owned(),
    )?;
    let same =
        |(place, reason): (usize, &String)| place == 4 || lines.get(place) == Some(&&**reason);
    expect(
        lines.len() == reasons.len() && reasons.iter().enumerate().all(same),
        || format!("{lines:#?} instead of {reasons:#?}"),
    )
}

/// `EFAULT`, as the program prints it.
fn libc_efault() -> &'static str {
    "14"
}

fn prefixes() -> Result<(), String> {
    let long = "x".repeat(600);
    for (prefix, expected) in [
        (
            "/nowhere/x",
            "mallard: cannot write the heap profile /nowhere/x.",
        ),
        (
            "/dev/null/x",
            "mallard: cannot write the heap profile /dev/null/x.",
        ),
        (&*long, "prof_prefix"),
    ] {
        let sandbox = sandbox();
        let conf = format!("prof:true,prof_final:true,lg_prof_sample:0,prof_prefix:{prefix}");
        let outcome = run(&sandbox, &conf, &["sites", "100", ""])?;
        let (code, text) = (outcome.stdout_text(), outcome.stderr_text());
        eprintln!("{code}{text}");
        expect(text.contains(expected), || format!("{prefix}: {text}"))?;
        // One line for the profile that was asked for, and one for the last one.
        expect((1..=3).contains(&text.lines().count()), || text.clone())?;
    }
    Ok(())
}

/// One number on standard output.
fn numbers(outcome: &Outcome) -> Result<Vec<f64>, String> {
    let text = outcome.stdout_text();
    text.split_whitespace()
        .map(|word| word.parse().map_err(|_| text.clone()))
        .collect()
}

fn near(what: &str, found: f64, truth: f64, within: f64) -> Result<(), String> {
    let off = found / truth - 1.0;
    eprintln!("{what}: {found:.0} of {truth:.0}, {:+.2} %", off * 100.0);
    expect(off.abs() <= within, || {
        format!("{what}: {found} is not within {within} of {truth}")
    })
}

fn fragmentation() -> Result<(), String> {
    for (what, lg, n) in [
        ("pinned bytes, every block sampled", 0, "300000"),
        ("pinned bytes, every 4 KiB sampled", 12, "300000"),
        ("pinned bytes, every 128 KiB sampled", 17, "3000000"),
    ] {
        let sandbox = sandbox();
        let conf =
            format!("prof:true,prof_seed:1,prof_rate_max:0,prof_format:pprof,lg_prof_sample:{lg}");
        let outcome = run(&sandbox, &conf, &["frag", "frag.pb.gz", n])?;
        let free = numbers(&outcome)?[0];
        let profile = read(&sandbox.path("frag.pb.gz"))?;
        near(what, total(&profile, View::Frag)?.0 as f64, free, 0.1)?;
    }
    Ok(())
}

fn lifetimes() -> Result<(), String> {
    for lg in ["0", "10"] {
        let sandbox = sandbox();
        let conf = format!("prof:true,prof_seed:1,prof_format:pprof,lg_prof_sample:{lg}");
        let outcome = run(&sandbox, &conf, &["lives", "lives.pb.gz"])?;
        let mean = numbers(&outcome)?[0];
        let (sum, blocks) = total(&read(&sandbox.path("lives.pb.gz"))?, View::Lifetime)?;
        let what = format!("ns that a block lives, lg_prof_sample:{lg}");
        near(&what, sum as f64 / blocks as f64, mean, 0.05)?;
    }
    Ok(())
}

fn live() -> Result<(), String> {
    for lg in [12, 17, 19] {
        let conf = format!("prof:true,prof_seed:1,prof_rate_max:0,lg_prof_sample:{lg}");
        let found = numbers(&run(&sandbox(), &conf, &["live"])?)?;
        let [counted, estimated, samples] = found[..] else {
            return Err(format!("{found:?}"));
        };
        let what = format!("live bytes of {samples} samples, lg_prof_sample:{lg}");
        near(&what, estimated, counted, 4.0 / samples.sqrt())?;
    }
    Ok(())
}

fn memory() -> Result<(), String> {
    let cost = |conf: &str, words: [&str; 2]| -> Result<Vec<f64>, String> {
        let words = [&["blocks"][..], &words].concat();
        numbers(&run(&sandbox(), conf, &words)?)
    };
    let every = "prof:true,lg_prof_sample:0";
    let bytes = |size| -> Result<f64, String> {
        let words = [size, "500000"];
        Ok((cost(every, words)?[0] - cost("", words)?[0]) / 500_000.0)
    };
    for (size, most) in [("16", 130.0), ("64", 130.0), ("1000", 130.0)] {
        let more = bytes(size)?;
        eprintln!("every block sampled: {more:.0} bytes more for a block of up to {size}");
        expect(more <= most, || {
            format!("{more} bytes for blocks of up to {size}")
        })?;
    }
    // A heap of over 1 GiB, of which little is touched.
    for (size, count, most) in [("1024", "2200000", Some(0.002)), ("14000", "160000", None)] {
        let words = [size, count];
        let (off, on) = (cost("", words)?, cost("prof:true,prof_seed:1", words)?);
        let part = on[0] / off[0] - 1.0;
        eprintln!(
            "{} samples in {:.2} GiB of blocks of up to {size} bytes: {:.3} % more memory",
            on[1],
            off[0] / f64::from(1 << 30),
            part * 100.0
        );
        expect(most.is_none_or(|most| part <= most), || {
            format!("{part} of a heap of blocks of up to {size} bytes")
        })?;
    }
    Ok(())
}
