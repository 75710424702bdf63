//! The advice of `mallard diagnose`, followed: programs with one planted trouble each, whose first
//! suggestion must improve the figure that was the trouble.
//!
//! Figures are page faults, resident memory and CPU time of a fixed amount of work, and a change
//! counts if it is one by factors.

use std::fs;

use crate::place::*;
use mallard_report::diagnosis::{Change, Diagnosis, Figure, Suggestion};
use mallard_testing::skipped;

const PLANTED: &str = include_str!("../troubles/planted.c");

/// Diagnoses the program with a planted trouble, and tries what is suggested.
fn tried(place: &Place, what: &str, variables: &[(&str, &str)]) -> Diagnosis {
    let flags = ["-O1", "-fno-builtin", "-pthread"];
    let program = place.compile("planted", PLANTED, &flags);
    let mut command = place.mallard(&["diagnose", "--quick", "--json", "--try", "-r", "1", "--"]);
    command.arg(program).arg(what);
    command
        .env_remove("GLIBC_TUNABLES")
        .envs(variables.iter().copied());
    let (_, stdout, stderr) = outcome(&mut command);
    Diagnosis::from_json(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"))
}

/// The first suggestion, which is against this trouble.
#[track_caller]
fn first(d: &Diagnosis, trouble: &str) -> Suggestion {
    let first = d.next.first().and_then(|next| next.suggestion.clone());
    let first = first.unwrap_or_else(|| panic!("nothing is suggested: {}", d.json()));
    let against = first.against.as_ref().map(|key| key.as_str());
    assert_eq!(against, Some(trouble), "{}", d.json());
    first
}

/// The first suggestion is against this trouble, and leaves at most this share of the figure.
#[track_caller]
fn assert_helps(d: &Diagnosis, trouble: &str, figure: Figure, share: f64) {
    first(d, trouble);
    let trials = d.tried.iter().flat_map(|tried| &tried.trials);
    let mut of_first = trials.filter(|trial| trial.command == d.next[0].command);
    let trial = of_first.next().unwrap_or_else(|| panic!("{}", d.json()));
    let brought = trial.brought.iter().find(|one| one.figure == figure);
    let ratio = brought.unwrap_or_else(|| panic!("{trial:?}")).ratio;
    assert!(ratio <= share, "{trial:?} {}", d.json());
    let page = d.tried.as_ref().map(|tried| &tried.sentence);
    assert!(page.is_some_and(|sentence| !sentence.is_empty()));
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn threads_that_share_an_arena() {
    let d = tried(&Place::new(), "contend", &[("MALLOC_ARENA_MAX", "1")]);
    assert_helps(&d, "locks", Figure::CpuTime, 0.7);
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn blocks_that_another_thread_frees() {
    let d = tried(&Place::new(), "hand-off", &[]);
    let first = d.next[0].suggestion.clone().unwrap();
    assert_helps(&d, first.against.unwrap().as_str(), Figure::PageFaults, 0.2);
    // Each block goes back to its own arena: more of them are no answer.
    let settings = d
        .next
        .iter()
        .filter_map(|next| match &next.suggestion.as_ref()?.change {
            Change::Options { settings, .. } => Some(settings.clone()),
            _ => None,
        });
    for setting in settings.flatten().filter(|it| it.name == "arena_max") {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        assert!(setting.value.parse::<usize>().unwrap() <= cpus.max(2));
    }
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_heap_whose_top_goes_and_comes() {
    let d = tried(&Place::new(), "trimmed", &[]);
    let first = d.next[0].suggestion.clone().unwrap();
    let key = first.against.unwrap();
    assert_helps(&d, key.as_str(), Figure::PageFaults, 0.1);
    assert_eq!(Figure::of(&key), Figure::PageFaults, "{key:?}");
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn pictures_that_are_mapped_one_by_one() {
    let place = Place::new();
    let d = tried(&place, "pictures", &[]);
    let first = d.next[0].suggestion.clone().unwrap();
    let key = first.against.unwrap();
    assert_helps(&d, key.as_str(), Figure::PageFaults, 0.1);
    let page = place.text("mallard-results/diagnose-planted/diagnose.html");
    assert!(page.contains("What the suggestions brought"));
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_heap_that_grows() {
    let huge_pages = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if !huge_pages.is_ok_and(|text| text.contains("[madvise]")) {
        return skipped("the kernel gives no huge pages to those who ask, or to all");
    }
    let d = tried(&Place::new(), "grown", &[]);
    assert_helps(&d, "growth", Figure::PageFaults, 0.5);
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn memory_that_an_idle_thread_holds_back() {
    let d = tried(&Place::new(), "held-back", &[]);
    assert_helps(&d, "held_back", Figure::LateRss, 0.5);
    let all = d.json();
    assert!(!all.contains("arena_max"), "there is one thread: {all}");
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn memory_that_blocks_pin() {
    let d = tried(&Place::new(), "pinned", &[]);
    assert_helps(&d, "pinned", Figure::LateRss, 0.85);
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn large_blocks_that_are_freed_between_others() {
    let d = tried(&Place::new(), "spaced", &[]);
    assert_helps(&d, "held_back", Figure::LateRss, 0.4);
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn memory_that_each_arena_has_for_itself() {
    let d = tried(&Place::new(), "arenas", &[]);
    assert_helps(&d, "held_back", Figure::LateRss, 0.5);
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn memory_in_thread_caches() {
    let place = Place::new();
    let show = ["run", "--", "sh", "-c", "echo $LD_PRELOAD"];
    let (_, library, _) = outcome(&mut place.mallard(&show));
    let variables = [
        ("LD_PRELOAD", library.trim()),
        ("MALLARD_CONF", "tcache_max:1m"),
    ];
    let d = tried(&place, "caches", &variables);
    assert_helps(&d, "held_back", Figure::LateRss, 0.5);
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_leak_is_followed_to_the_code_that_keeps_the_blocks() {
    let place = Place::new();
    let d = tried(&place, "leak", &[]);
    assert_eq!(first(&d, "leak").change, Change::FindLeaks);
    let command = d.next[0].command.clone();
    let words = typed(&command);
    assert_eq!(words[..3], ["mallard", "leak", "--"], "{command}");
    let (stdout, _) = place.mallard(&words[1..]).exits(FAILED);
    assert!(stdout.contains("forgets"), "{stdout}");
    let nothing = &d.tried.as_ref().unwrap().sentence;
    assert!(nothing.starts_with("Nothing to try"), "{nothing}");
}

#[test]
fn what_cannot_be_tried_is_refused() {
    let place = Place::new();
    let pid = std::process::id().to_string();
    let (_, stderr) = place
        .mallard(&["diagnose", "--try", "--pid", &pid])
        .exits(USAGE);
    assert!(stderr.contains("runs already (--pid)"), "{stderr}");
    let (_, stderr) = place
        .mallard(&["diagnose", "--try", "--for", "1s", "--", "true"])
        .exits(USAGE);
    assert!(stderr.contains("ends by itself"), "{stderr}");
    place
        .mallard(&["diagnose", "-r", "3", "--", "true"])
        .exits(USAGE);
}
