//! How closely a replay follows the recording, and the program itself.

use mallard_trace::plan::Plan;

/// The live bytes that a replay has seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    pub peak: u64,
    pub curve: Vec<u64>,
}

impl Seen {
    /// Reads what the replay prints.
    pub fn read(text: &str) -> Option<Seen> {
        let number = |rest: &str| rest.trim().parse::<i64>().ok().map(|n| n.max(0) as u64);
        let lines = || text.lines();
        let peak = lines().find_map(|line| line.strip_prefix("replay_peak_live "))?;
        let curve = lines().filter_map(|line| line.strip_prefix("replay_curve "));
        Some(Seen {
            peak: number(peak)?,
            curve: curve.map(number).collect::<Option<_>>()?,
        })
    }
}

/// The largest differences of all runs, as shares of the recorded peak.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Fidelity {
    pub curve: f64,
    pub peak: f64,
    pub runs: usize,
}

impl Fidelity {
    pub fn add(&mut self, seen: &Seen, plan: &Plan) {
        let most = plan.peak_bytes.max(1) as f64;
        let apart = |one: u64, other: u64| one.abs_diff(other) as f64 / most;
        let curve = seen.curve.iter().zip(&plan.curve);
        let curve = curve.map(|(seen, planned)| apart(*seen, *planned));
        self.curve = curve.fold(self.curve, f64::max);
        self.peak = self.peak.max(apart(seen.peak, plan.peak_bytes));
        self.runs += 1;
    }

    /// A sentence.
    pub fn sentence(&self, plan: &Plan) -> String {
        if self.runs == 0 {
            return "Fidelity: unknown, because no run succeeded.".to_owned();
        }
        format!(
            "Fidelity: in all {} runs, live bytes within {:.1} % of the recording's peak at every \
             hundredth of the time, and the peak within {:.1} %; {} {}, {} blocks freed by another \
             thread, as recorded.",
            self.runs,
            self.curve * 100.0,
            self.peak * 100.0,
            plan.threads,
            if plan.threads == 1 {
                "thread"
            } else {
                "threads"
            },
            plan.freed_elsewhere
        )
    }
}

/// An allocator's figures in the replay and in the program itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    pub allocator: String,
    pub replayed_rss: f64,
    pub own_rss: f64,
    pub replayed_cpu: f64,
    pub own_cpu: f64,
}

/// Compares the replay with the program itself: ratios of peak memory to the first allocator's, and
/// the order of CPU time.
///
/// A program has memory that malloc does not hold: its code, mapped files, heaps of its own. What
/// it needs on the first allocator beyond the replay is taken for that, and added to every replay.
pub fn checked(pairs: &[Pair]) -> String {
    let [first, rest @ ..] = pairs else {
        return "Against the program itself: not compared, no allocator ran both.".to_owned();
    };
    if rest.is_empty() {
        return "Against the program itself: not compared, one allocator alone has no ratios."
            .to_owned();
    }
    let other = (first.own_rss - first.replayed_rss).max(0.0);
    let ratios = |pair: &Pair| {
        let replayed = (pair.replayed_rss + other) / (first.replayed_rss + other).max(1.0);
        (replayed, pair.own_rss / first.own_rss.max(1.0))
    };
    let apart = |pair: &Pair| {
        let (replayed, own) = ratios(pair);
        (replayed / own - 1.0).abs() * 100.0
    };
    let worst = rest.iter().map(apart).fold(0.0, f64::max);
    let each: Vec<String> = rest
        .iter()
        .map(|pair| {
            let (replayed, own) = ratios(pair);
            format!(
                "{} {replayed:.2} in the replay and {own:.2} in the program",
                pair.allocator
            )
        })
        .collect();
    let order = spearman(
        &pairs
            .iter()
            .map(|pair| pair.replayed_cpu)
            .collect::<Vec<_>>(),
        &pairs.iter().map(|pair| pair.own_cpu).collect::<Vec<_>>(),
    );
    format!(
        "Against the program itself on {} allocators: ratios of peak RSS to {} within {worst:.0} % \
         ({}), with the {} added that the program has beside malloc's memory; order of CPU time: \
         rank correlation {order:.2}.",
        pairs.len(),
        first.allocator,
        each.join(", "),
        mallard_report::units::bytes(other)
    )
}

/// Spearman's rank correlation.
fn spearman(one: &[f64], other: &[f64]) -> f64 {
    let ranks = |values: &[f64]| -> Vec<f64> {
        let below = |value: f64| values.iter().filter(|v| **v < value).count();
        let equal = |value: f64| values.iter().filter(|v| **v == value).count();
        let rank = |value: &f64| below(*value) as f64 + (equal(*value) as f64 + 1.0) / 2.0;
        values.iter().map(rank).collect()
    };
    let (a, b) = (ranks(one), ranks(other));
    let mean = (a.len() as f64 + 1.0) / 2.0;
    let product = |x: &[f64], y: &[f64]| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum()
    };
    let spread = (product(&a, &a) * product(&b, &b)).sqrt();
    if spread == 0.0 {
        return 0.0;
    }
    product(&a, &b) / spread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_shares_of_the_peak() {
        let plan = Plan {
            peak_bytes: 1000,
            curve: vec![100, 500, 1000],
            threads: 2,
            freed_elsewhere: 7,
            ..Plan::default()
        };
        let text = "replay_peak_live 990\nreplay_curve 100\nreplay_curve 520\nreplay_curve 1000\n";
        let mut fidelity = Fidelity::default();
        assert!(fidelity.sentence(&plan).contains("unknown"));
        fidelity.add(&Seen::read(text).unwrap(), &plan);
        let text = fidelity.sentence(&plan);
        assert!(
            text.contains("within 2.0 %") && text.contains("within 1.0 %"),
            "{text}"
        );
        assert!(text.contains("2 threads, 7 blocks"), "{text}");
        assert_eq!(Seen::read("seconds 1\n"), None);
    }

    #[test]
    fn the_order_of_allocators_is_compared_by_ranks() {
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[10.0, 20.0, 90.0]), 1.0);
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[9.0, 8.0, 7.0]), -1.0);
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), 0.0);
    }

    #[test]
    fn memory_is_compared_by_ratios_to_the_first() {
        let pair = |allocator: &str, replayed_rss, own_rss| Pair {
            allocator: allocator.to_owned(),
            replayed_rss,
            own_rss,
            replayed_cpu: replayed_rss,
            own_cpu: own_rss,
        };
        let text = checked(&[pair("glibc", 200.0, 200.0), pair("mallard", 220.0, 200.0)]);
        assert!(text.contains("within 10 %"), "{text}");
        // The program has 100 bytes of its own on either.
        let text = checked(&[pair("glibc", 100.0, 200.0), pair("mallard", 150.0, 250.0)]);
        assert!(
            text.contains("within 0 %") && text.contains("100 B added"),
            "{text}"
        );
        assert!(checked(&[]).contains("not compared"));
    }
}
