//! The HTML report in a real browser: nothing in the console, nothing requested, every plot drawn.

#[path = "common/browser.rs"]
mod browser;
mod common;

use std::path::{Path, PathBuf};

use browser::Browser;
use mallard_report::model::Results;

/// A browser, or none where the machine has none and nobody insists.
fn browser(test: &str) -> Option<Browser> {
    if let Some(program) = browser::find() {
        return Some(Browser::start(&program));
    }
    let insists = std::env::var("MALLARD_REQUIRE_PROGRAMS").is_ok_and(|v| v == "1");
    assert!(
        !insists,
        "{test}: no chromium in PATH, and MALLARD_REQUIRE_PROGRAMS=1 asks for it"
    );
    eprintln!("SKIPPED {test}: no chromium in PATH (install the package `chromium` to run it)");
    None
}

fn page(folder: &Path, results: &Results) -> PathBuf {
    let path = folder.join("report.html");
    std::fs::write(&path, mallard_report::html(results)).expect("the report is written");
    path
}

/// The plots of the page as `experiment/plot`, those that have no size or no marks left out.
fn plots(browser: &mut Browser) -> Vec<String> {
    let found = browser.evaluate(
        "[...document.querySelectorAll('[data-experiment] [data-plot] svg')].filter(svg => {
            const box = svg.getBoundingClientRect();
            const marks = svg.querySelectorAll('.mark, .body');
            const drawn = [...marks].every(m => { const b = m.getBoundingClientRect(); return b.width > 0 && b.height > 0; });
            return box.width > 200 && box.height > 40 && marks.length > 0 && drawn;
        }).map(svg => svg.closest('[data-experiment]').dataset.experiment + '/' + svg.closest('[data-plot]').dataset.plot)",
    );
    serde_json::from_value(found).expect("a list of names")
}

fn expected_plots(results: &Results) -> Vec<String> {
    let of = |name: &str| ["time", "speedup", "rss"].map(|plot| format!("{name}/{plot}"));
    results
        .experiments
        .iter()
        .flat_map(|e| of(&e.name))
        .collect()
}

#[test]
fn a_browser_that_meets_an_error_tells() {
    let Some(mut browser) = browser("a_browser_that_meets_an_error_tells") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("<script>console.error('by hand')</script>", "by hand"),
        ("<script>null.thrown</script>", "thrown"),
        ("<img src='missing.png'>", "missing.png"),
    ];
    for (body, mentions) in cases {
        let path = folder.path().join("broken.html");
        std::fs::write(
            &path,
            format!("<!doctype html><link rel=icon href='data:,'>{body}"),
        )
        .unwrap();
        let visit = browser.visit(&path, 800, "light");
        assert!(
            visit.errors.iter().any(|e| e.contains(mentions)),
            "{body}: {visit:?}"
        );
    }
    let path = folder.path().join("sound.html");
    std::fs::write(
        &path,
        "<!doctype html><link rel=icon href='data:,'><p>sound",
    )
    .unwrap();
    let visit = browser.visit(&path, 800, "light");
    assert!(visit.errors.is_empty(), "{visit:?}");
}

#[test]
fn every_plot_is_drawn_without_an_error_or_a_request() {
    let Some(mut browser) = browser("every_plot_is_drawn_without_an_error_or_a_request") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for results in [common::bench(), common::compare()] {
        let path = page(folder.path(), &results);
        for (width, theme) in [
            (1440, "light"),
            (1440, "dark"),
            (390, "light"),
            (390, "dark"),
        ] {
            let visit = browser.visit(&path, width, theme);
            assert!(
                visit.errors.is_empty(),
                "{} at {width}, {theme}: {:#?}",
                results.title,
                visit.errors
            );
            assert!(visit.requests.is_empty(), "{:?}", visit.requests);
            assert_eq!(
                plots(&mut browser),
                expected_plots(&results),
                "{} at {width}, {theme}",
                results.title
            );
            let overflow = browser.evaluate("document.documentElement.scrollWidth - innerWidth");
            assert!(
                overflow.as_f64().unwrap() <= 0.0,
                "the page scrolls sideways by {overflow} at {width}"
            );
        }
    }
}
