//! `mallard bench misuse`: what it finds, and that the page of misuse says what glibc catches and
//! Mallard does not.

use mallard_report::misuse::{Heap, Misuse, Outcome};
use mallard_report::units;

use crate::place::*;

const ABORT: i32 = 6;

/// Runs programs on glibc and Mallard.
fn found(place: &Place, words: &[&str]) -> Misuse {
    let all = ["bench", "misuse", "-a", "glibc,mallard", "-o", "out"];
    place.mallard(&[&all[..], words].concat()).exits(SUCCESS);
    Misuse::from_json(&place.text("out/misuse.json")).unwrap()
}

#[test]
fn programs_end_as_their_allocator_ends_them_and_every_form_has_them() {
    let place = Place::new();
    let words = [
        "double_free",
        "free_static",
        "too_large",
        "reuse",
        "wrong-delete",
        "--seeds",
        "1",
    ];
    let m = found(&place, &words);
    assert_eq!(
        m.misuses.len(),
        4 * 3 + 5 + 1 + 2 * 3,
        "the kind has further programs"
    );
    let on = |name: &str, size, allocator: &str| {
        let program = m.misuses.iter().find(|p| p.name == name && p.size == size);
        let program = program.unwrap_or_else(|| panic!("{name} of {size} ran"));
        program.on(allocator).unwrap().clone()
    };
    for (name, allocator, outcome) in [
        ("double_free", "glibc", Outcome::Stopped(ABORT)),
        ("free_static", "glibc", Outcome::Stopped(ABORT)),
        ("free_static", "mallard", Outcome::Stopped(ABORT)),
        ("too_large", "glibc", Outcome::Prevented),
        ("too_large", "mallard", Outcome::Prevented),
        ("reuse", "glibc", Outcome::WentOn),
        ("char_delete_array", "glibc", Outcome::WentOn),
    ] {
        let ran = on(name, 4096, allocator);
        assert_eq!(ran.plain, outcome, "{name} on {allocator}: {ran:?}");
        assert_eq!(ran.aged, [outcome], "{name} on {allocator}: {ran:?}");
    }
    assert!(
        on("free_static", 8, "mallard")
            .said
            .starts_with("mallard: ")
    );

    let (text, _) = place
        .mallard(&["report", "out", "--export-markdown", "m"])
        .exits(SUCCESS);
    assert!(
        text.contains("double free") && text.contains("all"),
        "{text}"
    );
    for file in ["m", "out/misuse.html", "out/misuse.csv"] {
        assert!(place.text(file).contains("free_static"), "{file}");
    }
}

#[test]
fn what_does_not_fit_is_refused_before_anything_runs() {
    let place = Place::new();
    for (words, said) in [
        (
            &["bench", "misuse", "double_fre"][..],
            "did you mean `double_free`?",
        ),
        (
            &["bench", "misuse", "-r", "3"],
            "--runs is for rows that are timed",
        ),
        (
            &["bench", "misuse", "--count", "3"],
            "--count applies only to the basic set",
        ),
        (
            &["bench", "pairs", "--seeds", "3"],
            "--seeds applies only to misuse",
        ),
    ] {
        let (_, stderr) = place.mallard(words).exits(USAGE);
        assert!(stderr.contains(said), "{words:?}: {stderr}");
    }
    let (stdout, _) = place
        .mallard(&["bench", "list", "misuse", "overflow"])
        .exits(SUCCESS);
    assert!(
        stdout.contains("copy_over_32") && !stdout.contains("under_1"),
        "{stdout}"
    );
    let words = [
        "bench",
        "misuse",
        "reuse",
        "-a",
        "glibc",
        "--seeds",
        "2",
        "--dry-run",
    ];
    let (stdout, _) = place.mallard(&words).exits(SUCCESS);
    assert!(stdout.contains("9 processes"), "{stdout}");
    assert!(!place.path().join("mallard-results").exists());
}

/// The rows of the page about what glibc catches and Mallard does not: names with their sizes, and
/// the heaps.
fn excused() -> Vec<(String, String)> {
    let page = include_str!("../../../../docs/misuse.md");
    let (_, section) = page
        .split_once("\n## What glibc catches and Mallard does not\n")
        .unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut all = Vec::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let fields: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [names, sizes, heap, why] = fields[..] else {
            panic!("four columns: {line}")
        };
        assert!(!why.is_empty(), "{line}");
        for name in names.split(", ") {
            for size in sizes.split(", ") {
                all.push((
                    format!("{} {size}", name.trim_matches('`')),
                    heap.to_owned(),
                ));
            }
        }
    }
    all
}

/// The glibc of which the page has the list.
const LISTED_GLIBC: &str = "2.36";

/// Everything that glibc catches on this kind of heap is caught, or the page says why not.
fn all_or_excused(m: &Misuse, heap: Heap, heap_name: &str) {
    let glibc = &m
        .allocators
        .iter()
        .find(|a| a.name == "glibc")
        .unwrap()
        .version;
    if glibc != LISTED_GLIBC {
        let why = format!("docs/misuse.md is about glibc {LISTED_GLIBC}, and this one is {glibc}");
        return mallard_testing::skipped(why);
    }
    let excused = excused();
    let is_excused = |shown: &String| {
        let mut rows = excused.iter();
        rows.any(|(name, heap)| name == shown && (heap == "both" || heap == heap_name))
    };
    let missed: Vec<String> = m
        .only_glibc(heap)
        .iter()
        .map(|program| program.shown())
        .collect();
    let silent: Vec<&String> = missed.iter().filter(|shown| !is_excused(shown)).collect();
    assert!(
        silent.is_empty(),
        "docs/misuse.md does not say why: {silent:#?}"
    );
    // On an aged heap, luck may catch what the page excuses.
    let stale = |row: &&(String, String)| {
        heap == Heap::Fresh && row.1 != "aged" && !missed.contains(&row.0)
    };
    let stale: Vec<_> = excused.iter().filter(stale).collect();
    assert!(
        stale.is_empty(),
        "docs/misuse.md has what is caught: {stale:#?}"
    );
}

#[test]
fn the_page_says_why_what_glibc_catches_on_a_fresh_heap_goes_on() {
    let m = found(&Place::new(), &["--seeds", "0"]);
    let counted = m.misuses.iter().filter(|program| program.counted).count();
    assert_eq!(counted, 116);
    assert!(
        m.misuses
            .iter()
            .all(|program| program.shown().ends_with(&units::size(program.size)))
    );
    all_or_excused(&m, Heap::Fresh, "fresh");
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn the_page_says_why_what_glibc_catches_on_an_aged_heap_goes_on() {
    all_or_excused(&found(&Place::new(), &[]), Heap::Aged, "aged");
}
