//! The tree as its callers see it.

extern crate std;

mod answers;
mod checks;
mod options;
mod properties;
mod reference;
mod refresh;
mod rules;

use crate::ctl;
use crate::ctl::node::{Kind, Names, Node};
use crate::ctl::{Leaf, opt, root};
use std::format;
use std::string::String;
use std::vec::Vec;

/// One name of the tree, from the tables.
pub struct Row {
    /// With `<i>` for a number.
    pub path: String,
    pub leaf: Leaf,
    pub doc: &'static str,
}

/// All names, in the order of the tables.
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    collect("", root, &mut rows);
    rows
}

fn collect(before: &str, names: Names, rows: &mut Vec<Row>) {
    names(&mut |nodes| nodes.iter().for_each(|node| add(before, node, rows)));
}

fn add(before: &str, node: &Node, rows: &mut Vec<Row>) {
    let path = format!("{before}{}", node.name);
    match node.kind {
        Kind::Leaf(leaf) => rows.push(Row {
            path,
            leaf,
            doc: node.doc,
        }),
        Kind::Options => {
            rows.extend(options(&path));
            collect(&format!("{path}.{}.", opt::SOURCES), opt::sources, rows);
        }
        Kind::Names(below) => collect(&format!("{path}."), below, rows),
        Kind::Indexed(indexed) => collect(
            &format!("{path}.<{}>.", indexed.letter),
            indexed.below,
            rows,
        ),
    }
}

fn options(branch: &str) -> impl Iterator<Item = Row> {
    (0..)
        .map_while(opt::at_position)
        .zip(0..)
        .map(move |(option, i)| Row {
            path: format!("{branch}.{}", option.name()),
            leaf: opt::leaf(i).expect("what stands at its position"),
            doc: option.meaning,
        })
}

/// The name with its first indices, which exist in every process that has allocated.
pub fn first(row: &Row) -> String {
    let mut numbered = row.path.clone();
    while let Some(at) = numbered.find('<') {
        let end = numbered[at..].find('>').expect("an index in brackets") + at;
        numbered.replace_range(at..=end, "0");
    }
    numbered
}
