//! Each kind of value: what it accepts, what it refuses, and the table as a whole.

extern crate std;

use std::collections::BTreeSet;
use std::string::String;

use super::read;
use crate::conf::nearest::NAME_BYTES_MAX;
use crate::conf::*;

fn narenas(value: &str) -> Option<Option<u32>> {
    set("narenas", value).map(|options| options.narenas)
}

fn tcache_max(value: &str) -> Option<usize> {
    set("tcache_max", value).map(|options| options.tcache_max)
}

/// The options after one setting, or `None` if the value was refused.
fn set(name: &str, value: &str) -> Option<Options> {
    let mut options = Options::DEFAULT;
    let option = find(name.as_bytes()).expect("an option of that name");
    let accepted = option.set(&mut options, value.as_bytes());
    if !accepted {
        assert_eq!(options, Options::DEFAULT, "a refused value changes nothing");
    }
    accepted.then_some(options)
}

#[test]
fn numbers_are_read_as_c_reads_them() {
    assert_eq!(narenas("1"), Some(Some(1)));
    assert_eq!(narenas("+16"), Some(Some(16)));
    assert_eq!(narenas("0x10"), Some(Some(16)));
    assert_eq!(narenas("0X1f"), Some(Some(31)));
    assert_eq!(narenas("010"), Some(Some(8)));
    assert_eq!(narenas("1024"), Some(Some(1024)));
    assert_eq!(narenas("default"), Some(None));
    for refused in [
        "", "0", "1025", "-1", "--1", "x", "4x", "4 ", "1.5", "08", "0x", "4k", "Default", "١",
    ] {
        assert_eq!(narenas(refused), None, "{refused:?}");
    }
}

#[test]
fn numbers_beyond_64_bits_are_refused() {
    assert_eq!(
        set("guard_sample", "18446744073709551615").map(|o| o.guard_sample),
        Some(u64::MAX)
    );
    for refused in [
        "18446744073709551616",
        "99999999999999999999999999999999999999999",
    ] {
        assert_eq!(set("guard_sample", refused), None);
        assert_eq!(
            tcache_max(refused),
            None,
            "clipping is for numbers that are numbers"
        );
    }
    assert_eq!(set("dirty_max", "16777216t"), None, "2^64 by its suffix");
    assert_eq!(
        set("stats_interval", "9223372036854775807").map(|o| o.stats_interval),
        Some(i64::MAX)
    );
    assert_eq!(set("stats_interval", "9223372036854775808"), None);
    assert_eq!(set("stats_interval", "-9223372036854775808"), None);
}

#[test]
fn sizes_take_suffixes() {
    assert_eq!(tcache_max("4096"), Some(4096));
    assert_eq!(tcache_max("4k"), Some(4096));
    assert_eq!(tcache_max("4K"), Some(4096));
    assert_eq!(tcache_max("1m"), Some(1 << 20));
    assert_eq!(tcache_max("0x10k"), Some(16 << 10));
    assert_eq!(set("reserve", "2G").map(|o| o.reserve), Some(Some(2 << 30)));
    assert_eq!(set("reserve", "1t").map(|o| o.reserve), Some(Some(1 << 40)));
    for refused in ["k", "4kb", "4 k", "-1k", "kk"] {
        assert_eq!(tcache_max(refused), None, "{refused:?}");
    }
}

#[test]
fn jemallocs_clipped_options_clip() {
    assert_eq!(tcache_max("1g"), Some(8 << 20));
    assert_eq!(
        set("lg_tcache_max", "40").map(|o| o.tcache_max),
        Some(8 << 20)
    );
    assert_eq!(
        set("lg_prof_sample", "64").map(|o| o.lg_prof_sample),
        Some(63)
    );
    assert_eq!(
        set("max_background_threads", "100000").map(|o| o.max_background_threads),
        Some(4095)
    );
    assert_eq!(set("max_background_threads", "0"), None, "below is refused");
}

#[test]
fn decay_times_include_never_and_at_once() {
    for name in ["dirty_decay_ms", "muzzy_decay_ms"] {
        for accepted in ["-1", "0", "10000", "18446744072000"] {
            assert!(set(name, accepted).is_some(), "{name}:{accepted}");
        }
        for refused in ["-2", "18446744072001", "10s", "never"] {
            assert!(set(name, refused).is_none(), "{name}:{refused}");
        }
    }
}

#[test]
fn the_dirty_cap_is_a_size_a_share_or_nothing() {
    let cap = |value| set("dirty_max", value).map(|o| o.dirty_max);
    assert_eq!(cap("64m"), Some(DirtyMax::Bytes(64 << 20)));
    assert_eq!(cap("10%"), Some(DirtyMax::Percent(10)));
    assert_eq!(cap("0%"), Some(DirtyMax::Percent(0)));
    assert_eq!(cap("none"), Some(DirtyMax::None));
    assert_eq!(cap("-1"), Some(DirtyMax::None));
    for refused in ["", "%", "101%", "10k%", "-1%", "10 %", "all"] {
        assert_eq!(cap(refused), None, "{refused:?}");
    }
}

