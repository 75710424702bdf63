//! The HTML report in a real browser: nothing in the console, nothing requested, every plot drawn.
//!
//! Changes in appearance need a human eye: with `MALLARD_PICTURES=folder` the tests save the pages
//! there as PNG for both themes and several widths, and as PDF for printing.

mod common;

use std::path::{Path, PathBuf};

use mallard_report::model::Results;
use mallard_testing::browser::{self, Browser};

fn page(folder: &Path, results: &Results) -> PathBuf {
    let path = folder.join("report.html");
    std::fs::write(&path, mallard_report::html(results)).expect("the report is written");
    path
}

/// The page's plots as `experiment/plot`, without those that have no size or no marks.
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

/// Saves a picture of the page if `MALLARD_PICTURES` is set.
fn keep_picture(browser: &mut Browser, name: &str) {
    let Some(folder) = std::env::var_os("MALLARD_PICTURES").map(PathBuf::from) else {
        return;
    };
    std::fs::create_dir_all(&folder).expect("the folder for pictures");
    std::fs::write(folder.join(format!("{name}.png")), browser.picture())
        .expect("a picture is written");
    std::fs::write(folder.join(format!("{name}.pdf")), browser.pdf()).expect("a print is written");
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
    let Some(mut browser) = browser::for_test() else {
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
    let Some(mut browser) = browser::for_test() else {
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
            let kind = format!("{:?}", results.kind).to_lowercase();
            keep_picture(&mut browser, &format!("{kind}-{width}-{theme}"));
        }
    }
}

#[test]
fn pointing_at_a_mark_shows_its_figures_and_the_legend_highlights_one_allocator() {
    let Some(mut browser) = browser::for_test() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = page(folder.path(), &common::bench());
    let visit = browser.visit(&path, 1440, "light");
    let tip = browser.evaluate(
        "(() => {
            const mark = document.querySelector('[data-experiment=pairs] .k-subject .point');
            mark.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, clientX: 300, clientY: 300 }));
            const tip = document.getElementById('tip');
            return tip.hidden ? null : tip.textContent;
        })()",
    );
    let tip = tip.as_str().expect("the tip is shown");
    assert!(
        tip.starts_with("mallard · threads 1\n0.0441 s") && tip.contains("peak RSS"),
        "{tip}"
    );
    let dimmed = browser.evaluate(
        "(() => {
            document.querySelector('.legend [data-a=mimalloc]').click();
            const names = all => [...new Set([...all].map(e => e.dataset.a))];
            return names(document.querySelectorAll('.plot .dim')).includes('mimalloc') ||
                !names(document.querySelectorAll('.plot .dim')).includes('glibc');
        })()",
    );
    assert_eq!(dimmed, false, "all but the chosen one are dimmed");
    assert!(visit.errors.is_empty(), "{visit:?}");
}

#[test]
fn text_from_outside_is_shown_and_not_executed() {
    let page = mallard_report::html(&common::bench());
    assert!(
        !page.contains("<script>console"),
        "markup from a label or an output reached the page"
    );
    assert!(page.contains("&lt;script&gt;console.error(&quot;escaped?&quot;)&lt;/script&gt;"));
}

#[test]
fn the_report_refers_to_no_external_address() {
    for results in [common::bench(), common::compare()] {
        let page = mallard_report::html(&results);
        for forbidden in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!page.contains(forbidden), "{forbidden} in the report");
        }
    }
}

#[test]
fn the_report_has_every_run_and_everything_needed_to_repeat_it() {
    let results = common::bench();
    let page = mallard_report::html(&results);
    let runs: usize = results
        .experiments
        .iter()
        .flat_map(|e| &e.rows)
        .flat_map(|r| &r.cells)
        .map(|c| c.runs.len())
        .sum();
    let rows = page.matches("<td>0</td></tr>").count();
    assert_eq!(rows, runs, "a line per run, each ending with its exit code");
    for needed in [
        "AMD EPYC 9R45",
        "Linux 6.18.4",
        "madvise",
        "mallard bench --runs 5 --out 'my results'",
        "glibc.pthread.rseq=0",
        "5.3.0-220-g81034ce1",
        "/usr/lib/mallard/peers/libjemalloc.so",
        "not installed; build it",
        "memory warmed before each run",
    ] {
        assert!(page.contains(needed), "{needed} is missing");
    }
}

#[test]
fn an_almost_empty_session_is_still_a_page() {
    let mut alone = common::bench();
    alone.allocators.retain(|a| a.name == "mallard");
    for row in alone.experiments.iter_mut().flat_map(|e| &mut e.rows) {
        row.cells.retain(|c| c.allocator == "mallard");
        for run in row.cells.iter_mut().flat_map(|c| &mut c.runs) {
            (run.seconds, run.peak_rss_bytes) = (0.0, 0);
        }
    }
    let mut unlisted = common::compare();
    unlisted.allocators.clear();
    let mut empty = common::bench();
    empty.experiments.iter_mut().for_each(|e| e.rows.clear());
    for results in [alone, unlisted, empty] {
        let page = mallard_report::html(&results);
        assert!(page.ends_with("</html>") && page.contains("Set-up"));
        assert!(
            !page.contains("NaN") && !page.contains("inf\""),
            "a coordinate is no number"
        );
    }
}
