//! `docs/mallctl.md` is generated from the tables. This test fails when the file is stale; run it
//! with `MALLARD_BLESS=1` to regenerate the file.

extern crate std;

use super::{Row, rows};
use crate::ctl::Mode;
use std::string::{String, ToString};
use std::vec::Vec;
use std::{env, format, fs, path::Path};

const INTRODUCTION: &str = "\
# The `mallctl` tree

<!-- Written from the tables in crates/core/src/ctl. To change it, change a table or
     crates/core/src/ctl/tests/reference.rs, then:
     MALLARD_BLESS=1 cargo test -p mallard-core ctl::tests::reference -->

A program inspects and controls the allocator through names: jemalloc's, with jemalloc's types and meanings.

```c
#include <mallard.h>

size_t allocated, size = sizeof allocated;
uint64_t epoch = 1;
mallctl(\"epoch\", NULL, NULL, &epoch, sizeof epoch);             // a new snapshot
mallctl(\"stats.allocated\", &allocated, &size, NULL, 0);         // read from it
```

`mallctl` takes the name, room for the old value and its size, and the new value and its size; either value
may be omitted with null pointers. `mallctlnametomib` translates a name to numbers (a MIB), with which
`mallctlbymib` finds it faster, and in which the numbers of arenas and classes can be replaced. The beginning
of a name has a MIB too. From Rust: `mallard::ctl::{read, write, by_name, by_mib}`. All can be called from
any thread at any time, even before the first allocation. They allocate nothing and preserve `errno`.

| result | when |
| --- | --- |
| 0 | done |
| `ENOENT` | there is no such name (or the name is incomplete), or nothing at that index |
| `EINVAL` | a value has the wrong size (then as much of the old one as fits is copied, and `*oldlenp` is that length), or the new value is invalid |
| `EPERM` | the name cannot be read, or cannot be written |
| `EFAULT`, `EAGAIN` | the operation failed; memory or numbers ran out |

In the tables, `r-` marks names that can be read, `-w` those that can be written, `rw` both (reading returns
the value before the write), and `--` neither: the call itself is the action. `<i>` and `<j>` are numbers.
Instead of an arena's number, 4096 (`MALLCTL_ARENAS_ALL`) stands for all arenas, and 4097
(`MALLCTL_ARENAS_DESTROYED`) for the destroyed ones.
";

/// The first part of the name, which decides its table.
fn group(row: &Row) -> String {
    let mut parts = row.path.split('.');
    let first = parts.next().unwrap_or_default();
    match (first, parts.next(), parts.next()) {
        (_, None, _) => "Without a branch".into(),
        ("stats", Some("arenas"), Some(_)) => "`stats.arenas.<i>`".into(),
        ("arena", ..) => "`arena.<i>`".into(),
        ("opt", Some(branch), Some(_)) => format!("`opt.{branch}`"),
        _ => format!("`{first}`"),
    }
}

/// The text above a group's table, if any.
fn heading(group: &str) -> &'static str {
    match group {
        "`opt`" => {
            "\
The options in force, all read-only; [Options](options.md) explains them. For an option that is `default`,
the value is the one that results, or 0 if it is decided later. `background_thread:auto` reads as true.

| name | type |
| --- | --- |
"
        }
        _ => "| name | type | access | meaning |\n| --- | --- | --- | --- |\n",
    }
}

/// Names of several locks are shown once for all: returns the part before the lock's name, the
/// lock's name, and the part after it.
fn of_a_lock(path: &str) -> Option<(&str, &str, &str)> {
    let at = path.find("mutexes.")? + "mutexes.".len();
    let (lock, after) = path[at..].split_once('.')?;
    Some((&path[..at], lock, after))
}

/// The locks of names with this beginning.
fn locks(rows: &[Row], before: &str) -> String {
    let mut locks: Vec<&str> = rows
        .iter()
        .filter_map(|row| of_a_lock(&row.path))
        .filter(|of| of.0 == before)
        .map(|of| of.1)
        .collect();
    locks.dedup();
    format!("`{}`", locks.join("`, `"))
}

fn line(row: &Row) -> String {
    let Row { path, leaf, doc } = row;
    let c_type = match leaf.c_type() {
        "" => String::new(),
        c_type => format!("`{c_type}`"),
    };
    let mode = match leaf.mode() {
        // The options have a page of their own.
        Mode::ReadOnly if group(row) == "`opt`" => {
            return format!("| `{path}` | {c_type} |\n");
        }
        Mode::ReadOnly => "r-",
        Mode::WriteOnly => "-w",
        Mode::ReadWrite => "rw",
        Mode::Neither => "--",
    };
    format!("| `{path}` | {c_type} | {mode} | {doc} |\n")
}

fn reference() -> String {
    let mut text = String::from(INTRODUCTION);
    let mut last = String::new();
    let mut shown = None;
    let mut rows = rows();
    let mut legends = Vec::new();
    for i in 0..rows.len() {
        let group = group(&rows[i]);
        if group != last {
            text.extend(legends.drain(..));
            text.push_str(&format!("\n## {group}\n\n{}", heading(&group)));
            last = group;
        }
        if let Some((before, lock, after)) = of_a_lock(&rows[i].path) {
            let (before, lock, after) = (before.to_string(), lock.to_string(), after.to_string());
            if shown
                .as_ref()
                .is_some_and(|(b, l)| *b == before && *l != lock)
            {
                continue;
            }
            if shown.as_ref().is_none_or(|(b, _)| *b != before) {
                let locks = locks(&rows, &before);
                legends.push(format!(
                    "\n`<lock>` in `{before}<lock>` is one of {locks}.\n"
                ));
                shown = Some((before.clone(), lock));
            }
            rows[i].path = format!("{before}<lock>.{after}");
        }
        text.push_str(&line(&rows[i]));
    }
    text.extend(legends);
    text
}

#[test]
fn the_reference_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mallctl.md");
    let expected = reference();
    if env::var_os("MALLARD_BLESS").is_some() {
        fs::write(&path, &expected).expect("docs/mallctl.md can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/mallctl.md is not what the tables say; \
         write it anew with: MALLARD_BLESS=1 cargo test -p mallard-core ctl::tests::reference"
    );
}

#[test]
fn every_name_has_its_line_and_none_breaks_the_markdown() {
    for row in rows() {
        assert!(row.doc.ends_with('.'), "{}: {:?}", row.path, row.doc);
        assert!(!row.doc.contains('|'), "{}: {:?}", row.path, row.doc);
    }
}
