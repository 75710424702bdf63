//! The table and the JSON, word for word. After a change that is meant, `MALLARD_BLESS=1 cargo
//! test -p mallard-profile --test shown` writes the new words to `tests/golden`.

mod sample;

use std::fs;
use std::path::Path;

use mallard_profile::names::{Lack, NamingOutcome, Why};
use mallard_profile::show::{Layout, Named, ProfilePage, json, table};
use mallard_profile::view::View;
use mallard_profile::view::rows::By;

const SCREEN: Layout = Layout {
    width: Some(100),
    color: false,
    rows: Some(20),
};

fn expect(name: &str, shown: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("MALLARD_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, shown).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    for (place, (shown, expected)) in shown.lines().zip(expected.lines()).enumerate() {
        assert_eq!(shown, expected, "line {} of {name}", place + 1);
    }
    assert_eq!(
        shown.len(),
        expected.len(),
        "lines were added or lost: {name}"
    );
}

/// Shows the profile, compared with an earlier one or not.
fn shown(view: View, by: By, layout: Option<Layout>, compared: bool) -> String {
    let (before, after) = (sample::shop(1), sample::shop(if compared { 2 } else { 1 }));
    let names = NamingOutcome {
        lacks: vec![Lack {
            module: "libfoo.so".to_owned(),
            why: Why::Replaced,
            addresses: 3,
        }],
    };
    let named = |name, profile| Named { name, profile };
    let page = ProfilePage {
        subject: named("shop.pb.gz", &after),
        before: compared.then(|| named("morning.pb.gz", &before)),
        view,
        by,
        names: &names,
        notes: &[],
        apart: None,
    };
    match layout {
        Some(layout) => table(&page, layout).unwrap(),
        None => json(&page).unwrap(),
    }
}

#[test]
fn every_view_is_shown_as_it_was() {
    for view in View::ALL {
        let name = format!("{}.txt", view.name());
        expect(&name, &shown(view, By::Function, Some(SCREEN), false));
    }
}

#[test]
fn every_key_is_shown_as_it_was() {
    for by in [By::Line, By::Module, By::Size, By::Thread] {
        let name = format!("by-{}.txt", by.name());
        expect(&name, &shown(View::Live, by, Some(SCREEN), false));
    }
}

#[test]
fn a_comparison_is_shown_as_it_was() {
    expect(
        "diff.txt",
        &shown(View::Live, By::Function, Some(SCREEN), true),
    );
    expect("diff.json", &shown(View::Live, By::Function, None, true));
}

#[test]
fn text_and_json_are_shown_as_they_were() {
    let all = Layout {
        width: None,
        color: false,
        rows: None,
    };
    expect(
        "text.txt",
        &shown(View::Live, By::Function, Some(all), false),
    );
    expect("live.json", &shown(View::Live, By::Function, None, false));
}

#[test]
fn no_line_is_wider_than_the_screen_and_no_name_steers_it() {
    for width in [20, 60, 80, 200] {
        let layout = Layout {
            width: Some(width),
            ..SCREEN
        };
        let text = shown(View::Live, By::Function, Some(layout), false);
        assert!(!text.contains('\u{1b}'), "{text}");
        let lines = text
            .lines()
            .skip(1)
            .filter(|line| !line.starts_with("note:"));
        // Narrower than 60 columns, sites keep a least width.
        let widest = lines.map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= width.max(75), "{widest} of {width}:\n{text}");
    }
}

#[test]
fn a_column_without_any_figure_is_left_out() {
    let mut profile = sample::shop(1);
    for sample in &mut profile.samples {
        sample.values[5] = 0;
    }
    let page = ProfilePage {
        subject: Named {
            name: "shop.pb.gz",
            profile: &profile,
        },
        before: None,
        view: View::Live,
        by: By::Size,
        names: &NamingOutcome::default(),
        notes: &[],
        apart: None,
    };
    let text = table(&page, SCREEN).unwrap();
    assert!(!text.contains("peak") && text.contains("waste"), "{text}");
}

#[test]
fn rows_that_are_left_out_are_counted() {
    let layout = Layout {
        rows: Some(1),
        ..SCREEN
    };
    let text = shown(View::Live, By::Function, Some(layout), false);
    assert!(text.contains("\n3 more; --text shows all\n"), "{text}");
    assert!(!text.contains("api::get"), "{text}");
}

#[test]
fn figures_that_are_not_there_are_named_with_a_way_to_get_them() {
    let mut profile = sample::shop(1);
    profile.types.truncate(4);
    for sample in &mut profile.samples {
        sample.values.truncate(4);
        (sample.values[0], sample.values[1]) = (0, 0);
    }
    let told = |view: View| view.figures(&profile).unwrap_err().to_string();
    assert_eq!(
        told(View::Peak),
        "the profile has no figures of the peak (peak_space); it has inuse_objects, inuse_space; \
         Mallard writes them with prof_format:pprof"
    );
    assert_eq!(
        told(View::Allocs),
        "the profile has no figures of all allocations (alloc_space); it has inuse_objects, \
         inuse_space; files of jemalloc's format have them with prof_accum:true, Mallard's of \
         pprof's format always"
    );
}
