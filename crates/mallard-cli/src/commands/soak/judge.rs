//! The bounds of a soak.

use mallard_report::soak::{Bound, Phase};
use mallard_report::units;

/// RSS per live byte after twice the decay time.
const RSS_RATIO_MAX: f64 = 1.3;
/// What RSS may be above that: the resident bytes at the start, and this for the caches, the stacks
/// of threads and partly used pages.
const RSS_CONSTANT_BYTES: u64 = 16 << 20;
/// Growth in an hour.
const SLOPE_MAX: f64 = 0.001;
/// A shorter run, or one of fewer cycles, says nothing of a slope: what is kept for reuse comes to
/// its largest amount slowly, as sizes are random.
const SLOPE_SECONDS_MIN: f64 = 7200.0;
const SLOPE_CYCLES_MIN: usize = 20;
/// At first, caches and tables grow to what the program needs: that part of a run is left out.
const WARM_SHARE: f64 = 0.25;
/// What metadata may grow by if it grows ever more slowly: arrays of thread caches, which stay as
/// long as their longest use until the cache's end, each up to a bound. These are those of a thread
/// of Mallard and of the eight caches that it keeps for the next threads
/// (`arrays_have_a_bound_and_come_to_it_as_threads_come_and_go` in the core).
const ARRAYS_BYTES: f64 = ((1280 + 8 * 128) << 10) as f64;
/// Growth comes to an end if the slope of the second half is at most this part of the first's.
const SLOWING: f64 = 0.75;
/// So many standard errors below the slope, the bound is broken.
const ERRORS: f64 = 3.0;

/// The phase in which the process has the same blocks in each cycle, but for their sizes.
const REST: &str = "rest";
/// The line before the first block.
const START: &str = "start";

fn bound(name: &str, holds: Option<bool>, text: String) -> Bound {
    Bound {
        name: name.to_owned(),
        holds,
        text,
    }
}

/// Whether the program found each block as it had left it.
pub fn contents(phases: &[Phase], is_sound: bool, why: &str) -> Bound {
    let operations = phases.last().map_or(0, |phase| phase.operations);
    let text = if is_sound {
        let operations = units::count(operations as f64);
        format!("{operations} operations, each block verified")
    } else {
        why.to_owned()
    };
    bound("contents", Some(is_sound), text)
}

/// All other bounds.
pub fn bounds(phases: &[Phase]) -> Vec<Bound> {
    vec![
        live(phases),
        rss(phases),
        // Sizes are random, so live bytes change from rest to rest, and RSS with them.
        slope("RSS slope", phases, |phase| {
            Some(phase.rss as f64 - phase.live as f64)
        }),
        slope("metadata", phases, |phase| Some(phase.metadata? as f64)),
        slope("mappings", phases, |phase| Some(phase.mappings as f64)),
        slope("threads", phases, |phase| Some(phase.threads as f64)),
    ]
}

fn rests(phases: &[Phase]) -> impl Iterator<Item = &Phase> {
    phases.iter().filter(|phase| phase.name == REST)
}

/// What the allocator counts differs from the model by what the C library holds, which is the same
/// after each cycle. A block that was given during a fork may be missing in the allocator's count
/// for as long as it lives; at rest there is none.
fn live(phases: &[Phase]) -> Bound {
    let beyond = |phase: &Phase| Some(phase.counted? as i64 - phase.usable as i64);
    let known: Vec<(f64, i64)> = rests(phases)
        .filter_map(|phase| Some((phase.seconds, beyond(phase)?)))
        .collect();
    let Some(&(_, first)) = known.first() else {
        return bound("live", None, "the allocator does not count it".to_owned());
    };
    match known.iter().find(|(_, beyond)| *beyond != first) {
        Some((at, beyond)) => {
            let more = beyond - first;
            let at = units::elapsed(*at);
            let text = format!("after {at} the allocator counts {more:+} bytes beside the model's");
            bound("live", Some(false), text)
        }
        None => {
            let text = format!(
                "the allocator's count is the model's to the byte, at {}, beside {} bytes of the \
                 C library",
                units::plural(known.len(), "rest"),
                units::count(first as f64)
            );
            bound("live", Some(true), text)
        }
    }
}

