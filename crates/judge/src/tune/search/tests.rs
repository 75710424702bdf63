//! The search on made-up surfaces with noise, where the truth is known.

use super::*;
use crate::figures::Metric;
use crate::tune::goal::Objective;

/// A machine on which each option changes the time by a known factor.
struct Surface {
    effects: BTreeMap<(String, String), f64>,
    allocators: BTreeMap<String, f64>,
    broken: Option<(String, String)>,
    /// What fails once the confirmation has begun.
    dies: Option<Dies>,
    confirming: bool,
    noise: f64,
    draw: u64,
    runs: usize,
    /// Stops after so many runs.
    stop_after: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Dies {
    Control,
    String,
}

impl Surface {
    fn uniform(&mut self) -> f64 {
        self.draw = self
            .draw
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.draw >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// The truth about a setting, as a logarithm.
    fn truth(&self, setting: &Setting) -> f64 {
        let own = setting
            .options
            .iter()
            .filter_map(|(k, v)| self.effects.get(&(k.clone(), v.clone())));
        let allocator = self
            .allocators
            .get(&setting.allocator)
            .copied()
            .unwrap_or(0.0);
        allocator + own.sum::<f64>()
    }
}

impl Lab for Surface {
    fn run(&mut self, setting: &Setting) -> Option<Result<RunFigures, String>> {
        if self.runs >= self.stop_after {
            return None;
        }
        self.runs += 1;
        if let Some((key, value)) = &self.broken
            && setting.options.get(key) == Some(value)
        {
            return Some(Err("it crashed".to_owned()));
        }
        let is_string = !setting.options.is_empty();
        if self.confirming
            && self
                .dies
                .is_some_and(|dies| (dies == Dies::String) == is_string)
        {
            return Some(Err("it died".to_owned()));
        }
        // The machine drifts by a tenth over some hundred runs.
        let drift = 0.1 * (self.runs as f64 / 60.0).sin();
        let time = (self.truth(setting) + drift + self.noise * self.normal()).exp();
        let memory = 1e6 * (1.0 + 0.5 * self.truth(setting).abs());
        Some(Ok(vec![
            ("time".to_owned(), time),
            ("rss_peak".to_owned(), memory),
        ]))
    }

    fn spent(&self) -> f64 {
        self.runs as f64
    }

