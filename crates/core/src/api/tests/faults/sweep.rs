//! Which failures a scenario meets: each alone, all from one on, and pairs at random.

use super::process::{Report, run};
use super::scenarios::Scenario;
use super::world::Holdings;
use crate::sys::faults::{ALL, KINDS, Kind, Rule};
use crate::sys::moves;
use crate::sys::page::PAGE;
use core::panic::Location;
use std::collections::{BTreeMap, BTreeSet};
use std::format;
use std::string::String;
use std::vec::Vec;

/// How many cases run.
struct Extent {
    /// Points of the same place in the sources that fail alone.
    of_a_place: usize,
    /// The most points from which on all fail. Of more, some are left out, at even distances.
    from: usize,
    pairs: usize,
}

const SAMPLE: Extent = Extent {
    of_a_place: 1,
    from: 5,
    pairs: 5,
};
const WHOLE: Extent = Extent {
    of_a_place: usize::MAX,
    from: 60,
    pairs: 60,
};

fn extent() -> &'static Extent {
    match std::env::var_os("MALLARD_EVERY_FAULT") {
        Some(value) if value == "1" => &WHOLE,
        _ => &SAMPLE,
    }
}

/// Bytes of records by which runs differ: some are made when time has passed, and stacks may yet
/// grow to what they need.
const SLACK: usize = 32 << 10;
/// The rest of a sweep with as many failures is left out.
const FAILURES_MAX: usize = 20;

/// How a kind of call fails: the errors, and whether it takes effect before.
fn ways(kind: Kind) -> &'static [(i32, bool)] {
    use libc::*;
    match kind {
        Kind::Map => &[(ENOMEM, false), (EEXIST, false), (EPERM, false)],
        Kind::Unmap => &[(ENOMEM, false)],
        Kind::Protect => &[(ENOMEM, false), (ENOMEM, true)],
        Kind::Advise => &[(EINVAL, false), (EPERM, false), (EAGAIN, true)],
        Kind::Resize => &[(ENOMEM, false), (EFAULT, false)],
        // As this system answers where the source is several mappings.
        Kind::Move if moves::keeps_destination() => &[
            (ENOMEM, false),
            (ENOMEM, true),
            (EFAULT, false),
            (EINVAL, false),
        ],
        Kind::Move => &[
            (ENOMEM, false),
            (ENOMEM, true),
            (EFAULT, true),
            (EINVAL, false),
        ],
        Kind::Limit => &[(EPERM, false)],
        Kind::Memfd => &[(EMFILE, false), (EPERM, false)],
        Kind::Descriptor => &[(EMFILE, false), (EINTR, true)],
        Kind::Open => &[(EACCES, false), (EMFILE, false)],
        Kind::Read => &[(EIO, false), (EINTR, false)],
        Kind::Write => &[(ENOSPC, false), (EINTR, false)],
        Kind::Wait | Kind::Sleep => &[(EINTR, false)],
        Kind::Clock => &[(EPERM, false)],
        Kind::Cpu | Kind::Node | Kind::Vdso => &[(ENOSYS, false)],
        Kind::Probe => &[(EPERM, false)],
        Kind::Fence => &[(EINVAL, false), (EPERM, false), (ENOMEM, true)],
        Kind::Thread => &[(EAGAIN, false)],
        Kind::Key => &[(EAGAIN, false)],
        Kind::AtFork | Kind::Value | Kind::Meta => &[(ENOMEM, false)],
    }
}

/// What fails when memory is out.
const MEMORY: [Kind; 6] = [
    Kind::Map,
    Kind::Unmap,
    Kind::Protect,
    Kind::Resize,
    Kind::Move,
    Kind::Meta,
];

/// A point of the run without failures.
#[derive(Clone, Copy)]
struct Point {
    number: u32,
    kind: Kind,
    place: Option<&'static Location<'static>>,
}

