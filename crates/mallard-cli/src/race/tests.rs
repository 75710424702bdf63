use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

fn entry(allocator: &str, start: Start) -> Entry {
    Entry {
        allocator: allocator.to_owned(),
        start,
        counted: None,
    }
}

fn shell(script: &str) -> Start {
    Start::Run(Box::new(Spec {
        program: "sh".into(),
        arguments: vec!["-c".into(), script.into()],
        ..Spec::default()
    }))
}

fn race<'a>(launcher: &'a Launcher, stop: &'a Stop) -> Race<'a> {
    Race::new(launcher, stop, 1, Runs::Fixed(3), false)
}

fn row(entries: &[Entry]) -> Row<'_> {
    Row {
        what: "test",
        entries,
        peak_bytes: 0,
        weight: 1.0,
        beside: None,
        counting_weight: 0.0,
    }
}

#[test]
fn all_take_turns_and_one_that_fails_drops_out_while_the_others_go_on() {
    let stop = Stop::default();
    let launcher = Launcher::new(stop.clone()).unwrap();
    let entries = [
        entry("a", shell("echo a")),
        entry("bad", shell("echo last words >&2; exit 3")),
        entry("absent", Start::Absent),
        entry("none", Start::Impossible("it is not there".to_owned())),
        entry("b", shell("echo b")),
    ];
    let mut order = Vec::new();
    let cells = race(&launcher, &stop).row(&row(&entries), &mut |allocator, measured| {
        order.push(allocator.to_owned());
        match measured.end {
            End::Code(0) => Ok(figures(measured)),
            _ => Err(failure("it failed".to_owned(), measured)),
        }
    });
    // The warm-up round, then three counted rounds.
    assert_eq!(order.join(" "), "a b bad b a a b a b");
    let runs: Vec<usize> = cells.iter().map(|cell| cell.runs.len()).collect();
    assert_eq!(runs, [3, 0, 0, 0, 3]);
    let bad = cells[1].failure.as_ref().unwrap();
    assert_eq!(bad.exit, Some(Exit::Code(3)));
    assert_eq!(bad.last_lines, ["last words"]);
    assert_eq!(cells[2].failure, None);
    assert_eq!(cells[3].failure.as_ref().unwrap().reason, "it is not there");
}

#[test]
fn a_run_that_fails_is_repeated_and_a_round_that_stays_without_one_counts_for_nobody() {
    let stop = Stop::default();
    let launcher = Launcher::new(stop.clone()).unwrap();
    let entries = ["sound", "flaky", "broken"].map(|name| entry(name, shell("exit 0")));
    let mut race = race(&launcher, &stop);
    race.repeats_failures = true;
    let (mut flaky, mut broken) = (0, 0);
    let cells = race.row(&row(&entries), &mut |allocator, measured| {
        let fails = match allocator {
            // The second try of the warm-up works; in the second counted round none does.
            "flaky" => {
                flaky += 1;
                [1, 4, 5, 6].contains(&flaky)
            }
            "broken" => {
                broken += 1;
                true
            }
            _ => false,
        };
        if fails {
            return Err(failure("it failed".to_owned(), measured));
        }
        Ok(figures(measured))
    });
    assert_eq!((flaky, broken), (7, FAILING_TRIES_MAX));
    let runs: Vec<usize> = cells.iter().map(|cell| cell.runs.len()).collect();
    assert_eq!(runs, [2, 2, 0], "two rounds are pairs");
    let failed: Vec<bool> = cells.iter().map(|cell| cell.failure.is_some()).collect();
    assert_eq!(failed, [false, false, true]);
}

#[test]
fn one_that_fails_in_every_counted_round_failed_although_its_warm_up_worked() {
    let stop = Stop::default();
    let launcher = Launcher::new(stop.clone()).unwrap();
    let entries = ["sound", "flaky"].map(|name| entry(name, shell("exit 0")));
    let mut race = Race {
        runs: Runs::Fixed(1),
        repeats_failures: true,
        ..race(&launcher, &stop)
    };
    let mut flaky = 0;
    let cells = race.row(&row(&entries), &mut |allocator, measured| {
        flaky += usize::from(allocator == "flaky");
        match (allocator, flaky) {
            ("flaky", 2..) => Err(failure(format!("try {flaky}"), measured)),
            _ => Ok(figures(measured)),
        }
    });
    let runs: Vec<usize> = cells.iter().map(|cell| cell.runs.len()).collect();
    assert_eq!(runs, [1, 0]);
    assert_eq!(cells[0].failure, None);
    let failed = cells[1].failure.as_ref().expect("it has no run");
    assert_eq!(failed.reason, format!("try {}", 1 + FAILING_TRIES_MAX));
    assert_eq!(failed.exit, Some(Exit::Code(0)));
}

