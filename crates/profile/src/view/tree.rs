//! The tree of calls that flame graphs show: each node is a function called from its parent.

use std::collections::HashMap;

use super::stack::Stacks;
use crate::model::{Profile, Text};

/// Nodes with less than this share of each total are left out; a picture cannot show them.
const NODE_SHARE_MIN: f64 = 1.0 / 20_000.0;

#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// The first is the root. Parents come before their children.
    pub nodes: Vec<Node>,
    children: HashMap<(u32, Text, bool), u32>,
    columns: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub name: Text,
    pub inlined: bool,
    /// Whether it is code of a standard library or before `main`.
    pub library: bool,
    /// The module, for a colour; empty if unknown.
    pub module: Text,
    pub parent: u32,
    /// One sum for each column: of the node and all that it called.
    pub totals: Vec<i128>,
}

impl Tree {
    /// An empty tree with this many columns of figures.
    pub fn new(columns: usize) -> Tree {
        let root = Node {
            name: "all".into(),
            inlined: false,
            library: true,
            module: "".into(),
            parent: 0,
            totals: vec![0; columns],
        };
        Tree {
            nodes: vec![root],
            children: HashMap::new(),
            columns,
        }
    }

    /// Adds a profile's samples. Each pair is a sample type and the column that counts it.
    pub fn add(&mut self, profile: &Profile, types: &[(usize, usize)]) {
        let mut stacks = Stacks::new(profile);
        for sample in &profile.samples {
            if types
                .iter()
                .all(|&(of_type, _)| sample.values[of_type] == 0)
            {
                continue;
            }
            let mut node = 0;
            self.count(node, &sample.values, types);
            let steps = stacks.steps(&sample.stack).all;
            for step in steps.iter().rev() {
                let key = (node, step.name.clone(), step.inlined);
                node = match self.children.get(&key) {
                    Some(&child) => child,
                    None => {
                        let child = self.nodes.len() as u32;
                        self.nodes.push(Node {
                            name: step.name.clone(),
                            inlined: step.inlined,
                            library: step.is_library(),
                            module: step.mapping.map_or("", |mapping| mapping.name()).into(),
                            parent: node,
                            totals: vec![0; self.columns],
                        });
                        self.children.insert(key, child);
                        child
                    }
                };
                self.count(node, &sample.values, types);
            }
        }
    }

    fn count(&mut self, node: u32, values: &[i64], types: &[(usize, usize)]) {
        let totals = &mut self.nodes[node as usize].totals;
        for &(of_type, column) in types {
            totals[column] += i128::from(values[of_type]);
        }
    }

    /// The tree without nodes that are too small to be seen in any column.
    pub fn pruned(&self) -> Tree {
        let all = &self.nodes[0].totals;
        let mut kept = Tree::new(self.columns);
        kept.nodes[0] = self.nodes[0].clone();
        let mut places: Vec<Option<u32>> = vec![Some(0)];
        for node in &self.nodes[1..] {
            let seen = node.totals.iter().zip(all).any(|(total, all)| {
                total.unsigned_abs() as f64 > all.unsigned_abs() as f64 * NODE_SHARE_MIN
            });
            let parent = places[node.parent as usize].filter(|_| seen);
            places.push(parent.map(|parent| {
                kept.nodes.push(Node {
                    parent,
                    ..node.clone()
                });
                kept.nodes.len() as u32 - 1
            }));
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Frame, Location, LocationIndex, Sample, SampleType};

    #[test]
    fn equal_calls_are_one_node_and_small_ones_are_left_out() {
        let location = |function: &str| Location {
            frames: vec![Frame {
                function: function.into(),
                ..Frame::default()
            }],
            ..Location::default()
        };
        let sample = |stack: &[u32], value| Sample {
            stack: stack.iter().map(|&index| LocationIndex(index)).collect(),
            values: vec![value],
            labels: Vec::new(),
        };
        let profile = Profile {
            types: vec![SampleType::new("inuse_space", "bytes")],
            locations: vec![location("main"), location("a"), location("b")],
            samples: vec![
                sample(&[1, 0], 60_000),
                sample(&[2, 1, 0], 40_000),
                sample(&[2, 0], 1),
            ],
            ..Profile::default()
        };
        let mut tree = Tree::new(2);
        tree.add(&profile, &[(0, 1)]);
        let nodes_of = |tree: &Tree| -> Vec<(String, u32, i128)> {
            let nodes = tree.nodes.iter();
            nodes
                .map(|n| (n.name.to_string(), n.parent, n.totals[1]))
                .collect()
        };
        assert_eq!(
            nodes_of(&tree),
            [
                ("all".into(), 0, 100_001),
                ("main".into(), 0, 100_001),
                ("a".into(), 1, 100_000),
                ("b".into(), 2, 40_000),
                ("b".into(), 1, 1),
            ]
        );
        assert_eq!(tree.pruned().nodes.len(), 4);
    }
}
