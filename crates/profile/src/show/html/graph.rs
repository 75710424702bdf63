//! The data that the page's script draws, as JSON.
//!
//! ```text
//! { "views": [{"name", "unit": "bytes"|"bytes/s"|"count", "column", "scale", "other": column|null,
//!              "mean": column|null}],
//!   "names": [text…], "short": [text…], "modules": [text…],
//!   "name": [index…], "module": [index…], "parent": [index…],
//!   "inlined": [index of node…], "library": [index of node…],
//!   "columns": [[sum for each node…]…] }
//! ```
//!
//! `column` gives the widths. In a comparison `other` is the other profile's column, which gives
//! the colours. `mean` is a sum that is shown divided by the width's.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::model::{Profile, Text};
use crate::show::ProfilePage;
use crate::view::name::short;
use crate::view::tree::{Node, Tree};
use crate::view::{SampleTypes, View};

/// What the tree counts, and how the views use it.
#[derive(Default)]
struct Plan {
    /// The sample types of the later and of the earlier profile, with their columns.
    of_subject: Vec<(usize, usize)>,
    of_before: Vec<(usize, usize)>,
    columns: usize,
    views: Vec<Value>,
}

/// The JSON, which is safe inside a script element.
pub fn data(page: &ProfilePage<'_>) -> String {
    let plan = plan(page);
    let mut tree = Tree::new(plan.columns);
    tree.add(page.subject.profile, &plan.of_subject);
    if let Some(before) = page.before {
        tree.add(before.profile, &plan.of_before);
    }
    let tree = tree.pruned();
    let (mut names, mut modules) = (Indexed::default(), Indexed::default());
    let name: Vec<usize> = tree.nodes.iter().map(|node| names.of(&node.name)).collect();
    let module: Vec<usize> = tree
        .nodes
        .iter()
        .map(|node| modules.of(&node.module))
        .collect();
    let those = |fits: fn(&Node) -> bool| -> Vec<usize> {
        let nodes = 0..tree.nodes.len();
        nodes.filter(|&index| fits(&tree.nodes[index])).collect()
    };
    let columns: Vec<Vec<f64>> = (0..plan.columns)
        .map(|column| {
            tree.nodes
                .iter()
                .map(|node| node.totals[column] as f64)
                .collect()
        })
        .collect();
    let data = json!({
        "views": plan.views,
        "names": names.list(),
        "short": names.list().into_iter().map(short).collect::<Vec<_>>(),
        "modules": modules.list(),
        "name": name,
        "module": module,
        "parent": tree.nodes.iter().map(|node| node.parent).collect::<Vec<_>>(),
        "inlined": those(|node| node.inlined),
        "library": those(|node| node.library),
        "columns": columns,
    });
    // No `</script>` and no `<!--` may end the element.
    data.to_string().replace('<', "\\u003c")
}

fn plan(page: &ProfilePage<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut views = View::of(page.subject.profile);
    // The view that was asked for is shown first.
    views.sort_by_key(|(view, _)| (*view != page.view, *view));
    for (view, figures) in views {
        match page.before {
            Some(before) => {
                if let Ok(earlier) = view.figures(before.profile) {
                    plan.compare(view, figures, earlier);
                }
            }
            None => plan.show(view, figures, page.subject.profile),
        }
    }
    plan
}

impl Plan {
    fn subject_column(&mut self, of_type: usize) -> usize {
        self.of_subject.push((of_type, self.columns));
        self.columns += 1;
        self.columns - 1
    }

    fn before_column(&mut self, of_type: usize) -> usize {
        self.of_before.push((of_type, self.columns));
        self.columns += 1;
        self.columns - 1
    }

    fn add(&mut self, name: &str, unit: &str, column: usize, scale: f64) {
        self.views.push(json!({
            "name": name, "unit": unit, "column": column, "scale": scale,
            "other": null, "mean": null,
        }));
    }

    fn show(&mut self, view: View, figures: SampleTypes, profile: &Profile) {
        match (view, figures.blocks) {
            // The sites that free most blocks are wide; how long these lived is written beside.
            (View::Lifetime, Some(blocks)) => {
                let column = self.subject_column(blocks);
                let mean = self.subject_column(figures.main);
                self.add("lifetime", "count", column, 1.0);
                self.views.last_mut().expect("just added")["mean"] = json!(mean);
            }
            _ => {
                let column = self.subject_column(figures.main);
                self.add(view.name(), "bytes", column, 1.0);
                if view == View::Allocs && profile.duration_nanos > 0 {
                    let scale = 1e9 / profile.duration_nanos as f64;
                    self.add("rate", "bytes/s", column, scale);
                }
            }
        }
    }

    fn compare(&mut self, view: View, after: SampleTypes, before: SampleTypes) {
        if view == View::Lifetime {
            return;
        }
        let after = self.subject_column(after.main);
        let before = self.before_column(before.main);
        for (when, column, other) in [("after", after, before), ("before", before, after)] {
            self.add(&format!("{} {when}", view.name()), "bytes", column, 1.0);
            let view = self.views.last_mut().expect("just added");
            view["other"] = json!(other);
            view["later"] = json!(when == "after");
        }
    }
}

/// Texts by their first use.
#[derive(Default)]
struct Indexed {
    known: HashMap<Text, usize>,
    texts: Vec<Text>,
}

impl Indexed {
    fn of(&mut self, text: &Text) -> usize {
        *self.known.entry(text.clone()).or_insert_with(|| {
            self.texts.push(text.clone());
            self.texts.len() - 1
        })
    }
    fn list(&self) -> Vec<&str> {
        self.texts.iter().map(|text| &**text).collect()
    }
}
