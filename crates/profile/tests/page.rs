//! The page in a real browser: nothing in the console, nothing requested, frames drawn, zoomed,
//! searched and reached by keys.
//!
//! Changes in appearance need a human eye: with `MALLARD_PICTURES=folder` the tests leave pictures
//! of the pages there.

#[allow(dead_code)]
mod sample;

use std::path::{Path, PathBuf};

use mallard_browser::Browser;
use mallard_profile::model::Profile;
use mallard_profile::names::NamingOutcome;
use mallard_profile::show::{Named, ProfilePage, html};
use mallard_profile::view::View;
use mallard_profile::view::rows::By;

fn page(compared: bool) -> String {
    page_of(&sample::shop(2), compared.then_some(&sample::shop(1)))
}

fn page_of(after: &Profile, before: Option<&Profile>) -> String {
    let named = |name, profile| Named { name, profile };
    html(&ProfilePage {
        subject: named("shop.pb.gz", after),
        before: before.map(|before| named("morning.pb.gz", before)),
        view: View::Live,
        by: By::Function,
        names: &NamingOutcome::default(),
        notes: &[],
        apart: None,
    })
}

fn written(folder: &Path, page: &str) -> PathBuf {
    let path = folder.join("profile.html");
    std::fs::write(&path, page).expect("the page is written");
    path
}

fn text_of(browser: &mut Browser, expression: &str) -> String {
    let value = browser.evaluate(expression);
    value
        .as_str()
        .unwrap_or_else(|| panic!("{expression}: {value}"))
        .to_owned()
}

const FRAMES: &str = "[...document.querySelectorAll('.frame')].map(f => f.textContent).join('|')";
const DETAIL: &str = "document.getElementById('detail').textContent";

#[test]
fn graphs_are_drawn_in_both_themes_on_wide_and_narrow_screens() {
    let Some(mut browser) = mallard_browser::for_test() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for compared in [false, true] {
        let path = written(folder.path(), &page(compared));
        for (width, theme) in [
            (1440, "light"),
            (1440, "dark"),
            (360, "light"),
            (360, "dark"),
        ] {
            let visit = browser.visit(&path, width, theme);
            assert!(
                visit.errors.is_empty(),
                "at {width}, {theme}: {:#?}",
                visit.errors
            );
            assert!(visit.requests.is_empty(), "{:?}", visit.requests);
            let frames = text_of(&mut browser, FRAMES);
            assert!(
                frames.starts_with("all|main|api::put|cache::Shard<Key>::insert|cache::Entry::new"),
                "{frames}"
            );
            let overflow = browser.evaluate("document.documentElement.scrollWidth - innerWidth");
            assert!(
                overflow.as_f64().unwrap() <= 0.0,
                "the page scrolls sideways by {overflow} at {width}"
            );
            if let Some(pictures) = std::env::var_os("MALLARD_PICTURES") {
                std::fs::create_dir_all(&pictures).unwrap();
                let kind = if compared { "diff" } else { "profile" };
                let name = format!("{kind}-{width}-{theme}.png");
                std::fs::write(Path::new(&pictures).join(name), browser.picture()).unwrap();
            }
        }
    }
}

#[test]
fn a_frame_is_zoomed_by_a_click_and_out_again() {
    let Some(mut browser) = mallard_browser::for_test() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    browser.visit(&written(folder.path(), &page(false)), 1000, "light");
    let wide = "(name => { const f = [...document.querySelectorAll('.frame')].find(f => f.textContent === name);
        return f ? f.getBoundingClientRect().width / document.getElementById('flame').clientWidth : 0; })";
    let before = browser
        .evaluate(&format!("{wide}('api::get')"))
        .as_f64()
        .unwrap();
    assert!((0.1..0.3).contains(&before), "{before}");
    browser.evaluate(
        "[...document.querySelectorAll('.frame')].find(f => f.textContent === 'api::get').click()",
    );
    let zoomed = browser
        .evaluate(&format!("{wide}('api::get')"))
        .as_f64()
        .unwrap();
    // The browser tells the width of the whole graph in whole pixels.
    assert!((zoomed - 1.0).abs() < 0.002, "{zoomed}");
    assert!(text_of(&mut browser, DETAIL).starts_with("api::get 403 MiB (20 %) · server"));
    browser.evaluate("document.getElementById('reset').click()");
    assert_eq!(
        browser.evaluate(&format!("{wide}('api::get')")).as_f64(),
        Some(before)
    );
}

