//! The report: its JSON parses, has jemalloc's keys, and has consistent figures; its text has
//! jemalloc's sections; letters omit parts; options print it.
//!
//! `keys.txt` has the paths and types of all values in jemalloc 5.3.0's report of a process with
//! two arenas and a destroyed one. A number in a path is `#`, and so are `merged` and `destroyed`.

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Outcome, Sandbox};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

fn program() -> PathBuf {
    Source::new("report.c")
        .flags(&["-O1", "-pthread"])
        .with_headers()
        .link(&Library::release().shared)
        .compile()
}

fn run(library: &Library, conf: &str, arguments: &[&str]) -> Outcome {
    let sandbox = Sandbox::temporary(Allocator::Preload(library));
    let mut command = sandbox.command(program());
    sandbox.run_own(command.env("MALLOC_CONF", conf).args(arguments))
}

/// The report on standard output.
fn printed(library: &Library, arguments: &[&str]) -> String {
    let outcome = run(library, "narenas:2", arguments);
    let text = outcome.expect_success();
    assert_eq!(outcome.stderr_text(), "");
    text
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn json(library: &Library, what: &str, letters: &str) -> Value {
    parsed(&printed(library, &[what, letters]))["jemalloc"].take()
}

/// The paths and types of all values.
fn keys(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            let is_arena = key.parse::<u32>().is_ok() || key == "merged" || key == "destroyed";
            let key = if is_arena { "#" } else { key };
            keys(value, &format!("{path}/{key}"), into);
        }),
        Value::Array(elements) => elements
            .iter()
            .for_each(|value| keys(value, &format!("{path}/[]"), into)),
        Value::Bool(_) => drop(into.insert(format!("{path} bool"))),
        Value::Number(_) => drop(into.insert(format!("{path} number"))),
        Value::String(_) => drop(into.insert(format!("{path} text"))),
        Value::Null => panic!("{path} is null"),
    }
}

#[test]
fn the_json_has_every_key_of_jemallocs_with_its_type() {
    for library in Library::under_test() {
        let mut found = BTreeSet::new();
        let report = parsed(&printed(library, &["arenas", "J"]));
        keys(&report, "", &mut found);
        let wanted: BTreeSet<String> = include_str!("keys.txt").lines().map(String::from).collect();
        assert!(wanted.len() > 200);
        let missing: Vec<_> = wanted.difference(&found).collect();
        assert!(missing.is_empty(), "{missing:#?}");
        // Other keys than options may only be extra if newer versions of jemalloc have them, or for
        // a figure that is Mallard's alone.
        let more = |key: &&String| !key.starts_with("/jemalloc/opt/");
        let excess: Vec<_> = found.difference(&wanted).filter(more).collect();
        assert_eq!(
            excess,
            [
                "/jemalloc/arenas/hugepage number",
                "/jemalloc/config/prof_frameptr bool",
                "/jemalloc/stats.arenas/#/dirty_retaken number",
            ]
        );
        for (list, length) in [("bins", 36), ("lextents", 196), ("extents", 199)] {
            let list = &report["jemalloc"]["stats.arenas"]["0"][list];
            assert_eq!(list.as_array().map(Vec::len), Some(length));
        }
    }
}

fn number(value: &Value, key: &str) -> u64 {
    let found = key.split('.').fold(value, |value, key| &value[key]);
    found.as_u64().unwrap_or_else(|| panic!("{key}: {found}"))
}

/// The sum over a list of `term` applied to each index and element.
fn sum(arena: &Value, list: &str, term: impl Fn(usize, &Value) -> u64) -> u64 {
    let list = arena[list].as_array().expect("a list");
    list.iter().enumerate().map(|(i, x)| term(i, x)).sum()
}

