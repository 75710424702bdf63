//! Simulated checks of servers whose truth is known: no false alarm, no planted change missed, and
//! no failure that a busy neighbour causes. The same numbers come in every run.

use std::collections::BTreeMap;

use super::*;
use crate::baseline::rehearsal;

/// The noise of a run of a server, as standard deviations of logarithms.
#[derive(Clone, Copy)]
struct Server {
    qps: f64,
    p99: f64,
    rss: f64,
}

/// Quiet machines. The noise of P99 bounds what a check can find: +8 % is only 2.8 % beyond a limit
/// of +5 %, and at 2 % of noise twenty blocks find that in three of four sessions.
const SERVERS: [Server; 3] = [
    // redis
    Server {
        qps: 0.015,
        p99: 0.012,
        rss: 0.008,
    },
    // nginx
    Server {
        qps: 0.010,
        p99: 0.010,
        rss: 0.004,
    },
    // postgres
    Server {
        qps: 0.012,
        p99: 0.014,
        rss: 0.012,
    },
];

/// What is different from the time of the save.
#[derive(Clone, Copy, Default)]
struct Now {
    /// The change of the subject's P99 and memory, as factors.
    p99: f64,
    rss: f64,
    /// How slow the runner is, for both.
    slow: f64,
    /// The share of runs in which a neighbour halves the speed, each for itself.
    busy: f64,
}

const SAME: Now = Now {
    p99: 1.0,
    rss: 1.0,
    slow: 1.0,
    busy: 0.0,
};

struct Machine {
    draw: u64,
    blocks: usize,
}

