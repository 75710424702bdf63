//! The pages of diagnose, tune, baseline and bench misuse in a real browser: legible on a small
//! screen and a large one, light and dark, without an error, and their Markdown is copied.
//!
//! With `MALLARD_PICTURES=folder` the test saves pictures for a human eye.

mod common;

use mallard_judge::diagnose::trial::Brought;
use mallard_report::diagnosis::{
    self, Answer, Aspect, Bound, Calls, Diagnosis, Moment, Next, Trouble, TroubleKey,
};
use mallard_report::history::{self, History, Save, Series};
use mallard_report::misuse::{self, Misuse};
use mallard_report::model::Metric;
use mallard_report::tuning::{self, Point, Tuning};

fn verdict(aspect: Aspect, answer: Answer, sentence: &str) -> diagnosis::Verdict {
    diagnosis::Verdict {
        aspect,
        answer,
        sentence: sentence.to_owned(),
        next: Some("mallard compare -- ./server".to_owned()),
    }
}

fn diagnosed() -> Diagnosis {
    let moment = |i: u32| Moment {
        seconds: f64::from(i) / 10.0,
        live: i64::from(i) << 16,
        rss: (u64::from(i) << 16) + (20 << 20),
        lazy: Some(1 << 20),
        calls_per_second: 1e6,
    };
    Diagnosis {
        schema: diagnosis::SCHEMA,
        program: "./server --self-test".to_owned(),
        command: vec!["mallard".to_owned(), "diagnose".to_owned()],
        started: "2026-11-26T10:00:00Z".to_owned(),
        machine: common::bench().machine,
        answer: Answer::Yes,
        sentence: "by locks. If malloc and free cost nothing: 1.34 to 1.36 × as fast (95 %)."
            .to_owned(),
        verdicts: vec![
            verdict(
                Aspect::Time,
                Answer::Yes,
                "by locks. If malloc and free cost nothing: 1.34 to 1.36 × as fast (95 %).",
            ),
            verdict(
                Aspect::Memory,
                Answer::No,
                "The peak of RSS is 800 MiB, of which 790 MiB were live.",
            ),
        ],
        bound: Some(Bound {
            low: 1.34,
            high: 1.36,
            calls: None,
            without_faults: None,
        }),
        troubles: vec![Trouble {
            key: TroubleKey::Locks,
            what: "threads wait for the allocator’s locks".to_owned(),
            because: "waits 11 % ≥ 3.0 %".to_owned(),
        }],
        takes: None,
        notes: vec!["A note.".to_owned()],
        next: vec![Next {
            command: "mallard compare -- ./server --self-test".to_owned(),
            what: "all allocators side by side".to_owned(),
            suggestion: None,
        }],
        tried: Some(diagnosis::Tried {
            runs: 6,
            sentence: "It helps: `mallard run -- ./server` makes wall time 2 s → 1 s.".to_owned(),
            trials: vec![diagnosis::Trial {
                command: "mallard run -- ./server --self-test".to_owned(),
                brought: vec![Brought {
                    figure: diagnosis::Figure::WallTime,
                    before: 2.0,
                    after: 1.0,
                    ratio: 0.5,
                    low: 0.45,
                    high: 0.55,
                    is_range: false,
                }],
                failure: None,
            }],
        }),
        ways: Vec::new(),
        figures: diagnosis::Figures {
            allocator: "glibc 2.36".to_owned(),
            inside: Some(0.3),
            waiting: Some(0.1),
            running: 0.9,
            peak_rss: 800 << 20,
            syscalls: vec![("madvise".to_owned(), 3120.0, 2.0)],
            calls: Calls {
                mallocs: 1_000_000,
                frees: 1_000_000,
                sizes: vec![0, 0, 10, 400, 1_000, 3_000, 20],
                lifetimes: vec![(1e-6, 10), (1e-3, 400), (1.0, 3)],
                matrix: vec![vec![10, 2], vec![0, 7]],
                ..Calls::default()
            },
            ..diagnosis::Figures::default()
        },
        timeline: (0..300).map(moment).collect(),
    }
}

