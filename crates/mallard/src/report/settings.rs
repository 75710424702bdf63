//! What does not change while a process runs: the version, the build, the options, the classes.

use super::write::Emitter;
use crate::api;
use crate::ctl::{self, Value};

/// Options that can be changed in the running process, and where the value of now is: a branch of the
/// tree and the name there, and both as one.
const CHANGEABLE: [(&str, [&str; 3]); 5] = [
    (
        "dirty_decay_ms",
        ["arenas", "dirty_decay_ms", "arenas.dirty_decay_ms"],
    ),
    (
        "muzzy_decay_ms",
        ["arenas", "muzzy_decay_ms", "arenas.muzzy_decay_ms"],
    ),
    ("prof_active", ["prof", "active", "prof.active"]),
    (
        "prof_thread_active_init",
        ["prof", "thread_active_init", "prof.thread_active_init"],
    ),
    ("lg_prof_sample", ["prof", "lg_sample", "prof.lg_sample"]),
];

pub fn emit(e: &mut Emitter<'_>) {
    e.both(
        "version",
        format_args!("Version"),
        Value::Text(ctl::VERSION),
    );
    e.section("config", "Build-time option settings");
    branch(e, "config", ctl::names("config"));
    e.end_section();
    e.section("opt", "Run-time option settings");
    options(e);
    e.end_section();
    e.section("prof", "Profiling settings");
    let names = [
        "thread_active_init",
        "active",
        "gdump",
        "interval",
        "lg_sample",
    ];
    branch(e, "prof", names.into_iter());
    e.end_section();
    arenas(e);
}

fn branch(e: &mut Emitter<'_>, branch: &str, names: impl Iterator<Item = &'static str>) {
    for name in names {
        if let Ok(value) = ctl::value(branch, name) {
            e.both(name, format_args!("{branch}.{name}"), value);
        }
    }
}

fn options(e: &mut Emitter<'_>) {
    for name in ctl::names("opt") {
        let Ok(value) = ctl::value("opt", name) else {
            continue;
        };
        let label = format_args!("opt.{name}");
        if name == "hpa_dirty_mult" {
            e.share(name, label, value);
            continue;
        }
        let note = if name == "background_thread" {
            Some((name, Value::Bool(api::background_thread())))
        } else {
            CHANGEABLE
                .iter()
                .find(|option| option.0 == name)
                .and_then(|(_, [branch, now, full])| Some((*full, ctl::value(branch, now).ok()?)))
        };
        e.noted(name, label, value, note);
    }
}

fn arenas(e: &mut Emitter<'_>) {
    /// In the order of jemalloc's report, with what the text calls them.
    const NAMES: [(&str, &str); 9] = [
        ("narenas", "Arenas"),
        ("dirty_decay_ms", ""),
        ("muzzy_decay_ms", ""),
        ("quantum", "Quantum size"),
        ("page", "Page size"),
        ("hugepage", "Hugepage size"),
        ("tcache_max", "Maximum thread-cached size class"),
        ("nbins", "Number of bin size classes"),
        ("nhbins", "Number of thread-cache bin size classes"),
    ];
    e.object("arenas");
    for (name, label) in NAMES {
        match ctl::value("arenas", name) {
            Ok(Value::Signed(ms)) if label.is_empty() => e.signed(name, ms),
            Ok(value) => e.both(name, format_args!("{label}"), value),
            Err(_) => {}
        }
    }
    super::tables::bin_classes(e);
    if let Ok(value) = ctl::value("arenas", "nlextents") {
        e.both(
            "nlextents",
            format_args!("Number of large size classes"),
            value,
        );
    }
    super::tables::large_classes(e);
    e.end_object();
}
