//! `mallard report`: every kind of result is shown again, in every form, and mistakes are named.

use crate::place::typed;
use std::fs;

use mallard_report::tuning::Tuning;

use crate::place::*;

fn run(place: &Place, words: &[&str]) -> (Option<i32>, String, String) {
    outcome(&mut place.mallard(words))
}

fn done(place: &Place, words: &[&str]) -> String {
    let (code, stdout, stderr) = run(place, words);
    assert_eq!(code, Some(SUCCESS), "{words:?}: {stdout}{stderr}");
    stdout
}

/// A folder with a result of compare, of diagnose, of tune and of baseline.
fn place() -> Place {
    let place = Place::new();
    let compare = typed("compare -r 2 -w 0 --no-warm -a glibc,mallard");
    done(
        &place,
        &[&compare[..], &["-o", "compared", "--", "true"]].concat(),
    );
    let diagnosed = typed("diagnose --quick -o diagnosed -- sh -c :");
    let (code, ..) = run(&place, &diagnosed);
    assert!(
        matches!(code, Some(0 | 3)),
        "a short program may be too short"
    );
    let tuning = Tuning {
        title: "./server".to_owned(),
        sentence: "Use mallard with narenas:4.".to_owned(),
        typed: Some("MALLOC_CONF=narenas:4".to_owned()),
        ..Tuning::default()
    };
    fs::create_dir(place.path().join("tuned")).unwrap();
    let text = serde_json::to_string(&tuning).unwrap();
    fs::write(place.path().join("tuned/tune.json"), text).unwrap();
    let save = [
        "baseline",
        "save",
        "web",
        "--no-anchor",
        "--metric",
        "p99=regex:p99 (.*) (ms)",
    ];
    let gate = ["--fail-if", "p99>+5%", "--", "sh", "-c", "echo p99 9 ms"];
    done(&place, &[&save[..], &gate].concat());
    place
}

#[test]
fn every_kind_of_result_is_shown_again_in_every_form() {
    let place = place();
    let baseline = ".mallard/baselines/web.json";
    for (file, page, says) in [
        ("compared", "compared/compare.html", "mallard"),
        ("compared/compare.json", "compared/compare.html", "mallard"),
        (
            "diagnosed",
            "diagnosed/diagnose.html",
            "Is malloc the bottleneck?",
        ),
        ("tuned", "tuned/tune.html", "Use mallard with narenas:4."),
        (baseline, "mallard-results/baseline-web.html", "p99>+5%"),
    ] {
        let _ = fs::remove_file(place.path().join(page));
        let stdout = done(&place, &["report", file]);
        assert!(stdout.contains(says), "{file}: {stdout}");
        assert!(
            stdout.ends_with(&format!("Report: {page}\n")),
            "{file}: {stdout}"
        );
        let html = place.text(page);
        assert!(
            html.contains("As Markdown") && html.contains("Written by mallard"),
            "{file}"
        );
        let markdown = done(
            &place,
            &["report", "--export-markdown", "-", "-o", "x.html", file],
        );
        assert!(
            markdown.contains("**") && markdown.contains("| --- |"),
            "{file}: {markdown}"
        );
    }
    // Without a file it is the last session's, and -o says where the page goes.
    done(
        &place,
        &[
            "compare",
            "-r",
            "1",
            "--no-warm",
            "-w",
            "0",
            "-a",
            "glibc",
            "--",
            "true",
        ],
    );
    let stdout = done(&place, &["report", "-o", "pages/last.html"]);
    assert!(stdout.ends_with("Report: pages/last.html\n"), "{stdout}");
    assert!(place.text("pages/last.html").contains("glibc"));
}

#[test]
fn what_is_no_result_is_named_in_a_line() {
    let place = place();
    fs::write(place.path().join("notes.txt"), "hello").unwrap();
    fs::write(place.path().join("other"), "{}").unwrap();
    let future = "{\"schema\": 99, \"points\": [], \"sentence\": \"\"}";
    fs::write(place.path().join("future.json"), future).unwrap();
    for (file, says) in [
        ("nowhere", "cannot read nowhere"),
        ("notes.txt", "mallard profile"),
        ("other", "is not a result that can be shown again"),
        (".mallard", "has none of results.json"),
        ("future.json", "a newer mallard"),
    ] {
        let (code, stdout, stderr) = run(&place, &["report", file]);
        assert_eq!(code, Some(FAILED), "{file}: {stdout}");
        assert!(
            stderr.contains(says) && stderr.lines().count() == 1,
            "{file}: {stderr}"
        );
    }
}

#[test]
fn the_page_is_opened_by_the_user_s_browser() {
    let place = place();
    let browser = place.script(
        "browser",
        "#!/bin/sh\necho \"$1\" > part && mv part opened\n",
    );
    let mut command = place.mallard(&["report", "--open", "tuned"]);
    command.env("BROWSER", &browser).exits(SUCCESS);
    // It goes on by itself.
    let opened = place.path().join("opened");
    while !opened.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(place.text("opened").trim(), "tuned/tune.html");
    let mut command = place.mallard(&["report", "--open", "tuned"]);
    let (code, _, stderr) = outcome(command.env("BROWSER", "/nowhere/browser"));
    assert!(
        code == Some(FAILED) && stderr.contains("BROWSER names another"),
        "{stderr}"
    );
}