impl Point {
    fn rule(self, (error, after): (i32, bool)) -> Rule {
        Rule {
            kinds: self.kind.bit(),
            first: self.number,
            last: self.number,
            error,
            after,
        }
    }

    fn place(self) -> String {
        self.place.map_or_else(String::new, |place| {
            let file = place.file();
            format!(
                "{}:{}",
                file.split_once("src/").map_or(file, |f| f.1),
                place.line()
            )
        })
    }
}

/// A case, in words that `MALLARD_FAULT` takes back.
fn words(rules: &[Rule]) -> String {
    let word = |rule: &Rule| {
        let Rule {
            kinds,
            first,
            last,
            error,
            after,
        } = rule;
        format!("{kinds}:{first}:{last}:{error}:{}", u8::from(*after))
    };
    rules.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn rules_of(words: &str) -> Option<Vec<Rule>> {
    let rule = |word: &str| {
        let mut parts = word.split(':').map(|part| part.parse::<u32>().ok());
        let mut part = || parts.next().flatten();
        Some(Rule {
            kinds: part()?,
            first: part()?,
            last: part()?,
            error: part()? as i32,
            after: part()? != 0,
        })
    };
    words.split_whitespace().map(rule).collect()
}

/// At most `max` of the items, at even distances.
fn some<T: Copy>(items: &[T], max: usize) -> Vec<T> {
    let step = items.len().div_ceil(max).max(1);
    items.iter().copied().step_by(step).collect()
}

/// The cases of a scenario with these points.
fn cases(points: &[Point]) -> Vec<Vec<Rule>> {
    let mut seen: BTreeMap<(u8, String), usize> = BTreeMap::new();
    let extent = extent();
    let told_apart = (points.iter().copied()).filter(|point| {
        let times = seen.entry((point.kind as u8, point.place())).or_default();
        *times += 1;
        *times <= extent.of_a_place
    });
    let mut cases = Vec::new();
    for point in told_apart {
        let ways = ways(point.kind).iter();
        cases.extend(ways.map(|&way| Vec::from([point.rule(way)])));
    }
    let of_memory = MEMORY.iter().fold(0, |bits, kind| bits | kind.bit());
    let every = ALL.iter().fold(0, |bits, kind| bits | kind.bit());
    for point in some(points, extent.from) {
        for (kinds, error) in [(of_memory, libc::ENOMEM), (every, libc::EPERM)] {
            if kinds & point.kind.bit() != 0 {
                cases.push(Vec::from([Rule {
                    kinds,
                    first: point.number,
                    last: u32::MAX,
                    error,
                    after: false,
                }]));
            }
        }
    }
    cases.extend(pairs(points));
    cases
}

/// Two failures each. The second may be of any kind: after the first the points are others.
fn pairs(points: &[Point]) -> Vec<Vec<Rule>> {
    let seed = std::env::var("MALLARD_FAULT_SEED").ok();
    let mut random: u64 = seed.and_then(|seed| seed.parse().ok()).unwrap_or(60);
    let mut below = |n: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % n.max(1)
    };
    let count = if points.len() < 2 { 0 } else { extent().pairs };
    let mut pair = || {
        let first = below(points.len());
        let second = first + 1 + below(points.len().min(40));
        let mut rules = Vec::new();
        for number in [first, second] {
            let point = points[number.min(points.len() - 1)];
            let ways = ways(point.kind);
            let mut rule = point.rule(ways[below(ways.len())]);
            (rule.first, rule.last) = (number as u32, number as u32);
            rules.push(rule);
        }
        rules[1].kinds = u32::MAX >> (32 - KINDS);
        rules[1].after = false;
        rules
    };
    (0..count).map(|_| pair()).collect()
}

/// The most bytes of records that failures may cost for good: where a segment could not grow there
/// is another one, with maps of its own.
const COST_MAX: usize = 1 << 20;

/// Pages of spare slabs that another thread's upkeep may leave when all is freed.
const SPARE_PAGES: usize = 64;