#[test]
fn a_search_tells_the_share_that_matches() {
    let Some(mut browser) = mallard_browser::for_test() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    browser.visit(&written(folder.path(), &page(false)), 1000, "light");
    let search = |browser: &mut Browser, text: &str| {
        text_of(
            browser,
            &format!(
                "(() => {{ const s = document.getElementById('search'); s.value = '{text}';
                s.dispatchEvent(new Event('input')); return document.getElementById('matched').textContent; }})()"
            ),
        )
    };
    // Frames inside a frame that matches are not counted again.
    assert_eq!(search(&mut browser, "CACHE::"), "matched 80 % · 1.55 GiB");
    assert_eq!(
        browser.evaluate("document.querySelectorAll('.match').length"),
        2
    );
    assert_eq!(search(&mut browser, "nowhere"), "nothing matches");
    assert_eq!(search(&mut browser, ""), "");
}

#[test]
fn every_frame_is_reached_by_keys() {
    let Some(mut browser) = mallard_browser::for_test() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    browser.visit(&written(folder.path(), &page(false)), 1000, "light");
    let press = |browser: &mut Browser, key: &str| {
        text_of(
            browser,
            &format!(
                "(() => {{ const f = document.getElementById('flame'); f.focus();
                f.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}', bubbles: true }}));
                return document.getElementById(f.getAttribute('aria-activedescendant')).getAttribute('aria-label'); }})()"
            ),
        )
    };
    let mut expect = |key: &str, name: &str| {
        let told = press(&mut browser, key);
        assert!(told.starts_with(&format!("{name}, ")), "{key}: {told}");
    };
    expect("ArrowDown", "main");
    expect("ArrowDown", "api::put");
    expect("ArrowRight", "api::get");
    expect("ArrowLeft", "api::put");
    expect("ArrowDown", "cache::Shard<Key>::insert");
    expect("Enter", "cache::Shard<Key>::insert");
    expect("Escape", "api::put");
    expect("Home", "all");
}

#[test]
fn every_view_and_both_sides_of_a_comparison_can_be_chosen() {
    let Some(mut browser) = mallard_browser::for_test() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let views = "[...document.querySelectorAll('.views button')].map(b => { b.click();
        return b.textContent + ' ' + document.getElementById('detail').textContent; }).join('|')";
    browser.visit(&written(folder.path(), &page(false)), 1000, "light");
    let told = text_of(&mut browser, views);
    assert_eq!(
        told,
        "live all 1.94 GiB (100 %)|peak all 2.57 GiB (100 %)|allocated all 3.65 GiB (100 %)|\
         rate all 125 MiB/s (100 %)|waste all 102 MiB (100 %)|frag all 10.5 MiB (100 %)|\
         lifetime all 2.6 M (100 %) · mean lifetime 2 s"
    );
    browser.visit(&written(folder.path(), &page(true)), 1000, "light");
    let told = text_of(&mut browser, views);
    assert!(
        told.starts_with(
            "live after all 1.94 GiB (100 %) · +793 MiB|live before all 1.17 GiB (100 %) · +793 MiB|"
        ),
        "{told}"
    );
}

#[test]
fn text_from_a_profile_is_shown_and_not_run_and_nothing_is_fetched() {
    // Alone, the function with markup in its name is large enough for the graph.
    let mut before = sample::shop(1);
    before.samples.drain(..3);
    let mut after = before.clone();
    for value in &mut after.samples[0].values {
        *value *= 2;
    }
    for before in [None, Some(&before)] {
        let page = page_of(&after, before);
        assert!(!page.contains("</script><b>"), "in the graph");
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(
            page.contains("\\u003c/script>\\u003cb>&evil;"),
            "in the graph"
        );
        assert!(
            page.contains("&lt;/script&gt;&lt;b&gt;&amp;evil;"),
            "in the table"
        );
        for forbidden in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!page.contains(forbidden), "{forbidden} in the page");
        }
    }
}
