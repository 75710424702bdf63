//! Checks the order of the layers: each folder of `src` uses only the ones below it.
//!
//! `src/lib.rs` describes the layers. This test reads every source file as tokens, so that macros
//! count but comments and strings do not. It checks every path that leads to another layer, through
//! `crate::` or enough `super::`s, against the order of the layers, and every path to another file
//! of a folder against the order inside it (`order`). A name that a folder's face brings in or
//! exports again counts as a use of the file that it comes from.
//!
//! The `mod.rs` of a folder is its face and has no place in the order inside it: it defines what
//! the folder is about, declares its children and exports what others may use, so it may name any
//! of them. The children may use what it defines, because their functions are methods of its type
//! or parts of its job. Folder and children therefore form one unit between which no order is held;
//! among the children, and towards everything outside, it is.

mod arch;
mod order;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use mallard_testing::sources::{Import, Use, imports, modules_of, read_below, uses};
use order::*;

#[derive(Debug, PartialEq)]
struct Breach {
    file: String,
    used: Use,
    reason: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Breach { file, used, reason } = self;
        let (line, path) = (used.line, used.path.join("::"));
        write!(f, "src/{file}:{line} uses `{path}`: {reason}")
    }
}

fn height(layer: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&layer))
}

/// Why a file in layer `from` may not use layer `to`; none if it may.
fn objection(file: &str, from: &str, to: &str) -> Option<String> {
    let to = (ALIASES.iter().find(|alias| alias.0 == to)).map_or(to, |alias| alias.1);
    if to == from || to == TESTING {
        return None;
    }
    if from == APART {
        return Some(format!("`{APART}` uses no other layer"));
    }
    if to == APART && OPTION_USERS.contains(&file) {
        return None;
    }
    if to == APART || to == "fork" {
        let is_start =
            file == START || file.strip_suffix("/tests.rs") == START.strip_suffix("/mod.rs");
        return (!is_start).then(|| format!("only {START} uses `{to}`"));
    }
    if APART_FROM.contains(&(from, to)) {
        return Some(format!("`{from}` knows nothing of `{to}`"));
    }
    match (height(from), height(to)) {
        (Some(from), Some(to)) if to < from => None,
        (Some(_), Some(_)) => Some(format!("`{to}` is not below `{from}`")),
        (None, _) => Some(format!(
            "`{from}` has no place in LAYERS (this test's table)"
        )),
        (_, None) => Some(format!("`{to}` has no place in LAYERS (this test's table)")),
    }
}

/// The sources below `src`, by their paths, and the names that the faces of folders bring in.
struct Tree {
    files: BTreeMap<String, String>,
    faces: BTreeMap<Vec<String>, Vec<Import>>,
}

impl Tree {
    fn read() -> Tree {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let files: BTreeMap<String, String> = read_below(&src).into_iter().collect();
        let faces = (files.iter())
            .map(|(file, source)| (modules_of(file), source))
            .filter(|(module, _)| src.join(module.join("/")).is_dir())
            .map(|(module, source)| (module.clone(), imports(source, &module)))
            .collect();
        Tree { files, faces }
    }

    fn has(&self, module: &[String]) -> bool {
        let path = module.join("/");
        self.files.contains_key(&format!("{path}.rs"))
            || self.files.contains_key(&format!("{path}/mod.rs"))
    }

    /// The path without the detours by faces that bring a name in from another file.
    fn resolved(&self, path: &[String]) -> Vec<String> {
        let mut path = path.to_vec();
        let mut at = 1;
        while at < path.len() {
            let detour = if self.has(&path[..=at]) {
                None
            } else {
                (self.faces.get(&path[..at]))
                    .and_then(|imports| imports.iter().find(|import| import.name == path[at]))
                    .filter(|import| import.path != path[..=at])
            };
            match detour {
                Some(import) => {
                    path.splice(..=at, import.path.iter().cloned());
                    at = 1;
                }
                None => at += 1,
            }
        }
        path
    }
}

/// The violations of the order inside the folders that a file is in.
fn folder_breaches(tree: &Tree, file: &str, source: &str) -> Vec<String> {
    let modules: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    if modules.contains(&"tests") {
        return Vec::new();
    }
    (FOLDERS.iter())
        .filter(|(folder, _)| file.starts_with(&format!("{folder}/")))
        .flat_map(|(folder, order)| breaches_inside(tree, folder, order, file, source))
        .collect()
}

