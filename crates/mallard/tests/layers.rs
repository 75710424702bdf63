//! Checks the order of the layers: each folder of `src` uses only the ones below it.
//!
//! `src/lib.rs` describes the layers. This test reads every source file as tokens, so that macros
//! count but comments and strings do not. It checks every path that leads to another layer, through
//! `crate::` or enough `super::`s, against the order.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The layers, from the bottom up; those in one row do not use each other.
const LAYERS: &[&[&str]] = &[
    &["sys"],
    &["class"],
    &["space"],
    &["heap"],
    &["arena"],
    &["upkeep"],
    &["cache"],
    &["prof"],
    &["stats"],
    &["background"],
    &["fork"],
    &["api"],
    &["ctl"],
    &["stats_print"],
];
/// Uses no layer, so that it can run before any is ready. Only the start uses it, and the files
/// that report options or use their words.
const APART: &str = "conf";
/// The only file that uses `conf` and `fork`.
const START: &str = "api/start.rs";
/// The files that report options, or use their words.
const TELLERS: &[&str] = &[
    "ctl/branches/arena.rs",
    "ctl/branches/config.rs",
    "ctl/opt.rs",
    "ctl/tests/options.rs",
];
/// The order of the folders and files inside layers, from the bottom up. All of a layer may use its
/// own `mod.rs`.
const FOLDERS: &[(&str, &[&[&str]])] = &[
    (
        "sys",
        &[
            &["page", "atomic", "bits", "hint", "label"],
            &["os"],
            &["message"],
            &["fault"],
            &["sync"],
        ],
    ),
    (
        "heap",
        &[&["huge"], &["hooked", "set"], &["purge"], &["runs"]],
    ),
    (
        "arena",
        &[
            &["pages"],
            &["large"],
            &["small"],
            &["choice"],
            &["figures", "inspect"],
        ],
    ),
    (
        "api",
        &[
            &["extras"],
            &["start"],
            &["errands"],
            &["blocks"],
            &["controls", "inspect", "global"],
            &["arenas"],
            &["extended", "profile", "threads"],
        ],
    ),
    (
        "cache",
        &[
            &["stack", "countdown", "current"],
            &["length"],
            &["inside", "counted", "crowd", "manual"],
            &["life"],
            &["gc", "forks"],
        ],
    ),
];
/// The permitted exceptions: a file, and the higher folder that it uses.
const UPWARDS: &[(&str, &str)] = &[
    // In builds that count contention, the atomics' operations do so.
    ("sys/atomic.rs", "sync"),
    // Advising huge pages moves the borders of mappings.
    ("heap/huge/huge_pages.rs", "runs"),
    // A bin is made under the lock of the table of arenas.
    ("arena/small/bins.rs", "choice"),
];
/// Layers that do not use a lower one, though the order allows it.
const APART_FROM: &[(&str, &str)] = &[("heap", "class")];
/// Names at the crate's root that stand for an item in a layer.
const ALIASES: &[(&str, &str)] = &[("die", "sys"), ("c_symbol", "sys"), ("Mallard", "api")];
/// The root module for unit tests, which all of them may use.
const TESTING: &str = "testing";

/// Stands for the file's own layer.
const OWN: &str = "super";

/// A path in a source file that leads to a layer.
#[derive(Debug, PartialEq)]
struct Use {
    /// The layer's name, or [`OWN`].
    layer: String,
    /// The names after the layer's in the path, or in the list that follows it.
    parts: Vec<String>,
    line: usize,
    /// Whether the path is in a module for tests.
    is_test: bool,
}

#[derive(Debug, PartialEq)]
struct Breach {
    file: String,
    used: Use,
    reason: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Breach { file, used, reason } = self;
        write!(
            f,
            "src/{file}:{} uses `{}`: {reason}",
            used.line, used.layer
        )
    }
}

/// The paths to the crate's root modules in a source whose module is `depth` levels below the root.
fn uses(source: &str, depth: usize) -> Vec<Use> {
    let tokens: TokenStream = source.parse().expect("a source file consists of tokens");
    let mut found = Vec::new();
    scan(&tokens.into_iter().collect::<Vec<_>>(), depth, &mut found);
    found
}