#[test]
fn fractions_are_decimal_and_not_negative() {
    let ratio = |value| set("narenas_ratio", value).map(|o| o.narenas_ratio);
    assert_eq!(ratio("default"), Some(None));
    for (text, millionths) in [
        ("0", 0),
        ("4", 4_000_000),
        ("0.25", 250_000),
        (".5", 500_000),
        ("1.000001", 1_000_001),
        ("0.0000019", 1),
        ("65535.999999", 65_535_999_999),
    ] {
        assert_eq!(ratio(text), Some(Some(millionths)), "{text}");
    }
    for refused in [
        "",
        ".",
        "1.",
        "-1",
        "65536",
        "1.2.3",
        "0x1",
        "1e3",
        "1,5",
        " 1",
        "99999999999999999999999",
    ] {
        assert_eq!(ratio(refused), None, "{refused:?}");
    }
    assert_eq!(
        set("hpa_dirty_mult", "-1").map(|o| o.hpa_dirty_mult),
        Some(None)
    );
}

#[test]
fn settings_by_class_are_checked_though_nobody_heeds_them() {
    let shards = |value: &str| set("bin_shards", value).map(|o| o.bin_shards);
    for accepted in ["8-64:2", "8-64:2|128-160:0x10", "16-16:0"] {
        let kept = shards(accepted).expect(accepted);
        assert_eq!(kept.as_bytes(), accepted.as_bytes());
    }
    assert!(shards("default").expect("a word for none").is_empty());
    for refused in [
        "", "8", "8-64", "8-64:", "64-8:2", "-8-64:2", "8-64:2|", "|8-64:2", "8-64:x", "8-64:-1",
    ] {
        assert_eq!(shards(refused), None, "{refused:?}");
    }
    let too_long = ["8-64:2"; 40].join("|");
    assert_eq!(shards(&too_long), None);
}

#[test]
fn words_are_taken_whole_and_in_their_case() {
    assert_eq!(set("thp", "never").map(|o| o.thp), Some(Thp::Never));
    assert_eq!(
        set("background_thread", "auto").map(|o| o.background_thread),
        Some(BackgroundThread::Auto)
    );
    assert_eq!(
        set("background_thread", "true").map(|o| o.background_thread),
        Some(BackgroundThread::True)
    );
    for refused in ["", "nev", "nevere", "Never"] {
        assert_eq!(set("thp", refused), None, "{refused:?}");
    }
    for refused in ["1", "yes", "on", "True", "t"] {
        assert_eq!(set("tcache", refused), None, "{refused:?}");
    }
}

#[test]
fn junk_says_which_memory_it_fills() {
    let filled = |value| set("junk", value).map(|o| (o.junk.on_alloc(), o.junk.on_free()));
    assert_eq!(filled("true"), Some((true, true)));
    assert_eq!(filled("alloc"), Some((true, false)));
    assert_eq!(filled("free"), Some((false, true)));
    assert_eq!(filled("false"), Some((false, false)));
}

#[test]
fn texts_fit_or_are_refused() {
    let prefix = |value: &str| set("prof_prefix", value).map(|o| o.prof_prefix);
    assert!(prefix("").expect("empty is allowed").is_empty());
    let longest: String = "p".repeat(255);
    let kept = prefix(&longest).expect("255 bytes fit");
    assert_eq!(kept.as_bytes(), longest.as_bytes());
    assert_eq!(
        kept.as_c_str().to_bytes(),
        longest.as_bytes(),
        "its NUL still fits"
    );
    assert_eq!(prefix(&"p".repeat(256)), None);
    assert_eq!(prefix("a\0b"), None);
    assert_eq!(
        prefix("/tmp/a:b")
            .expect("colons belong to the value")
            .as_bytes(),
        b"/tmp/a:b"
    );
}

#[test]
fn report_letters_are_kept_once() {
    let letters = |value| set("stats_print_opts", value).map(|o| o.stats_print_opts);
    assert_eq!(
        letters("JJmJ").expect("letters of the report").as_bytes(),
        b"Jm"
    );
    assert_eq!(
        letters("Jgmdablxeh").expect("all of them").as_bytes().len(),
        10
    );
    assert_eq!(letters("Jq"), None);
}

#[test]
fn the_second_spelling_sets_the_first() {
    assert_eq!(
        set("lg_tcache_max", "14").map(|o| o.tcache_max),
        Some(1 << 14)
    );
    assert_eq!(set("lg_tcache_max", "0").map(|o| o.tcache_max), Some(1));
    assert_eq!(set("lg_tcache_max", "-1"), None);
}