/// Whether pages or records stay in use that nobody holds, compared with a run without failures.
fn lost(scenario: &Scenario, report: &Report, expected: [Holdings; 2]) -> bool {
    let pages = |figures: [Holdings; 2]| figures[1].pages;
    // What a failed move leaves to nobody stays in use. Where one cannot be undone, that happens
    // once in a process and kind of move.
    let given_up = report.lost / PAGE;
    let records = |figures: [Holdings; 2]| figures[1].records;
    let growth = |figures: [Holdings; 2]| figures[1].records.saturating_sub(figures[0].records);
    let slack = SLACK + scenario.slack;
    // A thread that works beside may leave spare slabs.
    let spare = if scenario.slack > 0 { SPARE_PAGES } else { 0 };
    pages(report.later) > pages(expected) + spare + given_up
        || records(report.later) > records(expected) + COST_MAX
        || growth(report.later) > growth(expected) + slack
            && records(report.later) > records(expected) + slack
}

/// Runs one case; fails with what failed in it if it does harm.
fn repeat(scenario: &Scenario, rules: &[Rule], report: &mut Report) {
    run(scenario, &[], report).expect("without failures");
    let later = report.later;
    let ended = run(scenario, rules, report);
    let mut text = String::new();
    for number in 0..report.points.min(report.kinds.len() as u32) {
        let kind = Kind::numbered(report.kinds[number as usize]).map_or(0, Kind::bit);
        let fails = |r: &Rule| (r.first..=r.last).contains(&number) && r.kinds & kind != 0;
        if let Some(place) = report.places[number as usize].filter(|_| rules.iter().any(fails)) {
            text += &format!("{number}: {place}\n");
        }
    }
    let is_lost = ended.is_ok() && lost(scenario, report, later);
    let (after, given_up) = ((report.after, report.later), report.lost);
    assert!(
        ended.is_ok() && !is_lost,
        "{ended:?}: {after:?} instead of {later:?}, {given_up} bytes given up\n{text}"
    );
}

/// Runs a scenario with all its failures.
///
/// # Panics
/// If one of them does harm; the message has the cases.
pub fn sweep(scenario: &Scenario) {
    let report = Report::shared();
    if let Some(rules) = std::env::var("MALLARD_FAULT")
        .ok()
        .and_then(|w| rules_of(&w))
    {
        return repeat(scenario, &rules, report);
    }
    let begun = std::time::Instant::now();
    run(scenario, &[], report).expect("without failures");
    let later = report.later;
    let points: Vec<Point> = (0..report.points.min(report.kinds.len() as u32))
        .filter_map(|number| {
            Some(Point {
                number,
                kind: Kind::numbered(report.kinds[number as usize])?,
                place: report.places[number as usize],
            })
        })
        .collect();
    let mut failures = BTreeSet::new();
    let cases = cases(&points);
    for rules in &cases {
        let mut ended = run(scenario, rules, report);
        if ended.is_ok() && lost(scenario, report, later) {
            ended = Err(format!(
                "lost: {:?} {:?} instead of {later:?}",
                report.after, report.later
            ));
        }
        if let Err(how) = ended {
            let point = points.get(rules[0].first as usize);
            let place = point.map_or_else(String::new, |point| point.place());
            failures.insert(format!("{place} MALLARD_FAULT='{}': {how}", words(rules)));
            if failures.len() >= FAILURES_MAX {
                break;
            }
        }
    }
    let mut by_kind = BTreeMap::new();
    for point in &points {
        *by_kind.entry(format!("{:?}", point.kind)).or_insert(0) += 1;
    }
    std::println!(
        "{}: {} points {by_kind:?}, {} runs in {} ms",
        scenario.name,
        points.len(),
        1 + cases.len(),
        begun.elapsed().as_millis()
    );
    let failures: Vec<_> = failures.into_iter().collect();
    assert!(
        failures.is_empty(),
        "{}:\n{}",
        scenario.name,
        failures.join("\n")
    );
}
