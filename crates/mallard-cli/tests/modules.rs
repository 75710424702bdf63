//! Checks the order of the modules in the lab's crates: no two use each other, directly or over
//! others.
//!
//! Each file or folder beside a crate's root is a module, and so is each file or folder in a
//! folder. A circle of modules cannot be read, tested or changed one after the other. This test
//! finds the paths from module to module as the test of the core's layers does, without those in
//! tests, and looks for a way back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mallard_testing::sources::{modules_of, read_below, uses};

/// The crates that are built with std, by their folders.
const CRATES: [&str; 20] = [
    "allocators",
    "book",
    "browser",
    "cargo",
    "checked",
    "e2e",
    "formats",
    "http",
    "inspect",
    "judge",
    "mallard-cli",
    "probe",
    "procfs",
    "profile",
    "report",
    "runner",
    "service",
    "testing",
    "trace",
    "watch",
];

/// What each module uses, and a place where it does.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// The uses between the modules of a room, given by the crate's files below `src` and their
/// sources. The room is the path of a module, or empty for the crate's root.
fn between_modules(files: &[(String, String)], room: &[String]) -> Uses {
    let mut found = Uses::new();
    for (file, source) in files {
        let modules = modules_of(file);
        let is_root = file == "main.rs" || file == "lib.rs";
        if is_root || modules.iter().any(|module| module == "tests") {
            continue;
        }
        let Some(module) = child(&modules, room) else {
            continue;
        };
        let of_module = found.entry(module.to_owned()).or_default();
        for used in uses(source, &modules) {
            match child(&used.path, room) {
                Some(other) if !used.is_test && other != module => {
                    let place = format!("{file}:{} uses `{}`", used.line, used.path.join("::"));
                    of_module.entry(other.to_owned()).or_insert(place);
                }
                _ => {}
            }
        }
    }
    let known: BTreeSet<String> = found.keys().cloned().collect();
    for of_module in found.values_mut() {
        of_module.retain(|module, _| known.contains(module));
    }
    found
}

/// The module of a room in which a path lies, if it lies in the room.
fn child<'a>(path: &'a [String], room: &[String]) -> Option<&'a str> {
    path.strip_prefix(room)?.first().map(String::as_str)
}

/// The rooms of a crate: its root, and each module that is a folder.
fn rooms(files: &[(String, String)]) -> BTreeSet<Vec<String>> {
    let folder = |(file, _): &(String, String)| {
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let names = folder.split('/').filter(|name| !name.is_empty());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    files.iter().map(folder).collect()
}

/// The places of a way from a module back to itself.
fn circle(found: &Uses) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    let mut modules = found.keys();
    modules.find_map(|module| way_back(module, found, &mut vec![module], &mut done))
}

/// The places of a circle that the way `from` the first module to the last leads to. `done` are the
/// modules from which no way leads into one.
fn way_back<'a>(
    module: &'a str,
    found: &'a Uses,
    from: &mut Vec<&'a str>,
    done: &mut BTreeSet<&'a str>,
) -> Option<Vec<String>> {
    if done.contains(module) {
        return None;
    }
    for next in found[module].keys() {
        if let Some(begin) = from.iter().position(|before| before == next) {
            let circle = [&from[begin..], &[next]].concat();
            let place = |step: &[&str]| found[step[0]][step[1]].clone();
            return Some(circle.windows(2).map(place).collect());
        }
        from.push(next);
        let way = way_back(next, found, from, done);
        from.pop();
        if way.is_some() {
            return way;
        }
    }
    done.insert(module);
    None
}

#[test]
fn no_module_of_the_lab_uses_one_that_uses_it() {
    let mut circles = Vec::new();
    for name in CRATES {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        let src = src.join("src");
        let files = read_below(&src);
        let mut count = 0;
        for room in rooms(&files) {
            let found = between_modules(&files, &room);
            count += found.values().map(BTreeMap::len).sum::<usize>();
            let places = circle(&found).map(|places| places.join("\n"));
            circles.extend(places.map(|places| format!("{name} {}:\n{places}", room.join("::"))));
        }
        if name == "mallard-cli" {
            assert!(count > 100, "only {count} uses: is the search broken?");
        }
    }
    assert!(circles.is_empty(), "circles\n{}", circles.join("\n"));
}

#[test]
fn a_circle_is_found_over_folders_and_only_outside_tests() {
    let crate_of = |sources: &[(&str, &str)]| -> Vec<(String, String)> {
        let owned = |(file, source): &(&str, &str)| ((*file).to_owned(), (*source).to_owned());
        sources.iter().map(owned).collect()
    };
    let found = |last: &str| {
        let files = crate_of(&[
            ("main.rs", "use crate::first; use crate::last;"),
            ("first.rs", "use crate::{second::inner::f, Error};"),
            ("second/mod.rs", "mod inner; use inner::f;"),
            ("second/inner.rs", "pub fn f() { super::super::last::g() }"),
            ("last.rs", last),
            ("last/tests.rs", "use crate::first::h;"),
        ]);
        circle(&between_modules(&files, &[]))
    };
    assert_eq!(found("mod tests { use crate::first::h; }"), None);
    assert_eq!(
        found("\nuse super::first::h;"),
        Some(vec![
            "first.rs:1 uses `second::inner::f`".to_owned(),
            "second/inner.rs:1 uses `last::g`".to_owned(),
            "last.rs:2 uses `first::h`".to_owned(),
        ])
    );
}

#[test]
fn a_circle_is_found_in_a_room() {
    let files = [
        ("main.rs", "mod room;"),
        ("room/mod.rs", "mod first; mod last; use first::f;"),
        ("room/first.rs", "use super::last::{self, g}; use super::h;"),
        ("room/last.rs", "use crate::room::first::f;"),
    ];
    let files = files.map(|(file, source)| (file.to_owned(), source.to_owned()));
    assert_eq!(
        rooms(&files),
        BTreeSet::from([Vec::new(), vec!["room".to_owned()]])
    );
    assert_eq!(circle(&between_modules(&files, &[])), None);
    let room = ["room".to_owned()];
    let places = circle(&between_modules(&files, &room)).expect("first and last use each other");
    assert_eq!(places.len(), 2, "{places:?}");
}