fn tuned() -> Tuning {
    let point = |i: u32| Point {
        name: format!("mallard narenas:{i},dirty_decay_ms:1000"),
        work: 0.9 + f64::from(i % 13) / 40.0,
        memory: 1.2 - f64::from(i % 17) / 50.0,
        runs: 8,
        recommended: i == 3,
        front: i.is_multiple_of(20),
    };
    Tuning {
        title: "the service web".to_owned(),
        sentence: "Use mallard with dirty_decay_ms:30000,tcache_max:262144.".to_owned(),
        typed: Some("MALLARD_CONF=dirty_decay_ms:30000,tcache_max:262144".to_owned()),
        lines: vec![(
            "left out".to_owned(),
            "narenas:16 (+0.3 %, within noise)".to_owned(),
        )],
        work: "qps".to_owned(),
        memory: "rss_end".to_owned(),
        points: (0..60).map(point).collect(),
        ..Tuning::default()
    }
}

fn kept() -> History {
    let metric = |name: &str, unit: &str| Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        higher_is_better: name == "qps",
    };
    let save = |day: u32| {
        let level = if day > 8 { 1.06 } else { 1.0 };
        let blocks = (0..12).map(|i| (level * (1.0 + 0.004 * f64::from((i * 7 + day) % 5)), 1.0));
        let series = |name, unit| Series {
            metric: metric(name, unit),
            blocks: blocks.clone().collect(),
        };
        Save {
            saved: format!("2026-11-{day:02}T10:00:00Z"),
            commit: Some("3c40325".to_owned()),
            machine: common::bench().machine,
            metrics: vec![
                series("qps", "/s"),
                series("p99", "ms"),
                series("rss_end", "bytes"),
            ],
        }
    };
    History {
        name: "web".to_owned(),
        what: "--service web.toml".to_owned(),
        anchor: Some("glibc".to_owned()),
        gates: vec!["p99>+5%".to_owned(), "qps<-3%".to_owned()],
        saves: (1..15).map(save).collect(),
    }
}

#[test]
fn every_page_is_legible_without_an_error_and_its_markdown_is_copied() {
    let Some(mut browser) = mallard_browser::for_test() else {
        return;
    };
    let misuse = Misuse::from_json(include_str!("files/misuse.json")).unwrap();
    let pages = [
        ("misuse", misuse::page(&misuse)),
        ("diagnose", diagnosis::page(&diagnosed())),
        ("tune", tuning::page(&tuned())),
        ("baseline", history::page(&kept())),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (name, page) in pages {
        let path = folder.path().join(format!("{name}.html"));
        std::fs::write(&path, page).unwrap();
        for (width, theme) in [
            (360, "light"),
            (360, "dark"),
            (1200, "light"),
            (1200, "dark"),
        ] {
            let visit = browser.visit(&path, width, theme);
            assert!(
                visit.errors.is_empty(),
                "{name} at {width}, {theme}: {:#?}",
                visit.errors
            );
            assert!(visit.requests.is_empty(), "{name}: {:?}", visit.requests);
            let overflow = browser.evaluate("document.documentElement.scrollWidth - innerWidth");
            assert!(
                overflow.as_f64().unwrap() <= 0.0,
                "{name} scrolls sideways by {overflow} at {width}"
            );
            if let Some(pictures) = std::env::var_os("MALLARD_PICTURES") {
                let picture =
                    std::path::Path::new(&pictures).join(format!("{name}-{width}-{theme}.png"));
                std::fs::create_dir_all(&pictures).unwrap();
                std::fs::write(picture, browser.picture()).unwrap();
            }
        }
        // Whether the clipboard is permitted or not, the text is there and selected.
        let copied = browser.evaluate(
            "(() => {
                const details = document.querySelector('details.copy');
                details.open = true;
                const text = details.querySelector('textarea');
                details.querySelector('[data-copy]').click();
                return [text.value, text.selectionEnd - text.selectionStart === text.value.length];
            })()",
        );
        let (text, selected): (String, bool) = serde_json::from_value(copied).unwrap();
        assert!(selected && text.contains("| --- |"), "{name}: {text}");
    }
}
