//! A session as the lab would record it, for the tests of every output: nine allocators on five
//! experiments, with a failed cell, an unavailable allocator, experiments with and without a
//! numeric axis, and names that break an output without escaping.
#![allow(dead_code)] // each test binary uses its part

use mallard_report::model::*;

pub const MIB: u64 = 1024 * 1024;

/// The available allocators, with their time and peak RSS relative to glibc's on a growing
/// workload.
const ALLOCATORS: [(&str, &str, f64, f64); 9] = [
    ("mallard", "0.1.0", 0.05, 0.08),
    ("glibc", "2.36", 1.0, 1.0),
    ("jemalloc", "5.3.0", 0.10, 0.07),
    ("jemalloc-dev", "5.3.0-220-g81034ce1", 0.08, 0.05),
    ("tcmalloc", "2026-05-01", 0.10, 0.89),
    ("gperftools", "2.10", 0.55, 1.09),
    ("mimalloc", "3.4.3", 0.045, 0.92),
    ("snmalloc", "0.7.5", 0.35, 1.19),
    ("rpmalloc", "2.0.1", 0.40, 1.07),
];

/// Text that every output must reproduce exactly.
pub const HOSTILE: &str = "<script>console.error(\"escaped?\")</script> & 'x', \"y\"";

pub fn allocator(name: &str, version: &str) -> AllocatorInfo {
    let preloaded = name != "glibc";
    AllocatorInfo {
        name: name.to_owned(),
        version: version.to_owned(),
        file: preloaded.then(|| format!("/usr/lib/mallard/peers/lib{name}.so")),
        environment: if name == "tcmalloc" {
            vec![(
                "GLIBC_TUNABLES".to_owned(),
                "glibc.pthread.rseq=0".to_owned(),
            )]
        } else {
            Vec::new()
        },
        sha256: None,
        unavailable: None,
    }
}

/// Runs around a median, always in the same proportions.
pub fn runs(seconds: f64, rss: u64, spread: f64) -> Vec<Run> {
    let around = [0.3, -0.6, 0.0, 1.0, -0.2];
    let run = |offset: &f64| Run {
        seconds: seconds * (1.0 + offset * spread),
        ops_per_second: Some(20e6 / seconds),
        wall_seconds: seconds * (1.0 + offset * spread) + 0.004,
        user_seconds: seconds * 1.7,
        system_seconds: seconds * 0.1,
        peak_rss_bytes: rss + (offset * 0.01 * rss as f64) as u64,
        minor_faults: rss / 4096,
        major_faults: 0,
        exit: Exit::Code(0),
        ..Run::default()
    };
    around.iter().map(run).collect()
}

pub fn cell(name: &str, seconds: f64, rss: u64) -> Cell {
    Cell {
        allocator: name.to_owned(),
        // Each cell has its own spread, which is the same in every run of the tests.
        runs: runs(seconds, rss, 0.01 + 0.09 * (seconds * 997.0).sin().abs()),
        failure: None,
        attempts: None,
    }
}

pub fn empty(name: &str) -> Cell {
    Cell {
        allocator: name.to_owned(),
        runs: Vec::new(),
        failure: None,
        attempts: None,
    }
}

pub fn failed(name: &str, reason: &str, exit: Exit, last_lines: &[&str]) -> Cell {
    let last_lines = last_lines.iter().map(|l| l.to_string()).collect();
    let failure = Failure {
        reason: reason.to_owned(),
        exit: Some(exit),
        last_lines,
    };
    Cell {
        allocator: name.to_owned(),
        runs: Vec::new(),
        failure: Some(failure),
        attempts: None,
    }
}

fn experiment(name: &str, title: &str, claim: &str, axis: &str, rows: Vec<Row>) -> Experiment {
    Experiment {
        name: name.to_owned(),
        title: title.to_owned(),
        description: "Each thread: 10,000,000 × { malloc 128 bytes, write the first byte, free }."
            .to_owned(),
        claim: claim.to_owned(),
        parameters: vec![
            ("size".to_owned(), "128".to_owned()),
            ("pinned to".to_owned(), "0-1".to_owned()),
        ],
        axis: axis.to_owned(),
        rows,
    }
}