fn rss(phases: &[Phase]) -> Bound {
    let start = phases.iter().find(|phase| phase.name == START);
    let start = start.map_or(0, |phase| phase.rss);
    let most =
        |phase: &Phase| phase.live as f64 * RSS_RATIO_MAX + (start + RSS_CONSTANT_BYTES) as f64;
    let after = phases.iter().filter(|phase| phase.name != START);
    let worst = after.max_by(|a, b| (a.rss as f64 / most(a)).total_cmp(&(b.rss as f64 / most(b))));
    let Some(worst) = worst else {
        return bound("RSS", None, "no phase has ended".to_owned());
    };
    let text = format!(
        "at worst {} for {} live, of {} that may be, after {}",
        units::bytes(worst.rss as f64),
        units::bytes(worst.live as f64),
        units::bytes(most(worst)),
        units::elapsed(worst.seconds)
    );
    bound("RSS", Some(worst.rss as f64 <= most(worst)), text)
}

/// The growth of a figure over the rests, as a share in an hour.
fn slope(name: &str, phases: &[Phase], figure: fn(&Phase) -> Option<f64>) -> Bound {
    let end = phases.last().map_or(0.0, |phase| phase.seconds);
    let points: Vec<(f64, f64)> = rests(phases)
        .filter(|phase| phase.seconds >= end * WARM_SHARE)
        .filter_map(|phase| Some((phase.seconds / 3600.0, figure(phase)?)))
        .collect();
    // Of RSS, the excess over the live bytes may be about nothing: the share is of all of it.
    let whole: Vec<f64> = match name {
        "RSS slope" => rests(phases).map(|phase| phase.rss as f64).collect(),
        _ => points.iter().map(|(_, value)| *value).collect(),
    };
    let mean = whole.iter().sum::<f64>() / whole.len().max(1) as f64;
    let (Some((slope, error)), true) = (line(&points), mean > 0.0) else {
        return bound(name, None, "too few figures to tell".to_owned());
    };
    let (slope, error) = (slope / mean, error / mean);
    let shown = format!("{:+.3} ± {:.3} % an hour", slope * 100.0, error * 100.0);
    if end < SLOPE_SECONDS_MIN || points.len() < SLOPE_CYCLES_MIN {
        let text = format!("{shown}, but the run is too short to tell");
        return bound(name, None, text);
    }
    let is_flat = slope - ERRORS * error < SLOPE_MAX;
    if !is_flat && name == "metadata" && ends_soon(&points) {
        let text = format!("{shown}, ever more slowly, as arrays of thread caches grow");
        return bound(name, Some(true), text);
    }
    bound(name, Some(is_flat), shown)
}

/// Whether growth is within [`ARRAYS_BYTES`], and slows down.
fn ends_soon(points: &[(f64, f64)]) -> bool {
    let (first, second) = points.split_at(points.len() / 2);
    let [Some((before, _)), Some((after, _))] = [first, second].map(line) else {
        return false;
    };
    let ends = points.first().zip(points.last());
    let grown = ends.map_or(0.0, |((_, from), (_, to))| to - from);
    grown < ARRAYS_BYTES && after <= before * SLOWING
}

/// The slope of the straight line through points, and its standard error.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    if points.len() < 3 {
        return None;
    }
    let n = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / n;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / n;
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    if spread <= 0.0 {
        return None;
    }
    let products = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y));
    let slope = products.sum::<f64>() / spread;
    let rests = points
        .iter()
        .map(|(x, y)| (y - mean_y - slope * (x - mean_x)).powi(2));
    let error = (rests.sum::<f64>() / (n - 2.0) / spread).sqrt();
    Some((slope, error))
}