fn check_arena(name: &str, arena: &Value, classes: &Value) {
    let size = |list: &str, i: usize| number(&classes[list][i], "size");
    for (i, bin) in arena["bins"].as_array().expect("bins").iter().enumerate() {
        let (made, freed) = (number(bin, "nmalloc"), number(bin, "ndalloc"));
        assert_eq!(made - freed, number(bin, "curregs"), "{name} bin {i}");
        let regions = number(bin, "curslabs") * number(&classes["bin"][i], "nregs");
        assert!(number(bin, "curregs") <= regions, "{name} bin {i}");
    }
    let bins = |key: &'static str| sum(arena, "bins", |_, bin| number(bin, key));
    for key in ["nmalloc", "ndalloc", "nrequests", "nfills", "nflushes"] {
        assert_eq!(bins(key), number(&arena["small"], key), "{name} {key}");
    }
    let small = sum(arena, "bins", |i, bin| {
        number(bin, "curregs") * size("bin", i)
    });
    assert_eq!(small, number(arena, "small.allocated"), "{name}");
    let large = sum(arena, "lextents", |i, l| {
        number(l, "curlextents") * size("lextent", i)
    });
    assert_eq!(large, number(arena, "large.allocated"), "{name}");
    for kind in ["dirty", "muzzy"] {
        let bytes = sum(arena, "extents", |_, x| number(x, &format!("{kind}_bytes")));
        assert_eq!(
            bytes,
            number(arena, &format!("p{kind}")) * 4096,
            "{name} {kind}"
        );
    }
    let retained = sum(arena, "extents", |_, x| number(x, "retained_bytes"));
    assert_eq!(retained, number(arena, "retained"), "{name}");
    let active = number(arena, "pactive") * 4096;
    assert!(small + large <= active, "{name}");
    assert!(active <= number(arena, "resident"), "{name}");
    assert!(
        number(arena, "resident") <= number(arena, "mapped"),
        "{name}"
    );
}

/// Checks that all figures of a report are consistent.
fn check_sums(report: &Value) {
    let arenas = report["stats.arenas"].as_object().expect("arenas");
    let merged = &arenas["merged"];
    let each = || {
        arenas
            .iter()
            .filter(|(name, _)| name.parse::<u32>().is_ok())
    };
    assert!(each().count() >= 2);
    for (name, arena) in arenas {
        check_arena(name, arena, &report["arenas"]);
    }
    for key in [
        "mapped",
        "resident",
        "retained",
        "base",
        "internal",
        "tcache_bytes",
        "pactive",
        "pdirty",
        "pmuzzy",
        "nthreads",
        "small.allocated",
        "large.allocated",
        "small.nmalloc",
    ] {
        let parts: u64 = each().map(|(_, arena)| number(arena, key)).sum();
        assert_eq!(parts, number(merged, key), "{key}");
    }
    let stats = &report["stats"];
    let allocated = number(merged, "small.allocated") + number(merged, "large.allocated");
    assert_eq!(allocated, number(stats, "allocated"));
    assert_eq!(number(merged, "pactive") * 4096, number(stats, "active"));
    assert_eq!(number(merged, "resident"), number(stats, "resident"));
    assert_eq!(number(merged, "mapped"), number(stats, "mapped"));
    let metadata = number(merged, "base") + number(merged, "internal");
    assert_eq!(metadata, number(stats, "metadata"));
}

#[test]
fn the_sums_agree_at_rest_and_while_the_callback_works() {
    for library in Library::under_test() {
        check_sums(&json(library, "plain", "J"));
        check_sums(&json(library, "busy", "J"));
        let report = json(library, "arenas", "J");
        check_sums(&report);
        let arenas = &report["stats.arenas"];
        let destroyed = number(&arenas["destroyed"], "large.nmalloc");
        assert_eq!(destroyed, 1, "the block of the arena that was destroyed");
        let threads = number(&arenas["merged"], "nthreads");
        assert_eq!(threads, 5, "four threads and the first");
    }
}