fn scan(tokens: &[TokenTree], depth: usize, found: &mut Vec<Use>) {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Ident(word) if *word == "mod" => {
                // `mod name { … }` is one level deeper; `mod name;` is another file.
                if let Some(TokenTree::Group(body)) = tokens.get(at + 2) {
                    let before = found.len();
                    scan(&inside(body.stream()), depth + 1, found);
                    if matches!(&tokens[at + 1], TokenTree::Ident(name) if *name == "tests") {
                        found[before..].iter_mut().for_each(|u| u.is_test = true);
                    }
                    at += 2;
                }
            }
            TokenTree::Ident(word) if *word == "crate" => {
                if let Some(rest) = after_colons(&tokens[at + 1..]) {
                    names(rest, 0, found);
                }
            }
            TokenTree::Ident(word) if *word == "super" && !follows_colons(tokens, at) => {
                names(&tokens[at..], depth, found);
            }
            TokenTree::Group(group) => scan(&inside(group.stream()), depth, found),
            _ => {}
        }
        at += 1;
    }
}

/// Records the names in a path that continues from a module `at` levels below the root.
fn names(path: &[TokenTree], at: usize, found: &mut Vec<Use>) {
    match path.first() {
        Some(TokenTree::Ident(word)) if *word == "super" => {
            if let Some(rest) = after_colons(&path[1..]) {
                names(rest, at.saturating_sub(1), found);
            }
        }
        Some(TokenTree::Ident(word)) if at == 0 && *word != "self" => found.push(Use {
            layer: word.to_string(),
            parts: after_colons(&path[1..]).map_or_else(Vec::new, heads),
            line: word.span().start().line,
            is_test: false,
        }),
        // A path to another folder of the same layer.
        Some(TokenTree::Ident(word)) if at == 1 && *word != "self" => found.push(Use {
            layer: OWN.into(),
            parts: vec![word.to_string()],
            line: word.span().start().line,
            is_test: false,
        }),
        Some(TokenTree::Group(list)) if list.delimiter() == Delimiter::Brace => {
            let list = inside(list.stream());
            list.split(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ','))
                .for_each(|path| names(path, at, found));
        }
        Some(TokenTree::Punct(star)) if at == 0 && star.as_char() == '*' => found.push(Use {
            layer: "*".into(),
            parts: Vec::new(),
            line: star.span().start().line,
            is_test: false,
        }),
        _ => {}
    }
}

/// The first names of a path, or of each path of a list.
fn heads(path: &[TokenTree]) -> Vec<String> {
    match path.first() {
        Some(TokenTree::Ident(word)) => vec![word.to_string()],
        Some(TokenTree::Group(list)) => inside(list.stream())
            .split(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ','))
            .flat_map(heads)
            .collect(),
        _ => Vec::new(),
    }
}

fn inside(stream: TokenStream) -> Vec<TokenTree> {
    stream.into_iter().collect()
}

/// The tokens after a leading `::`.
fn after_colons(tokens: &[TokenTree]) -> Option<&[TokenTree]> {
    match tokens {
        [TokenTree::Punct(a), TokenTree::Punct(b), rest @ ..]
            if a.as_char() == ':' && b.as_char() == ':' =>
        {
            Some(rest)
        }
        _ => None,
    }
}

/// Whether the token continues a path.
fn follows_colons(tokens: &[TokenTree], at: usize) -> bool {
    at >= 2 && after_colons(&tokens[at - 2..at]).is_some()
}

fn height(layer: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&layer))
}

