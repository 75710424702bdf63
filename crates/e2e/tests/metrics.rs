//! Metrics that a process tells of itself, by `malloc_stats_print` with the letter `P`. (Programs
//! in `examples/` serve them: `embedding`.)

use std::collections::{BTreeMap, BTreeSet};

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, target};
use mallard_inspect::metrics::families;

/// The text of the program's metrics, and what it printed before.
fn figures(options: &str) -> (BTreeMap<String, f64>, String) {
    let program = Source::new("metrics.c")
        .flags(&["-O1"])
        .link(&Library::release().shared);
    let sandbox = Sandbox::temporary(Allocator::Preload(Library::release()));
    let mut command = sandbox.command(program.compile());
    let outcome = sandbox.run_own(command.env("MALLOC_CONF", options));
    let text = outcome.expect_success();
    let at = text.find("# HELP").expect("metrics");
    let before = text[..at].lines().map(|line| {
        let (name, value) = line.split_once(' ').expect("a name and a value");
        (name.to_owned(), value.parse().expect("a number"))
    });
    (before.collect(), text[at..].to_owned())
}

/// The samples of a text in OpenMetrics, whose form is checked.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let body = text.strip_suffix("# EOF\n").expect("the end");
    let (mut samples, mut family) = (BTreeMap::new(), String::new());
    let mut families = BTreeSet::new();
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.split(' ');
            let (keyword, name) = (words.next().unwrap(), words.next().expect("a name"));
            match keyword {
                "HELP" => {
                    assert!(families.insert(name.to_owned()), "{name} begins twice");
                    family = name.to_owned();
                }
                "TYPE" | "UNIT" => assert_eq!(name, family, "{line}"),
                _ => panic!("{line}"),
            }
            continue;
        }
        assert!(line.starts_with(&family), "{line} belongs to {family}");
        let (name, value) = line.rsplit_once(' ').expect("a value");
        let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(
            samples.insert(name.to_owned(), value).is_none(),
            "{line} is there twice"
        );
    }
    samples
}

#[test]
fn metrics_agree_with_every_other_way_to_read_the_figures() {
    let (figures, text) = figures("narenas:1");
    let samples = samples(&text);
    for name in ["allocated", "active", "resident", "metadata"] {
        assert_eq!(
            samples[&format!("mallard_{name}_bytes")],
            figures[name],
            "{name}: {text}"
        );
    }
    if !target().is_musl() {
        assert_eq!(samples["mallard_allocated_bytes"], figures["mallinfo2"]);
    }
    let classes = samples
        .iter()
        .filter(|(name, _)| name.starts_with("mallard_class_allocated_bytes"));
    let sum: f64 = classes.map(|(_, bytes)| bytes).sum();
    assert_eq!(
        samples["mallard_allocated_bytes"], sum,
        "the classes add up"
    );
    assert_eq!(samples["mallard_threads"], 1.0);
    assert_eq!(samples["mallard_arenas"], 1.0);
    assert!(samples["mallard_class_allocated_bytes{size=\"larger\"}"] >= f64::from(9 << 20));
    assert!(samples["mallard_peak_allocated_bytes"] >= samples["mallard_allocated_bytes"]);
    let version = format!(
        "mallard_build_info{{version=\"{}\"}}",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(samples[&version], 1.0);
}

/// `mallard export` writes the families of the same table, so both have the same names.
#[test]
fn a_process_names_every_metric_that_mallard_export_knows_of_it() {
    let (_, text) = figures("");
    let written: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let known: Vec<&str> = families().map(|family| family.name).collect();
    assert!(known.len() > 30);
    assert_eq!(written, known);
}

#[test]
fn a_report_that_an_option_asks_for_can_be_metrics() {
    let sandbox = Sandbox::temporary(Allocator::Preload(Library::release()));
    let program = Source::new("trivial.c").compile();
    let mut command = sandbox.command(program);
    command.env("MALLOC_CONF", "stats_print:true,stats_print_opts:P");
    let outcome = sandbox.run_own(&mut command);
    outcome.expect_success();
    assert!(samples(&outcome.stderr_text())["mallard_uptime_seconds"] > 0.0);
}