/// The answer in a sentence.
pub fn sentence(bounds: &[Bound], phases: &[Phase]) -> String {
    let broken: Vec<&str> = bounds
        .iter()
        .filter(|bound| bound.holds == Some(false))
        .map(|bound| bound.name.as_str())
        .collect();
    let last = phases.last();
    let of = format!(
        "after {} with {} and {} threads",
        units::elapsed(last.map_or(0.0, |phase| phase.seconds)),
        units::plural(last.map_or(0, |phase| phase.forks as usize), "fork"),
        units::grouped(last.map_or(0, |phase| phase.threads_made) as f64)
    );
    match &broken[..] {
        [] => format!("All bounds hold {of}."),
        [one] => format!("A bound is broken {of}: {one}."),
        several => format!("Bounds are broken {of}: {}.", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of so many seconds with a rest each minute.
    fn phases(seconds: u32, change: impl Fn(&mut Phase, f64)) -> Vec<Phase> {
        let start = Phase {
            name: START.to_owned(),
            rss: 2 << 20,
            ..Phase::default()
        };
        let rest = |minute: u32| {
            let mut phase = Phase {
                name: REST.to_owned(),
                seconds: f64::from(minute * 60),
                live: 32 << 20,
                usable: 33 << 20,
                counted: Some((33 << 20) + 5000),
                // Some noise.
                rss: (40 << 20) + u64::from(minute * 7919 % 13) * 4096,
                metadata: Some(600_000),
                mappings: 50,
                threads: 1,
                ..Phase::default()
            };
            change(&mut phase, f64::from(minute) / 60.0);
            phase
        };
        std::iter::once(start)
            .chain((1..=seconds / 60).map(rest))
            .collect()
    }

    fn broken(phases: &[Phase]) -> Vec<String> {
        let bounds = bounds(phases).into_iter();
        let broken = bounds.filter(|bound| bound.holds == Some(false));
        broken.map(|bound| bound.name).collect()
    }

    #[test]
    fn a_steady_process_breaks_no_bound_and_minutes_say_nothing_of_slopes() {
        let hours = phases(7200, |_, _| {});
        assert!(bounds(&hours).iter().all(|bound| bound.holds == Some(true)));
        let minutes = bounds(&phases(300, |_, _| {}));
        let open: Vec<bool> = minutes.iter().map(|bound| bound.holds.is_none()).collect();
        assert_eq!(open, [false, false, true, true, true, true]);
    }

    #[test]
    fn each_kind_of_growth_breaks_its_own_bound() {
        let grows = |change: fn(&mut Phase, f64)| broken(&phases(7200, change));
        assert_eq!(
            grows(|phase, hours| phase.rss += (hours * 2e6) as u64),
            ["RSS slope"]
        );
        assert_eq!(
            grows(|phase, hours| phase.metadata = Some(600_000 + (hours * 30_000.0) as u64)),
            ["metadata"]
        );
        assert_eq!(
            grows(|phase, hours| phase.mappings += (hours * 10.0) as u64),
            ["mappings"]
        );
        assert_eq!(
            grows(|phase, hours| phase.threads += (hours * 10.0) as u64),
            ["threads"]
        );
        assert_eq!(
            grows(|phase, hours| phase.counted = Some((33 << 20) + 5000 + (hours * 100.0) as u64)),
            ["live"]
        );
    }

    #[test]
    fn metadata_may_grow_ever_more_slowly_within_what_thread_caches_have() {
        let grows = |bytes: f64| {
            broken(&phases(7200, |phase, hours| {
                let part = 1.0 - (-2.0 * hours).exp();
                phase.metadata = Some(600_000 + (bytes * part) as u64);
            }))
        };
        assert_eq!(grows(500_000.0), [""; 0]);
        assert_eq!(grows(9_000_000.0), ["metadata"], "too much");
    }

    #[test]
    fn memory_that_does_not_come_back_breaks_its_bound() {
        let holds = phases(300, |phase, _| phase.rss = 59 << 20);
        assert_eq!(broken(&holds), [""; 0]);
        let kept = phases(300, |phase, _| phase.rss = 60 << 20);
        assert_eq!(broken(&kept), ["RSS"]);
    }

    #[test]
    fn an_allocator_that_counts_nothing_is_not_judged_by_its_count() {
        let phases = phases(7200, |phase, _| {
            (phase.counted, phase.metadata) = (None, None);
        });
        let open = |bound: &&Bound| bound.holds.is_none();
        let names: Vec<String> = bounds(&phases)
            .iter()
            .filter(open)
            .map(|bound| bound.name.clone())
            .collect();
        assert_eq!(names, ["live", "metadata"]);
    }
}