fn row(label: &str, x: Option<f64>, threads: u32, cells: Vec<Cell>) -> Row {
    Row {
        x,
        threads,
        ..Row::plain(label.to_owned(), cells)
    }
}

fn pairs() -> Experiment {
    let factor = [0.50, 1.0, 0.66, 0.69, 1.05, 0.60, 0.64, 0.58, 0.62];
    let rows = [1u32, 4, 16, 32, 64].iter().map(|&threads| {
        let seconds = 0.045 * f64::from(threads.max(2));
        let cells = ALLOCATORS.iter().zip(factor).map(|((name, ..), factor)| {
            if *name == "rpmalloc" && threads == 32 {
                return failed(
                    name,
                    "killed by a signal",
                    Exit::Signal(11),
                    &["rpmalloc: heap corrupt", HOSTILE],
                );
            }
            let wobble = 1.0 + 0.06 * (f64::from(threads) * factor * 7.0).sin();
            cell(
                name,
                seconds * factor * wobble,
                3 * MIB + u64::from(threads) * (factor * 90_000.0) as u64,
            )
        });
        row(
            &threads.to_string(),
            Some(f64::from(threads)),
            threads,
            cells.collect(),
        )
    });
    let claim = "jemalloc 2.0× glibc at 1 thread, 1.8× at 32, 1.7× at 64";
    experiment(
        "pairs",
        "Pairs of malloc and free",
        claim,
        "threads",
        rows.collect(),
    )
}

fn growing(threads: u32, glibc_seconds: f64, glibc_rss: u64) -> Vec<Cell> {
    let scaled = |(name, _, time, rss): &(&str, &str, f64, f64)| {
        cell(
            name,
            glibc_seconds * time,
            (glibc_rss as f64 * rss) as u64 + u64::from(threads) * 4096,
        )
    };
    ALLOCATORS.iter().map(scaled).collect()
}

fn batch() -> Experiment {
    let rows = vec![row("32", Some(32.0), 32, growing(32, 4.1, 1840 * MIB))];
    experiment(
        "batch",
        "Many small blocks, then all freed",
        "jemalloc 4.4× glibc at 32 threads",
        "threads",
        rows,
    )
}

/// Only Mallard and jemalloc have the setting; all have the default.
fn arenas() -> Experiment {
    let mut rows = vec![row("default", None, 16, growing(16, 1.2, 287 * MIB))];
    for (arenas, seconds) in [
        (1u32, 2.83),
        (4, 1.2),
        (8, 0.95),
        (16, 0.81),
        (32, 0.85),
        (64, 0.89),
    ] {
        let cells = ALLOCATORS.iter().map(|(name, ..)| match *name {
            "mallard" => cell(name, seconds * 0.3, 170 * MIB + u64::from(arenas) * MIB),
            "jemalloc" | "jemalloc-dev" => cell(
                name,
                seconds * if *name == "jemalloc" { 0.7 } else { 0.65 },
                295 * MIB,
            ),
            _ => empty(name),
        });
        rows.push(row(
            &arenas.to_string(),
            Some(f64::from(arenas)),
            16,
            cells.collect(),
        ));
    }
    experiment(
        "arenas",
        "The number of arenas",
        "1 arena 2.83 s … 16 arenas 0.81 s",
        "narenas",
        rows,
    )
}

fn tune() -> Experiment {
    let mut rows = vec![row("default", None, 16, growing(16, 2.2, 1193 * MIB))];
    let settings = [
        "dirty_decay_ms:0",
        "dirty_decay_ms:1000",
        "dirty_decay_ms:-1",
        "background_thread:true",
        HOSTILE,
    ];
    for (i, setting) in settings.iter().enumerate() {
        let cells = ALLOCATORS.iter().map(|(name, ..)| match *name {
            "mallard" => cell(name, 0.2 + 0.03 * i as f64, 879 * MIB),
            "jemalloc" => cell(name, 2.0 - 0.2 * i as f64, 1500 * MIB),
            _ => empty(name),
        });
        rows.push(row(setting, None, 16, cells.collect()));
    }
    experiment(
        "tune",
        "Settings",
        "which setting wins, in operations per second",
        "setting",
        rows,
    )
}

