//! What does not change while a process runs: version, build, options, size classes.

use core::fmt;

use super::write::Emitter;
use crate::api;
use crate::ctl::{self, Value};
use crate::sys::page::HUGE_PAGE;
use crate::sys::thp;

/// For an option that can be changed at run time, the mallctl name of its current value: the
/// branch, the name in it, and both together.
// Not a table, which would hold addresses that need relocation.
fn changeable(option: &str) -> Option<[&'static str; 3]> {
    Some(match option {
        "dirty_decay_ms" => ["arenas", "dirty_decay_ms", "arenas.dirty_decay_ms"],
        "muzzy_decay_ms" => ["arenas", "muzzy_decay_ms", "arenas.muzzy_decay_ms"],
        "prof_active" => ["prof", "active", "prof.active"],
        "prof_thread_active_init" => ["prof", "thread_active_init", "prof.thread_active_init"],
        "lg_prof_sample" => ["prof", "lg_sample", "prof.lg_sample"],
        _ => return None,
    })
}

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
        option(e, name, format_args!("opt.{name}"), value);
    }
}

fn option(e: &mut Emitter<'_>, name: &str, label: fmt::Arguments<'_>, value: Value) {
    if name == "hpa_dirty_mult" {
        e.share(name, label, value);
        return;
    }
    let note = if name == "background_thread" {
        Some((name, Value::Bool(api::background_thread())))
    } else {
        changeable(name).and_then(|[branch, now, full]| Some((full, ctl::value(branch, now).ok()?)))
    };
    e.noted(name, label, value, note);
}

fn arenas(e: &mut Emitter<'_>) {
    e.object("arenas");
    // In the order of jemalloc's report, with the text's labels.
    setting(e, "narenas", "Arenas");
    setting(e, "dirty_decay_ms", "");
    setting(e, "muzzy_decay_ms", "");
    setting(e, "quantum", "Quantum size");
    setting(e, "page", "Page size");
    let label = match thp::size() {
        ..=HUGE_PAGE => "Hugepage size",
        _ => "Hugepage size, too large for thp:auto",
    };
    setting(e, "hugepage", label);
    setting(e, "tcache_max", "Maximum thread-cached size class");
    setting(e, "nbins", "Number of bin size classes");
    setting(e, "nhbins", "Number of thread-cache bin size classes");
    super::tables::bin_classes(e);
    setting(e, "nlextents", "Number of large size classes");
    super::tables::large_classes(e);
    e.end_object();
}

/// Writes the value `arenas.<name>`; a time without a label in JSON only.
#[inline(never)]
fn setting(e: &mut Emitter<'_>, name: &'static str, label: &str) {
    match ctl::value("arenas", name) {
        Ok(Value::Signed(ms)) if label.is_empty() => e.signed(name, ms),
        Ok(value) => e.both(name, format_args!("{label}"), value),
        Err(_) => {}
    }
}