    fn phase(&mut self, phase: Phase) {
        self.confirming = phase == Phase::Confirmation;
    }
}

fn knobs() -> Vec<Knob> {
    let knob = |key: &str, count: usize| Knob {
        key: key.to_owned(),
        values: (0..count).map(|value| format!("v{value}")).collect(),
        is_number: false,
    };
    vec![
        knob("a", 5),
        knob("b", 2),
        knob("c", 5),
        knob("d", 4),
        knob("e", 3),
    ]
}

/// All settings of the grid, each once.
const GRID: usize = 5 * 2 * 5 * 4 * 3;

fn goal() -> Goal {
    let metric = |name: &str, unit: &str| Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        higher_is_better: false,
    };
    Goal::new(
        Objective::Throughput,
        &[],
        &[metric("time", "s"), metric("rss_peak", "bytes")],
    )
    .unwrap()
}

/// A surface whose values change the time by up to `most`, in either direction.
fn surface(seed: u64, most: f64) -> Surface {
    let mut surface = Surface {
        effects: BTreeMap::new(),
        allocators: BTreeMap::new(),
        broken: None,
        dies: None,
        confirming: false,
        noise: 0.05,
        draw: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        runs: 0,
        stop_after: usize::MAX,
    };
    for knob in knobs() {
        for value in &knob.values[1..] {
            // Most options do little, and a few do much.
            let size = surface.uniform().powi(2) * most;
            let sign = if surface.uniform() < 0.5 { -1.0 } else { 1.0 };
            surface
                .effects
                .insert((knob.key.clone(), value.clone()), sign * size);
        }
    }
    surface
}

/// The lowest that the options can do.
fn optimum(surface: &Surface) -> f64 {
    let least = |knob: &Knob| {
        let effects = knob.values.iter().map(|value| {
            surface
                .effects
                .get(&(knob.key.clone(), value.clone()))
                .copied()
                .unwrap_or(0.0)
        });
        effects.fold(f64::INFINITY, f64::min)
    };
    knobs().iter().map(least).sum()
}

const SESSIONS: u64 = 200;
/// Two fifths of the grid.
const BUDGET: f64 = GRID as f64 * 0.4;

#[test]
fn the_optimum_is_nearly_reached_in_nine_of_ten_sessions() {
    let bases = [("x".to_owned(), knobs())];
    let (mut near, mut most_runs) = (0, 0);
    for seed in 0..SESSIONS {
        let mut surface = surface(seed, 0.25);
        let outcome = search(&mut surface, &goal(), BUDGET, &bases);
        let found = outcome
            .recommended
            .unwrap_or_else(|| Setting::default_of("x"));
        let regret = surface.truth(&found) - optimum(&surface);
        near += u32::from(regret <= 0.02);
        most_runs = most_runs.max(outcome.runs);
    }
    assert!(near >= 180, "within 2 % in {near} of {SESSIONS} sessions");
    assert!(
        most_runs as f64 <= BUDGET * 1.1,
        "{most_runs} runs of {BUDGET}"
    );
}

#[test]
fn nothing_is_recommended_where_there_is_nothing() {
    let bases = [("x".to_owned(), knobs())];
    let mut kept = 0;
    for seed in 0..SESSIONS {
        let mut surface = surface(1000 + seed, 0.0);
        let outcome = search(&mut surface, &goal(), BUDGET, &bases);
        kept += u32::from(outcome.recommended.is_none());
        assert!(
            !outcome.unconfirmed && outcome.smallest < 0.06,
            "{}",
            outcome.smallest
        );
    }
    assert!(
        kept >= 190,
        "nothing recommended in {kept} of {SESSIONS} sessions"
    );
}

#[test]
fn the_better_allocator_is_found_and_a_crash_drops_its_value_alone() {
    let bases = [
        ("slow".to_owned(), Vec::new()),
        ("fast".to_owned(), knobs()),
    ];
    let mut surface = surface(7, 0.0);
    surface.allocators = [("slow".to_owned(), 0.2)].into();
    surface
        .effects
        .insert(("a".to_owned(), "v3".to_owned()), -0.1);
    surface.broken = Some(("c".to_owned(), "v2".to_owned()));
    let outcome = search(&mut surface, &goal(), 300.0, &bases);
    let found = outcome.recommended.unwrap();
    assert_eq!(
        (found.allocator.as_str(), found.options["a"].as_str()),
        ("fast", "v3")
    );
    assert_eq!(outcome.failures.len(), 1, "{:?}", outcome.failures);
    assert_eq!(outcome.failures[0].0.options["c"], "v2");
}

#[test]
fn a_limit_on_memory_refuses_what_breaks_it() {
    let bases = [("x".to_owned(), knobs())];
    let mut surface = surface(7, 0.0);
    surface
        .effects
        .insert(("a".to_owned(), "v3".to_owned()), -0.3);
    let mut goal = goal();
    assert!(
        search(&mut surface, &goal, BUDGET, &bases)
            .recommended
            .is_some()
    );
    // It takes 15 % more memory.
    goal.within = vec![("rss_peak".to_owned(), 1.05f64.ln())];
    surface.runs = 0;
    let outcome = search(&mut surface, &goal, BUDGET, &bases);
    let broken = outcome
        .recommended
        .is_some_and(|found| found.options.get("a").is_some_and(|v| v == "v3"));
    assert!(!broken);
}

#[test]
fn a_stop_leaves_what_was_found_unconfirmed() {
    let bases = [("x".to_owned(), knobs())];
    let mut surface = surface(3, 0.2);
    surface.stop_after = 60;
    let outcome = search(&mut surface, &goal(), BUDGET, &bases);
    assert!(outcome.unconfirmed && outcome.recommended.is_none());
    assert_eq!(outcome.runs, 61);
    assert!(!outcome.blocks.is_empty());
}

/// A surface on which one value is far better than the rest.
fn clear() -> Surface {
    let mut surface = surface(7, 0.0);
    let value = ("a".to_owned(), "v3".to_owned());
    surface.effects.insert(value, -0.3);
    surface
}

#[test]
fn what_dies_in_its_confirmation_is_not_recommended() {
    let bases = [("x".to_owned(), knobs())];
    for (dies, other) in [
        (Dies::String, None),
        (Dies::Control, Some(Setting::default_of("x"))),
    ] {
        let mut surface = clear();
        surface.dies = Some(dies);
        let outcome = search(&mut surface, &goal(), BUDGET, &bases);
        assert_eq!(outcome.recommended, None, "{dies:?}");
        assert!(outcome.cannot_tell());
        let unproven = outcome.unproven.expect("nothing was confirmed");
        assert_eq!(unproven.found.options["a"], "v3");
        assert_eq!(
            (unproven.other, unproven.reason.as_str()),
            (other, "it died")
        );
    }
    assert!(
        search(&mut clear(), &goal(), BUDGET, &bases)
            .unproven
            .is_none()
    );
}

#[test]
fn one_bad_run_of_the_control_does_not_end_the_comparison() {
    struct Flaky(Surface);
    impl Lab for Flaky {
        fn run(&mut self, setting: &Setting) -> Option<Result<RunFigures, String>> {
            let ran = self.0.run(setting);
            match self.0.runs {
                2 => Some(Err("it stumbled".to_owned())),
                _ => ran,
            }
        }
        fn spent(&self) -> f64 {
            self.0.spent()
        }
        fn phase(&mut self, phase: Phase) {
            self.0.phase(phase);
        }
    }
    let bases = [("x".to_owned(), knobs())];
    let outcome = search(&mut Flaky(clear()), &goal(), BUDGET, &bases);
    assert_eq!(outcome.failures.len(), 1);
    assert!(!outcome.cannot_tell());
    let found = outcome.recommended.expect("it is far better");
    assert_eq!(found.options["a"], "v3");
}

#[test]
fn a_small_budget_compares_the_defaults_and_says_what_it_did_not_try() {
    let bases = [
        ("slow".to_owned(), Vec::new()),
        ("fast".to_owned(), knobs()),
    ];
    let mut small = surface(7, 0.0);
    small.allocators = [("slow".to_owned(), 0.4)].into();
    let budget = 20.0;
    let outcome = defaults(&mut small, &goal(), budget, &bases);
    assert_eq!(outcome.recommended, Some(Setting::default_of("fast")));
    assert_eq!(outcome.untried, ["a", "b", "c", "d", "e"]);
    assert!(
        (DEFAULTS_RUNS_MIN..=22).contains(&outcome.runs),
        "{}",
        outcome.runs
    );
    let mut same = surface(7, 0.0);
    let outcome = defaults(&mut same, &goal(), budget, &bases);
    assert!(
        outcome.recommended.is_none() && !outcome.cannot_tell(),
        "{outcome:?}"
    );
    // A search whose budget ends early names the options that it did not reach.
    let mut early = surface(7, 0.0);
    let outcome = search(&mut early, &goal(), 55.0, &bases[1..]);
    assert!(
        !outcome.untried.is_empty() && outcome.drawn == 0,
        "{outcome:?}"
    );
    // It tried nothing but the control, so it cannot say that nothing is better.
    assert!(outcome.tried_nothing() && outcome.cannot_tell());
    // One that ends later has no runs left for all options together.
    let outcome = search(&mut surface(7, 0.0), &goal(), 100.0, &bases[1..]);
    assert!(outcome.untried.is_empty() && outcome.drawn == 0 && outcome.race_cut);
    assert!(!outcome.tried_nothing() && !outcome.cannot_tell());
}

#[test]
fn a_small_budget_names_the_allocators_that_it_leaves_out() {
    let none = |name: &str| (name.to_owned(), Vec::new());
    let bases = [none("x"), ("y".to_owned(), knobs()), none("z"), none("w")];
    let mut small = surface(7, 0.0);
    let outcome = defaults(&mut small, &goal(), 20.0, &bases);
    assert_eq!(outcome.untried, ["z", "w", "a", "b", "c", "d", "e"]);
}

#[test]
fn a_stop_keeps_what_the_race_had_drawn_and_is_no_end_of_the_budget() {
    let bases = [("x".to_owned(), knobs())];
    let mut stopped = surface(3, 0.2);
    stopped.stop_after = 60;
    let outcome = search(&mut stopped, &goal(), BUDGET, &bases);
    assert!(outcome.drawn > 0 && !outcome.race_cut, "{outcome:?}");
}

#[test]
fn a_budget_for_all_runs_is_enough_for_all() {
    let bases = [("x".to_owned(), knobs())];
    let budget = runs_of_all(&bases) as f64;
    let outcome = search(&mut surface(7, 0.25), &goal(), budget, &bases);
    assert!(
        outcome.untried.is_empty() && outcome.drawn > 0,
        "{outcome:?}"
    );
}

#[test]
fn a_control_that_falls_into_two_groups_is_told() {
    struct Modes(Surface);
    impl Lab for Modes {
        fn run(&mut self, setting: &Setting) -> Option<Result<RunFigures, String>> {
            let slow = if self.0.runs.is_multiple_of(3) {
                1.5
            } else {
                1.0
            };
            let figures = self.0.run(setting)?.map(|mut figures| {
                figures[0].1 *= slow;
                figures
            });
            Some(figures)
        }

        fn spent(&self) -> f64 {
            self.0.spent()
        }

        fn phase(&mut self, phase: Phase) {
            self.0.phase(phase);
        }
    }
    let bases = [
        ("slow".to_owned(), Vec::new()),
        ("fast".to_owned(), knobs()),
    ];
    let mut quiet = surface(7, 0.0);
    quiet.noise = 0.002;
    let outcome = defaults(&mut Modes(quiet), &goal(), 40.0, &bases);
    assert!(
        matches!(outcome.shape, Some(Shape::TwoGroups { .. })),
        "{outcome:?}"
    );
}