fn map() -> Experiment {
    let rows = ["preloaded", "linked"].iter().map(|how| {
        let cells = ALLOCATORS.iter().map(|(name, _, time, _)| {
            if *how == "linked" && !["mallard", "glibc", "jemalloc"].contains(name) {
                return empty(name);
            }
            cell(name, 1.1 * (0.5 + time / 2.0), 461 * MIB)
        });
        row(how, None, 1, cells.collect())
    });
    let claim = "glibc 11.9 s, jemalloc 9.9, tcmalloc 9.8";
    experiment(
        "map",
        "std::map<int,int>, 10,000,000 inserts",
        claim,
        "linkage",
        rows.collect(),
    )
}

fn machine() -> Machine {
    Machine {
        cpu: "AMD EPYC 9R45".to_owned(),
        cpus: 2,
        memory_bytes: 7_900 * MIB,
        kernel: "Linux 6.18.4".to_owned(),
        libc: "glibc 2.36".to_owned(),
        distribution: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        thp: "madvise".to_owned(),
        page_size: 4096,
        facts: vec![("governor".to_owned(), "performance".to_owned())],
    }
}

/// `mallard bench` on the five experiments.
pub fn bench() -> Results {
    let mut allocators: Vec<_> = ALLOCATORS
        .iter()
        .map(|(name, version, ..)| allocator(name, version))
        .collect();
    let mut missing = allocator("hoard", "");
    missing.file = None;
    missing.unavailable =
        Some("not installed; build it and add --allocator hoard=/path/libhoard.so".to_owned());
    allocators.push(missing);
    Results {
        schema: SCHEMA,
        kind: Kind::Bench,
        title: "The basic experiments".to_owned(),
        started: "2026-05-20T14:03:11+02:00".to_owned(),
        elapsed_seconds: 1834.2,
        command: ["mallard", "bench", "--runs", "5", "--out", "my results"]
            .map(str::to_owned)
            .to_vec(),
        settings: vec![
            ("runs".to_owned(), "5".to_owned()),
            ("memory warmed before each run".to_owned(), "yes".to_owned()),
            ("pinning".to_owned(), HOSTILE.to_owned()),
        ],
        machine: machine(),
        allocators,
        experiments: vec![pairs(), batch(), arenas(), tune(), map()],
    }
}

/// `mallard compare` on one program: one allocator breaks it, and another changes its output.
pub fn compare() -> Results {
    let names = ["mallard", "glibc", "jemalloc", "mimalloc", "snmalloc"];
    let seconds = [1.31, 1.72, 1.38, 1.29, 0.0];
    let cells = names.iter().zip(seconds).map(|(name, seconds)| {
        if *name == "snmalloc" {
            return failed(
                name,
                "killed by a signal",
                Exit::Signal(6),
                &["python3: fatal: no memory"],
            );
        }
        let mut cell = cell(name, seconds, 92 * MIB + (seconds * 1e7) as u64);
        for run in &mut cell.runs {
            run.ops_per_second = None;
            run.output_hash = Some(if *name == "jemalloc" {
                "b".repeat(64)
            } else {
                "a".repeat(64)
            });
        }
        cell
    });
    let rows = vec![row("python3", None, 1, cells.collect())];
    let mut e = experiment(
        "compare",
        "python3 -c 'sorted(range(9))'",
        "",
        "program",
        rows,
    );
    e.description = "The program as given, five times on each allocator.".to_owned();
    Results {
        kind: Kind::Compare,
        title: "python3 on five allocators".to_owned(),
        allocators: names.iter().map(|name| allocator(name, "1.0")).collect(),
        command: [
            "mallard",
            "compare",
            "--",
            "python3",
            "-c",
            "sorted(range(9))",
        ]
        .map(str::to_owned)
        .to_vec(),
        experiments: vec![e],
        ..bench()
    }
}
