//! Checks the order of the modules in the lab's crates: no two use each other, directly or over
//! others.
//!
//! Each file or folder beside a crate's root is a module. A circle of modules cannot be read,
//! tested or changed one after the other. This test finds the paths from module to module as the
//! test of the core's layers does, without those in tests, and looks for a way back.

#[path = "../../mallard/tests/layers/paths.rs"]
mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use paths::{modules_of, uses};

/// The crates that are built with std, by their folders.
const CRATES: [&str; 16] = [
    "allocators",
    "book",
    "e2e",
    "figures",
    "http",
    "live",
    "mallard-cli",
    "measure",
    "needs",
    "observe",
    "probe",
    "profile",
    "report",
    "service",
    "statistics",
    "trace",
];

/// What each module uses, and a place where it does.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// The uses between the modules of a crate, given by its files below `src` and their sources.
fn between_modules(files: &[(String, String)]) -> Uses {
    let files = files.iter().filter(|(file, _)| {
        let is_root = file == "main.rs" || file == "lib.rs";
        !is_root && !modules_of(file).iter().any(|module| module == "tests")
    });
    let mut found = Uses::new();
    for (file, source) in files {
        let modules = modules_of(file);
        let of_module = found.entry(modules[0].clone()).or_default();
        for used in uses(source, &modules) {
            if !used.is_test && used.layer() != modules[0] {
                let place = format!("{file}:{} uses `{}`", used.line, used.path.join("::"));
                of_module.entry(used.layer().to_owned()).or_insert(place);
            }
        }
    }
    let known: BTreeSet<String> = found.keys().cloned().collect();
    for of_module in found.values_mut() {
        of_module.retain(|module, _| known.contains(module));
    }
    found
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

fn sources(src: &Path, folder: &Path, into: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("the sources are here") {
        let path: PathBuf = entry.expect("a folder can be read").path();
        if path.is_dir() {
            sources(src, &path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = path.strip_prefix(src).expect("it lies below");
            let source = fs::read_to_string(&path).expect("a source file can be read");
            into.push((file.to_str().expect("names are ASCII").to_owned(), source));
        }
    }
}

#[test]
fn no_module_of_the_lab_uses_one_that_uses_it() {
    let mut circles = Vec::new();
    for name in CRATES {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        let src = src.join("src");
        let mut files = Vec::new();
        sources(&src, &src, &mut files);
        let found = between_modules(&files);
        let count: usize = found.values().map(BTreeMap::len).sum();
        if name == "mallard-cli" {
            assert!(count > 100, "only {count} uses: is the search broken?");
        }
        circles.extend(circle(&found).map(|places| format!("{name}:\n{}", places.join("\n"))));
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
        circle(&between_modules(&crate_of(&[
            ("main.rs", "use crate::first; use crate::last;"),
            ("first.rs", "use crate::{second::inner::f, Error};"),
            ("second/mod.rs", "mod inner; use inner::f;"),
            ("second/inner.rs", "pub fn f() { super::super::last::g() }"),
            ("last.rs", last),
            ("last/tests.rs", "use crate::first::h;"),
        ])))
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