/// Why a file in layer `from` may not use layer `to`; none if it may.
fn objection(file: &str, from: &str, to: &str) -> Option<String> {
    let to = (ALIASES.iter().find(|alias| alias.0 == to)).map_or(to, |alias| alias.1);
    if to == from || to == OWN || to == TESTING {
        return None;
    }
    if from == APART {
        return Some(format!("`{APART}` uses no other layer"));
    }
    if to == APART && TELLERS.contains(&file) {
        return None;
    }
    if to == APART || to == "fork" {
        return (file != START).then(|| format!("only {START} uses `{to}`"));
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

/// The folder or file of a layer that `part` names: itself, or the folder whose module of that name
/// the layer's `mod.rs` exports again.
fn home_of(layer: &str, folders: &[&[&'static str]], part: &str) -> Option<&'static str> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src")
        .join(layer);
    let all = || folders.iter().copied().flatten().copied();
    let holds = |folder: &&str| {
        let at = src.join(folder).join(part);
        at.is_dir() || at.with_extension("rs").is_file()
    };
    all()
        .find(|folder| *folder == part)
        .or_else(|| all().find(holds))
}

/// The violations of the order inside a layer, in a file of one of its folders.
fn folder_breaches(file: &str, source: &str) -> Vec<String> {
    let modules: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    let Some((layer, folders)) = FOLDERS.iter().find(|(layer, _)| modules[0] == *layer) else {
        return Vec::new();
    };
    let height = |folder: &str| folders.iter().position(|row| row.contains(&folder));
    let home = |part: &str| home_of(layer, folders, part);
    let folder = modules[1];
    if modules.contains(&"tests") || folder == "mod" {
        return Vec::new();
    }
    let Some(own) = height(folder) else {
        return vec![format!(
            "src/{file}: `{folder}` has no place in FOLDERS (this test's table)"
        )];
    };
    let is_known = |to: &str| UPWARDS.contains(&(file, to));
    uses(source, modules.len())
        .iter()
        .filter(|used| (used.layer == *layer || used.layer == OWN) && !used.is_test)
        .flat_map(|used| used.parts.iter().map(|part| (part, used.line)))
        .filter_map(|(part, line)| Some((home(part)?, line)))
        .filter(|(home, _)| *home != folder && height(home).is_some_and(|to| to >= own))
        .filter(|(home, _)| !is_known(home))
        .map(|(home, line)| {
            format!("src/{file}:{line} uses `{home}`, which is not below `{folder}`")
        })
        .collect()
}

/// The violations of the order in one file, given by its path below `src`.
fn breaches(file: &str, source: &str) -> Vec<Breach> {
    let mut modules: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    if modules.last() == Some(&"mod") {
        modules.pop();
    }
    uses(source, modules.len())
        .into_iter()
        .filter_map(|used| {
            let reason = objection(file, modules[0], &used.layer)?;
            Some(Breach {
                file: file.into(),
                used,
                reason,
            })
        })
        .collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("the sources are here") {
        let path = entry.expect("a folder can be read").path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn every_layer_uses_only_those_below_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut broken = Vec::new();
    let mut crossings = 0;
    for path in sources(&src) {
        let file = path.strip_prefix(&src).unwrap().to_str().unwrap();
        if file == "lib.rs" || file == "testing.rs" {
            continue;
        }
        let source = fs::read_to_string(&path).expect("a source file can be read");
        crossings += uses(&source, 1).len();
        broken.extend(breaches(file, &source).iter().map(Breach::to_string));
        broken.extend(folder_breaches(file, &source));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(
        crossings > 50,
        "only {crossings} paths were found: is the search broken?"
    );
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
        ("stats/now.rs", "use crate::fork;", 1),
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
        ("api/start.rs", "use crate::{conf, fork};"),
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
    for (file, source, count) in [
        (
            "heap/huge/pace.rs",
            "use crate::heap::runs::state::State;",
            1,
        ),
        ("heap/huge/pace.rs", "use super::super::purge::decay;", 1),
        (
            "heap/set/nodes.rs",
            "use crate::heap::{Run, purge::decay, runs};",
            2,
        ),
        ("heap/attic/old.rs", "", 1),
        (
            "heap/huge/huge_pages.rs",
            "use crate::heap::runs::borders;",
            0,
        ),
        (
            "heap/runs/pool.rs",
            "use crate::heap::{huge::pace, purge};",
            0,
        ),
        (
            "heap/huge/pace.rs",
            "mod tests { use crate::heap::runs::state; }",
            0,
        ),
        ("heap/mod.rs", "use crate::heap::runs::state::State;", 0),
        ("sys/os/time.rs", "use crate::sys::lock::Mutex;", 1),
        ("sys/sync/flag.rs", "use crate::sys::{time, lock};", 0),
    ] {
        let found = folder_breaches(file, source);
        assert_eq!(found.len(), count, "{file}: {source}: {found:?}");
    }
}
