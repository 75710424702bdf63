//! The table of crates in `docs/design/architecture.md` has every crate, and for each the crates of
//! this repository that it depends on, as its `Cargo.toml` says. So a new use between two crates is
//! a line of that table first. Dependencies of tests are free.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use toml::{Table, Value};

/// What each crate uses, by the names of their folders.
type Uses = BTreeMap<String, BTreeSet<String>>;

fn manifest(folder: &Path) -> Option<Table> {
    let text = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
    Some(text.parse().unwrap())
}

fn by_manifests(crates: &Path) -> Uses {
    let root = manifest(crates.parent().unwrap()).unwrap();
    let shared = &root["workspace"]["dependencies"];
    let folder_of = |name: &str, dependency: &Value| {
        let path = match dependency.get("workspace") {
            Some(_) => shared.get(name)?.get("path")?,
            None => dependency.get("path")?,
        };
        let (_, folder) = path.as_str()?.rsplit_once('/')?;
        Some(folder.to_owned())
    };
    let mut found = Uses::new();
    for entry in fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path();
        let Some(manifest) = manifest(&folder) else {
            continue;
        };
        let dependencies = manifest.get("dependencies").and_then(Value::as_table);
        let used = dependencies
            .into_iter()
            .flatten()
            .filter_map(|(name, dependency)| folder_of(name, dependency));
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        found.insert(name, used.collect());
    }
    found
}

/// The words in code style of a cell.
fn names(cell: &str) -> BTreeSet<String> {
    let words = cell.split('`').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

fn by_the_table(page: &str) -> Uses {
    let (_, table) = page.split_once("| crate | what it is | uses |").unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        let [_, name, _, uses, _] = cells[..] else {
            panic!("three cells: {row}")
        };
        (names(name).pop_first().unwrap(), names(uses))
    })
    .collect()
}

#[test]
fn the_table_of_crates_is_what_the_manifests_say() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = crates.join("../docs/design/architecture.md");
    let told = by_the_table(&fs::read_to_string(page).unwrap());
    let found = by_manifests(crates);
    assert!(found.len() > 15, "{found:?}");
    for (name, used) in &found {
        assert_eq!(told.get(name), Some(used), "the row of `{name}`");
    }
    let gone: Vec<&String> = told
        .keys()
        .filter(|name| !found.contains_key(*name))
        .collect();
    assert!(gone.is_empty(), "rows of no crate: {gone:?}");
}

/// What is loaded into programs, and so has no dependency but the C library.
const IN_PROGRAMS: [&str; 7] = [
    "checked",
    "core",
    "formats",
    "http",
    "mallard",
    "mallard-c",
    "probe",
];

#[test]
fn what_is_loaded_into_programs_depends_on_the_c_library_alone() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for name in IN_PROGRAMS {
        let manifest = manifest(&crates.join(name)).unwrap();
        let dependencies = manifest.get("dependencies").and_then(Value::as_table);
        let foreign: Vec<&String> = (dependencies.into_iter().flatten())
            .map(|(name, _)| name)
            .filter(|name| !name.starts_with("mallard-") && *name != "libc")
            .collect();
        assert!(foreign.is_empty(), "{name} depends on {foreign:?}");
    }
}