#[test]
fn letters_leave_parts_out() {
    let library = Library::release();
    let whole = json(library, "arenas", "J");
    let arena = |report: &Value, key: &str| report["stats.arenas"]["0"].get(key).is_some();
    for (letter, key) in [
        ("b", "bins"),
        ("l", "lextents"),
        ("x", "mutexes"),
        ("e", "extents"),
        ("h", "hpa_shard"),
    ] {
        assert!(arena(&whole, key), "{key}");
        let report = json(library, "arenas", &format!("J{letter}"));
        assert!(!arena(&report, key), "{letter}");
    }
    assert!(json(library, "arenas", "Jg").get("opt").is_none());
    for (letter, key) in [("m", "merged"), ("d", "destroyed"), ("a", "0")] {
        assert!(whole["stats.arenas"].get(key).is_some(), "{key}");
        let report = json(library, "arenas", &format!("J{letter}"));
        assert!(report["stats.arenas"].get(key).is_none(), "{letter}");
    }
    let x = json(library, "arenas", "Jx");
    assert!(x["stats"].get("mutexes").is_none());
    assert!(x["stats.arenas"]["0"]["bins"][0].get("mutex").is_none());
}

#[test]
fn the_text_has_jemallocs_sections_in_their_order() {
    for library in Library::under_test() {
        let text = printed(library, &["arenas"]);
        let mut rest = text.as_str();
        for section in [
            "___ Begin jemalloc statistics ___\nVersion: \"",
            "Build-time option settings\n  config.",
            "Run-time option settings\n  opt.",
            "(background_thread: ",
            "Profiling settings\n  prof.",
            "Arenas: ",
            "Allocated: ",
            "Background threads: ",
            "n_lock_ops",
            "\nctl ",
            "Merged arenas stats:\nassigned threads: 5\n",
            "Destroyed arenas stats:\n",
            "arenas[0]:\n",
            "decaying:  time ",
            "\nsmall: ",
            "\nactive: ",
            "\nextents_dirty ",
            "\nbins: ",
            "\nlarge: ",
            "\nextents: ",
            "arenas[1]:\n",
            "--- End jemalloc statistics ---\n",
        ] {
            let at = rest.find(section);
            let at = at.unwrap_or_else(|| panic!("no {section:?} in its place in {text}"));
            rest = &rest[at + section.len()..];
        }
        assert_eq!(rest, "");
    }
}

#[test]
fn it_goes_where_the_program_says() {
    for library in Library::under_test() {
        for what in ["prefixed", "message"] {
            let text = printed(library, &[what, "J"]);
            assert!(parsed(&text)["jemalloc"]["stats"].is_object(), "{what}");
        }
        let outcome = run(library, "", &["stderr", "J"]);
        assert_eq!(outcome.expect_success(), "");
        assert!(parsed(&outcome.stderr_text())["jemalloc"]["stats"].is_object());
    }
}

#[test]
fn stats_print_prints_at_the_end() {
    for library in Library::under_test() {
        let outcome = run(library, "stats_print:true,stats_print_opts:Jab", &["pass"]);
        assert_eq!(outcome.expect_success(), "");
        let report = parsed(&outcome.stderr_text());
        let merged = &report["jemalloc"]["stats.arenas"]["merged"];
        assert!(merged.get("bins").is_none() && merged["lextents"].is_array());
        let silent = run(library, "stats_print_opts:J", &["pass"]);
        assert_eq!(silent.stderr_text(), "");
    }
}

#[test]
fn stats_interval_prints_every_so_many_bytes() {
    for library in Library::under_test() {
        let reports = |interval: &str| {
            let conf = format!("stats_interval:{interval},stats_interval_opts:Jgmablxeh");
            let outcome = run(library, &conf, &["pass"]);
            outcome.expect_success();
            let text = outcome.stderr_text();
            text.lines().map(parsed).count()
        };
        assert_eq!(reports("-1"), 0);
        assert_eq!(reports("1073741824"), 0);
        // Twelve mebibytes go through caches, which count whole batches, and twelve bypass them.
        let of_a_mebibyte = reports("1048576");
        assert!((20..=32).contains(&of_a_mebibyte), "{of_a_mebibyte}");
        let of_eight = reports("8388608");
        assert!((2..=4).contains(&of_eight), "{of_eight}");
    }
}
