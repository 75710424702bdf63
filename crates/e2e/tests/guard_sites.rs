//! Blocks of chosen call sites are guarded, all of them and no others; and every misuse that ends a
//! process is in the file of reports.

use std::path::PathBuf;

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox};
use serde_json::Value;

fn sandbox() -> Sandbox<'static> {
    Sandbox::temporary(Allocator::Preload(Library::release()))
}

fn program() -> PathBuf {
    Source::new("guard_sites.cpp")
        .flags(&[
            "-O1",
            "-fno-builtin",
            "-Wno-use-after-free",
            "-Wno-free-nonheap-object",
        ])
        .compile()
}

/// Runs the program with these options and a file of reports; the output, and the reports.
fn run(sandbox: &Sandbox<'_>, arguments: &[&str], options: &str) -> (String, Vec<Value>) {
    let file = sandbox.path(&format!("reports-{}", arguments.join("-")));
    let _ = std::fs::remove_file(&file);
    let options = format!("{options},report_file:{}", file.display());
    let outcome = sandbox
        .run_to_any_end(
            sandbox
                .command(program())
                .args(arguments)
                .env("MALLOC_CONF", options),
        )
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(
        !outcome.stdout_text().contains("went on"),
        "{}",
        outcome.account()
    );
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let reports = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")));
    (outcome.account(), reports.collect())
}

/// The frame of a stack that is the program's own, from the innermost on, as the option names it.
fn frame(report: &Value, event: &str, which: usize) -> String {
    let frame = &report[event]["stack"][which];
    let file = frame["file"].as_str().unwrap_or_default();
    let (_, file) = file
        .rsplit_once('/')
        .unwrap_or_else(|| panic!("no frame {which}: {report}"));
    format!("{file}+{:#x}", frame["offset"].as_u64().unwrap())
}

/// The first two frames of the site of these blocks.
fn site(sandbox: &Sandbox<'_>, number: usize) -> [String; 2] {
    let (account, reports) = run(
        sandbox,
        &["find", &number.to_string()],
        "guard_sites:*,guard_align:right",
    );
    let [report] = &reports[..] else {
        panic!("{reports:?} {account}")
    };
    assert!(
        report["kind"].as_str().unwrap().starts_with("overflow"),
        "{account}"
    );
    assert_eq!(report["found_by"], "access");
    [0, 1].map(|which| frame(report, "allocated", which))
}

#[test]
fn all_blocks_of_the_chosen_sites_are_guarded_and_no_others() {
    let sandbox = sandbox();
    let sites: Vec<_> = (0..7).map(|number| site(&sandbox, number)).collect();
    let [one, by_new, calloc] = [&sites[0], &sites[2], &sites[3]];
    let [copy_one, copy_two, longer] = [&sites[4], &sites[5], &sites[6]];
    assert_eq!(copy_one[0], copy_two[0], "both are `strdup`'s");
    for (chosen, expected) in [
        ("*".into(), "50 50 50 50 50 50 50"),
        (one[0].clone(), "50 50 0 0 0 0 0"),
        (one.join("<"), "50 0 0 0 0 0 0"),
        (by_new[0].clone(), "0 0 50 0 0 0 0"),
        (format!("{}|{}", calloc[0], by_new[0]), "0 0 50 50 0 0 0"),
        (copy_one[0].clone(), "0 0 0 0 50 50 0"),
        (copy_two.join("<"), "0 0 0 0 0 50 0"),
        (longer[0].clone(), "0 0 0 0 0 0 50"),
    ] {
        let options = format!("guard_sites:{chosen},guard_slots:1000");
        let (account, _) = run(&sandbox, &["count"], &options);
        assert!(
            account.contains(&format!("\n{expected}")),
            "{chosen}: {account}"
        );
    }
}

#[test]
fn slots_bound_the_guarded_blocks() {
    let sandbox = sandbox();
    let (account, _) = run(&sandbox, &["count"], "guard_sites:*,guard_slots:20");
    assert!(!account.contains("50 "), "{account}");
}

#[test]
fn what_the_default_checks_find_is_in_the_file_of_reports() {
    let sandbox = sandbox();
    for (how, kind) in [("inner", "invalid free"), ("twice", "double free")] {
        let (account, reports) = run(&sandbox, &[how], "confirm_conf:false");
        let [report] = &reports[..] else {
            panic!("{how}: {reports:?} {account}")
        };
        assert_eq!(report["kind"], kind, "{account}");
        let stack = report["now"]["stack"].as_array().expect("a stack");
        assert!(!stack.is_empty(), "{report}");
        assert!(
            frame(report, "now", 0).starts_with("guard_sites"),
            "{report}"
        );
    }
}