thread_local! {
    /// The time by the clock of a race by time, which only the scripts' durations move.
    static TIME: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

/// Races scripts by time: those of the name `long` take 0.7 seconds, others no time. Returns
/// the order of the turns, the cells and the share of the progress that is done.
fn by_time(seconds: f64, scripts: &[(&str, &str)]) -> (String, Vec<Cell>, f64) {
    let stop = Stop::default();
    let launcher = Launcher::new(stop.clone()).unwrap();
    let entries = scripts
        .iter()
        .map(|(name, script)| entry(name, shell(script)));
    let entries: Vec<Entry> = entries.collect();
    let mut race = Race {
        warm_up_runs: 0,
        runs: Runs::ByTime {
            least: 3,
            most: 4,
            seconds,
        },
        clock: || TIME.get(),
        ..race(&launcher, &stop)
    };
    race.progress = Progress::new(race.weight(1.0, &entries));
    let mut order = Vec::new();
    // The figure is the number that the script prints, not the time it takes.
    let cells = race.row(&row(&entries), &mut |allocator, measured| {
        order.push(allocator.to_owned());
        if allocator == "long" {
            TIME.set(TIME.get() + Duration::from_millis(700));
        }
        let text = measured.stdout.head(64).unwrap_or_default();
        match text.trim().parse() {
            Ok(seconds) => Ok(Run {
                seconds,
                ..figures(measured)
            }),
            Err(_) => Err(failure("it printed nothing".to_owned(), measured)),
        }
    });
    (order.join(" "), cells, race.progress.share())
}

#[test]
fn by_time_one_that_is_done_is_skipped_while_the_others_go_on() {
    let scripts = [
        ("slow", "echo 2.5"),
        ("a", "echo 1"),
        ("bad", "exit 3"),
        // The third run exhausts its time.
        ("long", "echo 1.5"),
    ];
    let (order, cells, share) = by_time(2.0, &scripts);
    assert_eq!(order, "slow long a bad a slow long a long slow a");
    let runs: Vec<usize> = cells.iter().map(|cell| cell.runs.len()).collect();
    assert_eq!(runs, [3, 4, 0, 3]);
    assert_eq!(share, 1.0);
}

#[test]
fn mallard_never_drops_out() {
    let (order, ..) = by_time(2.0, &[("mallard", "echo 9"), ("a", "echo 1")]);
    assert_eq!(order, "mallard a a mallard mallard a a mallard");
    let far_ahead = [("mallard", "echo 1"), ("a", "echo 9"), ("b", "echo 90")];
    let (order, ..) = by_time(2.0, &far_ahead);
    let of = |name: &str| order.split(' ').filter(|word| *word == name).count();
    assert_eq!(
        ["mallard", "a", "b"].map(of),
        [4, 4, 3],
        "ratios compare with the best of the others"
    );
    let (order, ..) = by_time(2.0, &[("slow", "echo 9"), ("a", "echo 1")]);
    assert_eq!(order, "slow a a slow slow a a");
}

#[test]
fn the_progress_reaches_its_end_whatever_number_of_runs_was_expected() {
    for seconds in [0.0, 2.5, 3.5] {
        let (_, _, share) = by_time(seconds, &[("a", "echo 1"), ("slow", "echo 9")]);
        assert_eq!(share, 1.0, "{seconds}");
    }
}

#[test]
fn a_short_run_with_much_memory_is_hurt_if_memory_goes_back_meanwhile() {
    let [short, long] = [10, 2_000].map(Duration::from_millis);
    let (none, much) = (Duration::MAX, 32 << 20);
    assert!(is_hurt(short, none, LONG_RUN_TIME, much));
    assert!(
        !is_hurt(short, none, LONG_RUN_TIME, 1 << 20),
        "it got no such pages"
    );
    assert!(
        !is_hurt(long, none, LONG_RUN_TIME, much),
        "the next would be too"
    );
    assert!(
        is_hurt(long, short, LONG_RUN_TIME, much),
        "it may have taken longer because of that"
    );
}

/// Runs a process that uses `mib` MiB twice. Returns the numbers of counted and of repeated
/// runs.
fn repeated(mib: usize, reports: fn() -> u64) -> (usize, usize) {
    let stop = Stop::default();
    let launcher = Launcher::new(stop.clone()).unwrap();
    let much = format!("dd if=/dev/zero of=/dev/null bs={mib}M count=1 2>&1");
    let entries = [entry("a", shell(&much))];
    let mut race = Race {
        warm: true,
        warm_up_runs: 0,
        runs: Runs::Fixed(2),
        reports,
        long: Duration::MAX,
        ..race(&launcher, &stop)
    };
    let cells = race.row(&row(&entries), &mut |_, measured| Ok(figures(measured)));
    (cells[0].runs.len(), race.repeated)
}

#[test]
fn a_run_is_repeated_while_memory_goes_back_but_not_for_ever() {
    static REPORTS: AtomicU64 = AtomicU64::new(0);
    fn always() -> u64 {
        REPORTS.fetch_add(1, Ordering::Relaxed)
    }
    assert_eq!(repeated(32, always), (2, 2 * (TRIES_MAX - 1)));
    assert_eq!(repeated(1, always), (2, 0), "it gets no such pages");
    assert_eq!(repeated(32, || 7), (2, 0));
}

#[test]
fn a_stop_keeps_what_was_measured_so_far() {
    let stop = Stop::default();
    let launcher = Launcher::new(stop.clone()).unwrap();
    let entries = [entry("a", shell("exit 0")), entry("b", shell("exit 0"))];
    let mut seen = 0;
    let cells = race(&launcher, &stop).row(&row(&entries), &mut |_, measured| {
        seen += 1;
        if seen == 4 {
            stop.request();
        }
        Ok(figures(measured))
    });
    let runs: Vec<usize> = cells.iter().map(|cell| cell.runs.len()).collect();
    assert_eq!(runs, [1, 1]);
    assert!(cells.iter().all(|cell| cell.failure.is_none()));
}