fn breaches_inside(
    tree: &Tree,
    folder: &str,
    order: &[&[&'static str]],
    file: &str,
    source: &str,
) -> Vec<String> {
    let outer: Vec<&str> = folder.split('/').collect();
    let rest = &file[folder.len() + 1..];
    let inner = rest
        .trim_end_matches(".rs")
        .split('/')
        .next()
        .unwrap_or(rest);
    if inner == "mod" {
        return Vec::new();
    }
    let height = |name: &str| order.iter().position(|row| row.contains(&name));
    let Some(own) = height(inner) else {
        return vec![format!(
            "src/{file}: `{inner}` has no place in FOLDERS (this test's table)"
        )];
    };
    uses(source, &modules_of(file))
        .iter()
        .filter(|used| !used.is_test)
        .map(|used| (tree.resolved(&used.path), used.line))
        .filter(|(path, _)| path.iter().zip(&outer).all(|(a, b)| a == b))
        .filter_map(|(path, line)| Some((path.get(outer.len())?.clone(), line)))
        .filter(|(home, _)| *home != inner && height(home).is_some_and(|to| to >= own))
        .map(|(home, line)| {
            format!("src/{file}:{line} uses `{home}`, which is not below `{inner}`")
        })
        .collect()
}

/// The violations of the order of layers in one file, given by its path below `src`.
fn breaches(file: &str, source: &str) -> Vec<Breach> {
    let modules = modules_of(file);
    uses(source, &modules)
        .into_iter()
        .filter_map(|used| {
            let reason = objection(file, &modules[0], used.layer())?;
            Some(Breach {
                file: file.into(),
                used,
                reason,
            })
        })
        .collect()
}

#[test]
fn every_layer_uses_only_those_below_it() {
    let tree = Tree::read();
    let mut broken = Vec::new();
    let mut crossings = 0;
    for (file, source) in &tree.files {
        if file == "lib.rs" || file == "testing.rs" {
            continue;
        }
        crossings += uses(source, &modules_of(file)).len();
        broken.extend(breaches(file, source).iter().map(Breach::to_string));
        broken.extend(folder_breaches(&tree, file, source));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(
        crossings > 500,
        "only {crossings} paths were found: is the search broken?"
    );
}

/// The folders below `folder`, itself included, that hold several files or folders besides `mod.rs`
/// and tests; as paths below `src`.
fn folders_with_children(src: &Path, folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut children = 0;
    for entry in fs::read_dir(folder).expect("the sources are here") {
        let path = entry.expect("a folder can be read").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        if stem == Some("tests") {
            continue;
        }
        if path.is_dir() {
            found.extend(folders_with_children(src, &path));
            children += 1;
        } else if stem != Some("mod") {
            children += 1;
        }
    }
    let name = folder.strip_prefix(src).expect("it is below `src`");
    if children > 1 && folder != src {
        found.push(name.to_str().expect("names are ASCII").into());
    }
    found
}

#[test]
fn every_folder_has_an_order_and_every_name_in_the_orders_exists() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let without: Vec<String> = folders_with_children(&src, &src)
        .into_iter()
        .filter(|folder| !FOLDERS.iter().any(|(ordered, _)| ordered == folder))
        .collect();
    assert!(without.is_empty(), "not in FOLDERS: {}", without.join(", "));
    for (folder, order) in FOLDERS {
        for name in order.iter().copied().flatten() {
            let at = src.join(folder).join(name);
            assert!(
                at.is_dir() || at.with_extension("rs").is_file(),
                "FOLDERS names `{folder}/{name}`, which does not exist"
            );
        }
    }
}

#[test]
fn a_layer_that_reaches_up_is_caught_however_it_writes_the_path() {
    let reach_up = [
        ("heap/runs/pool.rs", "use crate::arena::Arena;", 1),
        (
            "heap/runs/pool.rs",
            "use crate::{sys::time, cache::{self, life}};",
            1,
        ),
        (
            "heap/runs/pool.rs",
            "fn f() {\n    crate::api::trim();\n}",
            2,
        ),
        ("heap/mod.rs", "use super::stats;", 1),
        ("heap/mod.rs", "use crate::class::Class;", 1),
        ("heap/runs/pool.rs", "use super::super::super::stats;", 1),
        (
            "heap/runs/pool.rs",
            "mod tests { use super::super::super::super::api; }",
            1,
        ),
        (
            "sys/fault.rs",
            "macro_rules! m { () => { $crate::space::f() }; }",
            1,
        ),
        ("class.rs", "use super::{sys, heap};", 1),
        ("stats/sums.rs", "use crate::fork;", 1),
        ("cache/mod.rs", "use crate::conf::Options;", 1),
        ("api/blocks/free.rs", "use crate::conf::Options;", 1),
        ("ctl/branches/prof.rs", "use crate::conf::Options;", 1),
        ("ctl/opt.rs", "use crate::fork;", 1),
        ("api/mod.rs", "use crate::ctl;", 1),
        ("conf/line.rs", "use crate::sys::errno;", 1),
        ("heap/mod.rs", "use crate::attic::Old;", 1),
        ("heap/mod.rs", "use crate::*;", 1),
        ("attic.rs", "use crate::sys::mem;", 1),
    ];
    for (file, source, line) in reach_up {
        let found = breaches(file, source);
        assert_eq!(found.len(), 1, "{file}: {source}: {found:?}");
        assert_eq!(found[0].used.line, line, "{source}");
    }
}

#[test]
fn a_layer_that_reaches_down_or_within_itself_is_let_be() {
    let fine = [
        (
            "heap/runs/pool.rs",
            "use super::huge_pages; use crate::space::Segment;",
        ),
        (
            "heap/mod.rs",
            "mod tests { use super::Totals; use super::super::sys; }",
        ),
        (
            "cache/life.rs",
            "use super::{ThreadCache, gc}; use crate::{arena, die};",
        ),
        (
            "arena/small/bin.rs",
            "// crate::api\nconst S: &str = \"crate::api\";",
        ),
        ("api/start/mod.rs", "use crate::{conf, fork};"),
        ("ctl/opt.rs", "use crate::{api, conf};"),
        ("fork.rs", "use crate::cache::life;"),
        ("heap/mod.rs", "mod tests { use crate::testing::alone; }"),
        ("conf/reader.rs", "use super::value; use crate::conf::Line;"),
        ("heap/mod.rs", "pub(crate) mod decay; pub(super) fn f() {}"),
    ];
    for (file, source) in fine {
        assert_eq!(breaches(file, source), [], "{file}: {source}");
    }
}

#[test]
fn a_folder_that_reaches_up_within_its_layer_is_caught() {
    let tree = Tree::read();
    for (file, source, count) in [
        // The faces of `heap` and `sys` bring these in.
        ("heap/huge/pace.rs", "use crate::heap::NATURAL_MAX;", 1),
        ("sys/os/errno.rs", "use crate::sys::mappings;", 1),
        (
            "heap/huge/pace.rs",
            "use crate::heap::runs::allocation::NATURAL_MAX;",
            1,
        ),
        ("heap/huge/pace.rs", "use super::super::purge::decay;", 1),
        (
            "heap/purge/hold.rs",
            "use crate::heap::{Run, set::heaps, runs};",
            2,
        ),
        ("heap/attic/old.rs", "", 1),
        ("space/meta.rs", "use crate::space::segment::Segment;", 1),
        ("space/segment/chunk.rs", "use super::growth::lock;", 1),
        ("space/segment/chunk.rs", "use super::Segment;", 0),
        ("heap/purge/hold.rs", "use super::rounds::Hold;", 1),
        (
            "heap/purge/victims.rs",
            "use crate::heap::purge::{hold::Hold, rounds::{self, Plan}};",
            1,
        ),
        (
            "conf/plain.rs",
            "use super::{text::Text, value::DirtyMax};",
            2,
        ),
        (
            "class/hidden/mod.rs",
            "fn f() { super::tailored::exclude(|| {}) }",
            1,
        ),
        (
            "heap/runs/pool.rs",
            "use crate::heap::{huge::pace, purge};",
            0,
        ),
        (
            "heap/huge/pace.rs",
            "mod tests { use crate::heap::runs::allocation; }",
            0,
        ),
        (
            "heap/mod.rs",
            "use crate::heap::runs::allocation::NATURAL_MAX;",
            0,
        ),
        ("sys/os/time.rs", "use crate::sys::lock::Mutex;", 1),
        ("prof/sampler/pace.rs", "use super::end::gone;", 1),
        ("api/blocks/free.rs", "use super::{alloc, resize};", 2),
        ("prof/sampler/pace.rs", "use super::is_on;", 0),
        ("sys/sync/flag.rs", "use crate::sys::{time, lock};", 1),
    ] {
        let found = folder_breaches(&tree, file, source);
        assert_eq!(found.len(), count, "{file}: {source}: {found:?}");
    }
}
