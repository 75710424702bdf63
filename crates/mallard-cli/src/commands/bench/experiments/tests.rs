//! The rows that result from the options.

use clap::Parser;

use super::options::Options;
use super::plan::Plan;
use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn options(words: &[&str]) -> Options {
    Line::parse_from(["bench"].iter().chain(words)).options
}

fn plans(name: &str, words: &[&str]) -> Vec<Plan> {
    find(name).unwrap().plans(&options(words), 2).unwrap()
}

fn labels(plan: &Plan) -> Vec<&str> {
    plan.rows.iter().map(|row| row.label.as_str()).collect()
}

#[test]
fn by_default_everything_is_as_published() {
    let pairs = &plans("pairs", &[])[0];
    assert_eq!(labels(pairs), ["1", "4", "16", "32", "64"]);
    assert_eq!(
        pairs.rows[1].arguments,
        ["count=10000000", "size=128", "threads=4", "together=0"]
    );
    let batch = &plans("batch", &[])[0];
    assert_eq!(labels(batch), ["32"]);
    assert_eq!(
        batch.rows[0].arguments.join(" "),
        "count=500000 min=16 max=255 threads=32 together=0 touch=0"
    );
    let arenas = &plans("arenas", &[])[0];
    assert_eq!(labels(arenas), ["default", "1", "4", "8", "16", "32", "64"]);
    assert_eq!(arenas.rows[0].x, None);
    assert_eq!(arenas.rows[6].x, Some(64.0));
    assert!(arenas.rows.iter().all(|row| row.threads == 16));
    assert_eq!(
        labels(&plans("tune", &[])[0]).join(" "),
        "default narenas:1 narenas:4 narenas:8 narenas:16 narenas:32 dirty_decay_ms:0 \
         dirty_decay_ms:1000 dirty_decay_ms:5000 dirty_decay_ms:30000 dirty_decay_ms:-1 \
         background_thread:true background_thread:false muzzy_decay_ms:5000 tcache_max:65536 \
         tcache_max:131072 metadata_thp:auto metadata_thp:always \
         dirty_decay_ms:30000,muzzy_decay_ms:60000 dirty_decay_ms:-1,muzzy_decay_ms:-1 \
         background_thread:true,dirty_decay_ms:2000 dirty_decay_ms:1000,muzzy_decay_ms:3000"
    );
    let map = &plans("map", &[])[0];
    assert_eq!(labels(map), ["preloaded", "linked"]);
    assert_eq!(map.rows[0].arguments, ["count=10000000"]);
}

#[test]
fn each_set_is_a_row_where_the_experiment_varies_it() {
    let words = ["--set", "narenas:2", "--set", "tcache:false,narenas:1"];
    let of = |name: &str| labels(&plans(name, &words)[0]).join(" ");
    assert_eq!(of("tune"), "default narenas:2 tcache:false,narenas:1");
    assert_eq!(of("arenas"), "default 2");
    assert_eq!(of("pairs"), "1 4 16 32 64");
}

#[test]
fn options_replace_the_defaults() {
    let words: Vec<&str> = "-t 4,2,4 --count 7 --size pairs=64 --together"
        .split(' ')
        .collect();
    let pairs = &plans("pairs", &words)[0];
    assert_eq!(labels(pairs), ["2", "4"]);
    assert_eq!(
        pairs.rows[0].arguments,
        ["count=7", "size=64", "threads=2", "together=1"]
    );
    let words: Vec<&str> = "--narenas 3 --decay -1 --background-thread false"
        .split(' ')
        .collect();
    assert_eq!(
        labels(&plans("tune", &words)[0]).join(" "),
        "default narenas:3 dirty_decay_ms:-1 background_thread:false"
    );
}

#[test]
fn each_thread_count_has_its_own_table_if_the_rows_are_settings() {
    let plans = plans("arenas", &["-t", "2,4", "--narenas", "8"]);
    let names: Vec<&str> = plans.iter().map(|plan| plan.name.as_str()).collect();
    assert_eq!(names, ["arenas-2-threads", "arenas-4-threads"]);
    assert_eq!(labels(&plans[1]), ["default", "8"]);
    assert!(plans[1].rows.iter().all(|row| row.threads == 4));
}

#[test]
fn quick_runs_are_smaller_in_every_experiment() {
    let weight = |words: &[&str]| -> Vec<f64> {
        let total = |plan: &Plan| plan.rows.iter().map(|row| row.weight).sum::<f64>();
        ALL.iter()
            .map(|e| total(&plans(e.name, words)[0]))
            .collect()
    };
    for (quick, whole) in weight(&["--quick"]).into_iter().zip(weight(&[])) {
        assert!(quick < whole / 2.0, "{quick} of {whole}");
    }
}

#[test]
fn a_range_of_sizes_for_an_experiment_of_one_size_is_rejected() {
    let options = options(&["--size", "16-32"]);
    let error = find("pairs").unwrap().plans(&options, 2).unwrap_err();
    assert!(
        error.contains("`pairs`") && error.contains("batch=16-32"),
        "{error}"
    );
    assert!(find("batch").unwrap().plans(&options, 2).is_ok());
}

#[test]
fn a_mistyped_experiment_is_answered_with_the_nearest() {
    let error = select(&["pairs", "arena"]).unwrap_err();
    assert!(error.contains("did you mean `arenas`?"), "{error}");
    let error = select(&["everything"]).unwrap_err();
    assert!(
        !error.contains("did you mean") && error.contains("pairs, batch"),
        "{error}"
    );
}

#[test]
fn experiments_keep_their_order_without_duplicates() {
    let names =
        |words: &[&str]| -> Vec<&str> { select(words).unwrap().iter().map(|e| e.name).collect() };
    assert_eq!(names(&["map", "pairs", "map"]), ["pairs", "map"]);
    assert_eq!(names(&[]).len(), ALL.len());
    assert_eq!(names(&["all"]).len(), ALL.len());
}