impl Machine {
    fn uniform(&mut self) -> f64 {
        self.draw = self.draw.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.draw;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// A run's figures. `common` is what made this block slow for both.
    fn run(
        &mut self,
        server: Server,
        common: f64,
        changed: (f64, f64),
        now: Now,
    ) -> BTreeMap<String, f64> {
        let neighbour = if self.uniform() < now.busy { 2.0 } else { 1.0 };
        let slow = now.slow * neighbour * common.exp();
        let mut noisy = |figure: f64, noise: f64| figure * (noise * self.normal()).exp();
        let figures = [
            ("qps", noisy(80_000.0 / slow, server.qps)),
            ("p99", noisy(2.0 * slow * changed.0, server.p99)),
            ("rss_end", noisy(2e7 * changed.1, server.rss)),
        ];
        figures
            .map(|(name, figure)| (name.to_owned(), figure))
            .into()
    }

    fn block(&mut self, server: Server, now: Now) -> Block {
        self.blocks += 1;
        // The machine warms up and cools down over some blocks.
        let common = 0.1 * (self.blocks as f64 / 7.0).sin() + 0.03 * self.normal();
        Block {
            subject: self.run(server, common, (0.9 * now.p99, 1.1 * now.rss), now),
            anchor: Some(self.run(server, common, (1.0, 1.0), now)),
        }
    }
}

fn metrics() -> Vec<Metric> {
    let metric = |name: &str| Metric {
        name: name.to_owned(),
        unit: String::new(),
        higher_is_better: name == "qps",
    };
    ["qps", "p99", "rss_end"].map(metric).to_vec()
}

fn gates() -> Vec<Gate> {
    ["qps<-3%", "p99>+5%", "rss_end>+10%"]
        .map(|gate| gate.parse().unwrap())
        .to_vec()
}

/// Saves as `save` does, checks as `check` does, and returns the worst verdict.
fn session(seed: u64, server: Server, now: Now) -> Verdict {
    let mut machine = Machine {
        draw: seed.wrapping_mul(0x5851_f42d_4c95_7f2d),
        blocks: 0,
    };
    let (gates, metrics) = (gates(), metrics());
    let then = std::iter::from_fn(|| Some(machine.block(server, SAME)));
    let saved = rehearsal::saved(&gates, then);
    let blocks = std::iter::from_fn(|| Some(machine.block(server, now)));
    worst(&rehearsal::check(&gates, &metrics, &saved, blocks))
}

/// How many of so many sessions on each server end with the verdict.
fn count(sessions: u64, now: Now, verdict: Verdict) -> usize {
    let all = SERVERS.iter().enumerate().flat_map(|(index, server)| {
        (0..sessions).map(move |seed| session(seed * 31 + index as u64 * 1_000_003, *server, now))
    });
    all.filter(|found| *found == verdict).count()
}

#[test]
fn a_check_of_the_same_gives_two_false_alarms_in_150_at_most() {
    let alarms = count(50, SAME, Verdict::Worse);
    assert!(alarms <= 2, "{alarms} false alarms of 150");
    let passed = count(50, SAME, Verdict::Within);
    assert!(passed >= 120, "{passed} of 150 could tell");
}

#[test]
fn planted_changes_are_found_in_95_of_100() {
    let p99 = count(50, Now { p99: 1.08, ..SAME }, Verdict::Worse);
    assert!(p99 >= 143, "+8 % of P99 is found in {p99} of 150");
    let rss = count(50, Now { rss: 1.15, ..SAME }, Verdict::Worse);
    assert!(rss >= 143, "+15 % of RSS is found in {rss} of 150");
}

#[test]
fn a_runner_at_half_the_speed_never_fails_a_check() {
    for busy in [0.0, 0.2, 0.5] {
        let slow = Now {
            slow: if busy == 0.0 { 2.0 } else { 1.0 },
            busy,
            ..SAME
        };
        let failed = count(20, slow, Verdict::Worse);
        assert_eq!(failed, 0, "a neighbour in {busy} of the runs");
    }
}

/// Blocks whose memory never varies, and whose time does.
fn even(time: [f64; 2]) -> Vec<Block> {
    let figures = |number: usize, time: f64| {
        let time = time * (1.0 + 0.3 * (number % 3) as f64);
        [("time".to_owned(), time), ("rss_peak".to_owned(), 7e6)].into()
    };
    let block = |number| Block {
        subject: figures(number, time[0]),
        anchor: Some(figures(number + 1, time[1])),
    };
    (0..20).map(block).collect()
}

/// Checks with so many blocks at most, and returns the decisions and the number of blocks.
fn looked(gates: &[&str], blocks: &[Block]) -> (Vec<Decision>, usize) {
    let gates: Vec<Gate> = gates.iter().map(|gate| gate.parse().unwrap()).collect();
    let metrics = ["time", "rss_peak"].map(|name| Metric {
        name: name.to_owned(),
        unit: String::new(),
        higher_is_better: false,
    });
    let base = |blocks: &[Block], gate: &Gate| blocks::figures(blocks, &gate.metric, true);
    let beside = crate::baseline::reference::beside;
    let mut looks = Looks::new(&gates, &metrics, &beside, &base);
    let mut taken = 0;
    for count in 1..=blocks.len() {
        taken = count;
        if looks.enough(&blocks[..count], count == blocks.len()) {
            break;
        }
    }
    (looks.decisions(), taken)
}

#[test]
fn figures_that_do_not_vary_pass_at_once_and_others_say_how_many_blocks_they_need() {
    let blocks = even([1.0, 1.0]);
    let (decisions, taken) = looked(&["rss_peak>+10%"], &blocks);
    assert_eq!(
        (decisions[0].verdict, taken),
        (Verdict::Within, STEADY_BLOCKS_MIN)
    );
    // A budget that ends after five blocks: the memory is known, the time is not.
    let (decisions, taken) = looked(&["time>+5%", "rss_peak>+10%"], &blocks[..5]);
    assert_eq!(taken, 5);
    assert_eq!(decisions[0].doubt(None), Some(Doubt::TooFew { needed: 8 }));
    assert_eq!(decisions[1].verdict, Verdict::Within);
    assert_eq!(decisions[1].doubt(None), None);
}

#[test]
fn a_check_against_a_small_save_says_that_the_save_is_small() {
    let blocks = even([1.0, 1.0]);
    let gates: Vec<Gate> = vec!["time>+5%".parse().unwrap()];
    let metrics = [Metric {
        name: "time".to_owned(),
        unit: String::new(),
        higher_is_better: false,
    }];
    let decide = |saved: &[Block]| {
        let checked = blocks.iter().cloned().cycle().take(most());
        rehearsal::check(&gates, &metrics, saved, checked).remove(0)
    };
    let doubt = decide(&blocks[..3]).doubt(Some(3));
    assert_eq!(doubt, Some(Doubt::FewSaved { saved: 3 }));
    let doubt = decide(&blocks[..5]).doubt(Some(5));
    assert!(matches!(doubt, Some(Doubt::Wide { .. })), "{doubt:?}");
}