#[test]
fn the_table_is_sound() {
    let names: BTreeSet<&str> = TABLE.iter().map(|option| option.name()).collect();
    assert_eq!(names.len(), TABLE.len(), "every name once");
    for option in &TABLE {
        assert!(
            option.name().len() <= NAME_BYTES_MAX,
            "{} is longer than NAME_BYTES_MAX",
            option.name()
        );
        assert!(
            option
                .name()
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b == b'_'),
            "{}",
            option.name()
        );
        assert!(option.meaning.ends_with('.'), "{}", option.name());
        if let Some(target) = option.alias_of() {
            assert!(names.contains(target.name()));
        }
    }
}

/// The interface promises these options, so all must be in the table.
#[test]
fn every_promised_option_exists() {
    let promised = "narenas percpu_arena dirty_decay_ms muzzy_decay_ms dirty_max background_thread \
        max_background_threads tcache tcache_max lg_tcache_max retain oversize_threshold dss \
        trust_madvise cache_oblivious thp metadata_thp hpa abort abort_conf confirm_conf xmalloc zero \
        junk zero_realloc stats_print stats_print_opts stats_interval stats_interval_opts prof \
        prof_active prof_thread_active_init lg_prof_sample prof_accum prof_prefix lg_prof_interval \
        prof_gdump prof_final prof_leak prof_leak_error prof_bt_max prof_pid_namespace prof_format \
        lg_extent_max_active_fit debug_double_free_max_scan utrace disable_large_size_classes tailored_classes \
        process_madvise_max_batch hardened hardened_sites family_mismatch guard_sample guard_rate guard_action guard_align guard_slots guard_sites \
        report_file reserve export_stats prof_max_memory prof_rate_max prof_seed prof_usdt http http_control zero_size";
    // Options of jemalloc 5.3 that its manual omits.
    let found_in_strings = "narenas_ratio bin_shards slab_sizes huge_arena_pac_thp \
        calloc_madvise_threshold tcache_ncached_max lg_tcache_nslots_mul tcache_nslots_small_min \
        tcache_nslots_small_max tcache_nslots_large tcache_gc_incr_bytes tcache_gc_delay_bytes \
        lg_tcache_flush_small_div lg_tcache_flush_large_div experimental_tcache_gc \
        experimental_infallible_new mutex_max_spin san_guard_small san_guard_large lg_san_uaf_align \
        hpa_slab_max_alloc hpa_hugification_threshold hpa_hugification_threshold_ratio \
        hpa_hugify_delay_ms hpa_hugify_sync hpa_hugify_style hpa_min_purge_interval_ms \
        hpa_min_purge_delay_ms hpa_purge_threshold hpa_purge_threshold_ratio hpa_dirty_mult \
        hpa_sec_nshards hpa_sec_max_alloc hpa_sec_max_bytes hpa_sec_bytes_after_flush \
        hpa_sec_batch_fill_extra experimental_hpa_start_huge_if_thp_always \
        experimental_hpa_enforce_hugify experimental_hpa_max_purge_nhp prof_log \
        prof_recent_alloc_max prof_stats prof_sys_thread_name prof_time_resolution prof_unbias";
    let names = || {
        promised
            .split_whitespace()
            .chain(found_in_strings.split_whitespace())
    };
    for name in names() {
        assert!(find(name.as_bytes()).is_some(), "no option {name}");
    }
    assert_eq!(TABLE.len(), names().count(), "and no other");
}

#[test]
fn every_default_is_valid_by_its_own_rules() {
    for option in &TABLE {
        let mut shown = LineBuffer::new();
        option.show(&Options::DEFAULT, &mut shown);
        let mut options = Options::DEFAULT;
        assert!(
            option.set(&mut options, shown.as_bytes()),
            "{}",
            option.name()
        );
        assert_eq!(options, Options::DEFAULT, "{}", option.name());
    }
}

#[test]
fn the_options_that_programs_write_today_are_accepted() {
    for string in [
        "background_thread:true,metadata_thp:auto,dirty_decay_ms:5000,muzzy_decay_ms:5000",
        "prof:true,prof_active:false,lg_prof_sample:19,prof_prefix:/tmp/jeprof.out",
        "narenas:1,tcache:false,dirty_decay_ms:0,muzzy_decay_ms:0,abort_conf:true",
        "percpu_arena:percpu,oversize_threshold:0,lg_tcache_max:16,thp:never",
        "stats_print:true,stats_print_opts:Jmdablxg,prof_leak:true,lg_prof_interval:30",
        "narenas_ratio:0.5,bin_shards:1-64:4|128-128:8,slab_sizes:default,mutex_max_spin:-1",
        "hpa:true,hpa_dirty_mult:-1,hpa_hugification_threshold_ratio:0.9,hpa_hugify_style:lazy",
        "tcache_ncached_max:8-1024:100|2048-4096:10,lg_tcache_nslots_mul:-2,tcache_gc_incr_bytes:512k",
        "san_guard_small:64,san_guard_large:8,lg_san_uaf_align:12,experimental_infallible_new:true",
    ] {
        let (outcome, messages) = read(string);
        assert_eq!(outcome.errors, 0, "{string}: {messages:?}");
    }
}
