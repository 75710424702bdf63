//! `opt.*` returns the options in force, each with its C type.

extern crate std;

use super::rows;
use crate::api;
use crate::conf::{BackgroundThread, ConfirmConf, LineBuffer, Options, TABLE};
use crate::ctl::{self, CType, opt};
use core::ffi::{CStr, c_char};
use std::format;
use std::string::{String, ToString};

fn read<T: CType>(name: &str) -> T {
    ctl::read(name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error:?}"))
}

/// The value from `opt.*`, in option-string notation.
fn told(name: &str, c_type: &str) -> String {
    match c_type {
        "bool" => read::<bool>(name).to_string(),
        "unsigned" => read::<u32>(name).to_string(),
        "size_t" => read::<usize>(name).to_string(),
        "ssize_t" => read::<isize>(name).to_string(),
        "uint64_t" => read::<u64>(name).to_string(),
        "int64_t" => read::<i64>(name).to_string(),
        "const char *" => {
            // SAFETY: a name of this type returns a string that is never freed.
            let text = unsafe { CStr::from_ptr(read::<*const c_char>(name)) };
            text.to_str().expect("options are ASCII here").into()
        }
        other => panic!("{name} is of type {other}"),
    }
}

fn written(name: &str, options: &Options) -> String {
    let row = TABLE.iter().find(|row| row.name() == name);
    let mut line = LineBuffer::new();
    row.expect("from the table").show(options, &mut line);
    String::from_utf8(line.as_bytes().to_vec()).expect("options are ASCII here")
}

/// Values that `opt.*` returns differently from how they are written.
fn told_otherwise(name: &str, options: &Options) -> Option<String> {
    Some(match name {
        "background_thread" => (options.background_thread != BackgroundThread::False).to_string(),
        "confirm_conf" => (options.confirm_conf != ConfirmConf::False).to_string(),
        "narenas" => read::<u32>("opt.narenas").max(1).to_string(),
        "reserve" => options.reserve.unwrap_or(0).to_string(),
        "calloc_madvise_threshold" => {
            let threshold = options.calloc_madvise_threshold;
            threshold.unwrap_or(usize::MAX).to_string()
        }
        // No class has a setting of its own.
        "bin_shards" | "slab_sizes" | "tcache_ncached_max" => String::new(),
        _ => return None,
    })
}

#[test]
fn every_option_is_told_as_it_is() {
    let options = api::options();
    let mut count = 0;
    for row in rows() {
        let Some(name) = row.path.strip_prefix("opt.") else {
            continue;
        };
        // The sources, not options.
        if name.starts_with(opt::SOURCES) {
            continue;
        }
        count += 1;
        // A fixed-point number, checked by the next test.
        if name == "hpa_dirty_mult" {
            continue;
        }
        let expected = told_otherwise(name, options).unwrap_or_else(|| written(name, options));
        assert_eq!(told(&row.path, row.leaf.c_type()), expected, "{name}");
    }
    assert_eq!(count, TABLE.len());
}

#[test]
fn types_are_jemallocs() {
    // From jemalloc's manual: the types that its callers use.
    let types = [
        (
            "bool",
            "abort abort_conf background_thread cache_oblivious confirm_conf hpa prof prof_accum \
            prof_active prof_final prof_gdump prof_leak prof_leak_error retain stats_print tcache \
            trust_madvise utrace xmalloc zero",
        ),
        ("unsigned", "narenas prof_bt_max debug_double_free_max_scan"),
        (
            "size_t",
            "lg_extent_max_active_fit lg_prof_sample max_background_threads oversize_threshold \
            process_madvise_max_batch tcache_max",
        ),
        ("ssize_t", "dirty_decay_ms lg_prof_interval muzzy_decay_ms"),
        ("int64_t", "stats_interval mutex_max_spin"),
        (
            "const char *",
            "dss junk metadata_thp percpu_arena prof_prefix stats_interval_opts \
            stats_print_opts thp zero_realloc",
        ),
    ];
    let rows = rows();
    for (c_type, names) in types {
        for name in names.split_whitespace() {
            let path = format!("opt.{name}");
            let row = rows.iter().find(|row| row.path == path);
            assert_eq!(row.expect("it is there").leaf.c_type(), c_type, "{path}");
        }
    }
}

#[test]
fn a_fraction_is_told_in_jemallocs_fixed_point() {
    // A quarter, with 16 binary places.
    assert_eq!(api::options().hpa_dirty_mult, Some(250_000));
    assert_eq!(read::<u32>("opt.hpa_dirty_mult"), 1 << 14);
}
