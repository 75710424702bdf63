//! The promises of the intervals, tried on thousands of simulated sessions.

use mallard_judge::statistics::{ALPHA, compare, holm};

const SESSIONS: usize = 2000;

/// A generator with a fixed seed, so that every run of the tests is the same (xorshift64*).
struct Random(u64);

impl Random {
    /// Uniform in [0, 1).
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (one, other) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
    }
}

/// The time of one run, given the time that the work takes and the block.
type Noise = fn(&mut Random, f64, usize) -> f64;

const NOISES: [(&str, Noise); 4] = [
    ("normal", |random, time, _| {
        time * (1.0 + 0.03 * random.normal())
    }),
    ("lognormal", |random, time, _| {
        time * (0.1 * random.normal()).exp()
    }),
    // A virtual machine whose balloon takes pages in some runs.
    ("bimodal", |random, time, _| {
        let hit = if random.uniform() < 0.3 { 1.6 } else { 1.0 };
        time * hit * (1.0 + 0.02 * random.normal())
    }),
    ("drifting", |random, time, block| {
        let drift = 1.0 + 0.2 * (block as f64 / 3.0).sin() + 0.03 * block as f64;
        time * drift * (1.0 + 0.03 * random.normal())
    }),
];

fn session(random: &mut Random, noise: Noise, blocks: usize, ratio: f64) -> Vec<(f64, f64)> {
    (0..blocks)
        .map(|block| (noise(random, ratio, block), noise(random, 1.0, block)))
        .collect()
}

/// The exact confidence jumps with the number of blocks; these have one near 95 %.
const BLOCKS: [usize; 3] = [10, 14, 20];

#[test]
fn intervals_hold_the_true_ratio_in_about_95_of_100_sessions() {
    let mut random = Random(0x5EED);
    for (name, noise) in NOISES {
        for blocks in BLOCKS {
            let mut held = 0;
            for _ in 0..SESSIONS {
                let found = compare(session(&mut random, noise, blocks, 1.07)).unwrap();
                let interval = found.interval.unwrap();
                held += usize::from((interval.low..=interval.high).contains(&1.07));
            }
            let share = held as f64 / SESSIONS as f64;
            assert!((0.93..=0.97).contains(&share), "{name}, {blocks}: {share}");
        }
    }
}

#[test]
fn six_blocks_keep_their_promise_of_at_least_95_percent() {
    let mut random = Random(0xB10C);
    for (name, noise) in NOISES {
        let mut held = 0;
        for _ in 0..SESSIONS {
            let interval = compare(session(&mut random, noise, 6, 0.8))
                .unwrap()
                .interval;
            let interval = interval.unwrap();
            held += usize::from((interval.low..=interval.high).contains(&0.8));
        }
        let share = held as f64 / SESSIONS as f64;
        // The true share is 31 of 32.
        assert!((0.955..=0.98).contains(&share), "{name}: {share}");
    }
}

#[test]
fn the_same_program_against_itself_differs_in_at_most_5_of_100_sessions() {
    let mut random = Random(0xAA);
    for (name, noise) in NOISES {
        for blocks in [6, 8, 14] {
            let alarms = (0..SESSIONS)
                .filter(|_| compare(session(&mut random, noise, blocks, 1.0)).unwrap().p <= ALPHA)
                .count();
            let share = alarms as f64 / SESSIONS as f64;
            // 5 % and what 2,000 sessions can differ from it by chance (three deviations).
            assert!(share <= 0.0647, "{name}, {blocks}: {share}");
        }
    }
}

#[test]
fn several_rivals_together_raise_at_most_5_of_100_alarms() {
    let mut random = Random(0x601);
    let noise = NOISES[1].1;
    let alarms = (0..SESSIONS)
        .filter(|_| {
            let control: Vec<f64> = (0..10)
                .map(|block| noise(&mut random, 1.0, block))
                .collect();
            let p_values: Vec<f64> = (0..6)
                .map(|_| {
                    let rival = control.iter().enumerate();
                    let pairs = rival.map(|(block, c)| (noise(&mut random, 1.0, block), *c));
                    compare(pairs).unwrap().p
                })
                .collect();
            holm(&p_values).iter().any(|p| *p <= ALPHA)
        })
        .count();
    let share = alarms as f64 / SESSIONS as f64;
    assert!(share <= 0.0647, "{share}");
}

#[test]
fn the_same_figures_give_the_same_bits() {
    let blocks = session(&mut Random(7), NOISES[2].1, 9, 1.2);
    let bits = || {
        let found = compare(blocks.iter().copied()).unwrap();
        let interval = found.interval.unwrap();
        [found.ratio, interval.low, interval.high, found.p].map(f64::to_bits)
    };
    assert_eq!(bits(), bits());
    let mut mixed = blocks.clone();
    mixed.reverse();
    let other = compare(mixed).unwrap();
    assert_eq!(
        other.ratio.to_bits(),
        bits()[0],
        "the order does not matter"
    );
}
