//! Tests of the option reader: the syntax and the sources here, values, properties and the
//! reference in their own files. How a real process reads its environment is tested from outside,
//! in `tests/conf.rs` of this crate.

extern crate std;

use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use super::{Options, ReadOptions, Source, Sources, TABLE, read_from};
use crate::conf;
use checks::Recorder;

mod checks;
mod properties;
mod reference;
mod system;
mod values;

fn read_all(strings: &[(Source, &[u8])]) -> (ReadOptions, Vec<String>) {
    let mut sources = Sources::NONE;
    for (source, string) in strings {
        sources.set(*source, Some(string));
    }
    let mut recorder = Recorder::default();
    let outcome = read_from(&Options::DEFAULT, &sources, &mut recorder);
    (outcome, recorder.0)
}

/// Reads `string` as if it were `MALLOC_CONF`.
fn read(string: &str) -> (ReadOptions, Vec<String>) {
    read_all(&[(Source::MallocConf, string.as_bytes())])
}

/// The single message for `string`.
fn message(string: &str) -> String {
    let (outcome, messages) = read(string);
    assert_eq!(
        (messages.len(), outcome.errors),
        (1, 1),
        "{string:?} gave {messages:?}"
    );
    messages.into_iter().next().expect("there is one")
}

#[test]
fn no_source_gives_the_defaults_in_silence() {
    let (outcome, messages) = read_all(&[]);
    assert_eq!(outcome.options, Options::DEFAULT);
    assert_eq!((outcome.errors, outcome.must_abort), (0, false));
    assert!(messages.is_empty());
    let (outcome, messages) = read("");
    assert_eq!(outcome.options, Options::DEFAULT);
    assert!(
        messages.is_empty(),
        "an empty string is not a mistake: {messages:?}"
    );
}

#[test]
fn a_string_sets_what_it_names() {
    let (outcome, messages) = read("narenas:4,tcache:false,dirty_decay_ms:-1,junk:free");
    let expected = Options {
        narenas: Some(4),
        tcache: false,
        dirty_decay_ms: -1,
        junk: super::Junk::Free,
        ..Options::DEFAULT
    };
    assert_eq!(outcome.options, expected);
    assert!(messages.is_empty());
}

#[test]
fn later_sources_win_and_the_rest_stays() {
    let strings: Vec<(Source, String)> = Source::ALL
        .iter()
        .enumerate()
        .map(|(i, source)| {
            (
                *source,
                format!("narenas:{},tcache_max:{}", i + 1, 1024 * (i + 1)),
            )
        })
        .collect();
    for last in 0..strings.len() {
        let given: Vec<(Source, &[u8])> = strings[..=last]
            .iter()
            .rev() // the order in which they are handed over does not matter
            .map(|(source, string)| (*source, string.as_bytes()))
            .collect();
        let (outcome, _) = read_all(&given);
        assert_eq!(outcome.options.narenas, Some(last as u32 + 1));
    }
    let (outcome, _) = read_all(&[
        (Source::Symbol, b"narenas:2,zero:true"),
        (Source::MallardConf, b"narenas:3"),
    ]);
    assert_eq!(
        (outcome.options.narenas, outcome.options.zero),
        (Some(3), true)
    );
}

#[test]
fn within_a_string_the_last_setting_wins() {
    assert_eq!(
        read("narenas:2,narenas:default,narenas:7")
            .0
            .options
            .narenas,
        Some(7)
    );
    assert_eq!(
        read("tcache_max:4k,lg_tcache_max:13").0.options.tcache_max,
        8192
    );
    assert_eq!(
        read("lg_tcache_max:13,tcache_max:4k").0.options.tcache_max,
        4096
    );
}

#[test]
fn an_unknown_option_is_named_with_the_nearest_one() {
    assert_eq!(
        message("narenass:4"),
        r#"mallard: MALLOC_CONF: unknown option "narenass"; did you mean "narenas"?"#
    );
    assert_eq!(
        message("Tcache:true"),
        r#"mallard: MALLOC_CONF: unknown option "Tcache"; did you mean "tcache"?"#
    );
    assert_eq!(
        message(" narenas:4"),
        r#"mallard: MALLOC_CONF: unknown option " narenas"; did you mean "narenas"?"#
    );
    assert_eq!(
        message("decay:3"),
        r#"mallard: MALLOC_CONF: unknown option "decay"; did you mean "dirty_decay_ms"?"#
    );
    assert_eq!(
        message("quarantine:4"),
        r#"mallard: MALLOC_CONF: unknown option "quarantine"; no option has a similar name"#
    );
}

#[test]
fn a_bad_value_is_named_with_what_is_valid_and_changes_nothing() {
    assert_eq!(
        message("narenas:x"),
        r#"mallard: MALLOC_CONF: option "narenas" cannot be "x"; valid: default or 1 to 1024"#
    );
    assert_eq!(
        message("percpu_arena:yes"),
        r#"mallard: MALLOC_CONF: option "percpu_arena" cannot be "yes"; valid: disabled, percpu or phycpu"#
    );
    let (outcome, _) = read("narenas:8,narenas:1025,narenas:");
    assert_eq!((outcome.options.narenas, outcome.errors), (Some(8), 2));
}

#[test]
fn a_mistake_costs_its_item_alone() {
    let (outcome, messages) = read("narenas,:3,,tcache:maybe,zero:true,");
    assert!(outcome.options.zero);
    assert_eq!(
        outcome.options,
        Options {
            zero: true,
            ..Options::DEFAULT
        }
    );
    let empty =
        "mallard: MALLOC_CONF: empty item: a comma at the start, at the end or after another comma";
    assert_eq!(
        messages,
        [
            r#"mallard: MALLOC_CONF: no value in "narenas"; valid: option:value, here narenas with default or 1 to 1024"#,
            r#"mallard: MALLOC_CONF: no option named before the value "3"; valid: option:value"#,
            empty,
            r#"mallard: MALLOC_CONF: option "tcache" cannot be "maybe"; valid: true or false"#,
            empty,
        ]
    );
    assert_eq!(outcome.errors, 5);
}

#[test]
fn messages_name_their_source() {
    for (source, name) in [
        (Source::CompiledIn, "compiled-in options"),
        (Source::Symbol, "symbol malloc_conf"),
        (Source::Link, "/etc/malloc.conf"),
        (Source::MallocConf, "MALLOC_CONF"),
        (Source::Harder, "malloc_conf_2_conf_harder"),
        (Source::MallardConf, "MALLARD_CONF"),
    ] {
        let (_, messages) = read_all(&[(source, b"zero:1")]);
        let start = format!("mallard: {name}: option \"zero\"");
        assert!(messages[0].starts_with(&start), "{messages:?}");
    }
}

#[test]
fn bytes_that_would_garble_a_terminal_are_escaped() {
    let (_, messages) = read_all(&[(Source::MallocConf, b"z\x1b[31m\xff\0\"\n:1")]);
    assert_eq!(
        messages,
        [
            r#"mallard: MALLOC_CONF: unknown option "z\x1b[31m\xff\x00\"\n"; no option has a similar name"#
        ]
    );
}

#[test]
fn long_keys_and_values_are_cut_in_messages() {
    let long = "a".repeat(65_536);
    let shown = format!("\"{}...\"", "a".repeat(64));
    assert!(message(&format!("{long}:1")).contains(&shown));
    assert!(message(&format!("narenas:{long}")).contains(&shown));
    assert!(message(&long).contains(&shown));
}

#[test]
fn messages_are_capped_and_errors_are_not() {
    let (outcome, messages) = read(&"narenas:0,".repeat(6_500));
    assert_eq!(outcome.errors, 6_501, "the comma at the end counts too");
    assert_eq!(messages.len(), 17);
    assert_eq!(messages[16], "mallard: further errors in options not shown");
    let (outcome, messages) = read(&vec!["experimental_x:1"; 100].join(","));
    assert_eq!(
        (outcome.errors, messages.len()),
        (0, 17),
        "tolerated ones are capped as well"
    );
}

#[test]
fn abort_conf_asks_to_abort_after_an_error_wherever_it_stands() {
    for strings in [
        ["abort_conf:true,zero:1", ""],
        ["zero:1", "abort_conf:true"],
    ] {
        let (outcome, messages) = read_all(&[
            (Source::MallocConf, strings[0].as_bytes()),
            (Source::MallardConf, strings[1].as_bytes()),
        ]);
        assert!(outcome.must_abort);
        let last = messages.last().expect("the reason is printed");
        assert_eq!(
            last,
            "mallard: abort_conf:true: aborting after 1 error in options, see above"
        );
    }
    assert!(
        !read("abort_conf:true,zero:true").0.must_abort,
        "nothing is wrong"
    );
    assert!(!read("zero:1").0.must_abort, "no option asked for it");
    assert!(
        !read("abort_conf:true,zero:1,abort_conf:false").0.must_abort,
        "taken back"
    );
    assert!(
        !read("abort_conf:true,experimental_x:1").0.must_abort,
        "experiments are tolerated"
    );
}

#[test]
fn a_leak_error_without_a_final_profile_is_a_mistake() {
    let text = r#"mallard: MALLOC_CONF: option "prof_leak_error" has no effect; valid: with prof_final:true"#;
    assert_eq!(message("prof_leak_error:true"), text);
    assert_eq!(read("prof_leak_error:true,prof_final:true").0.errors, 0);
    assert_eq!(
        read("prof_leak_error:true,prof_leak_error:false").0.errors,
        0
    );
}

#[test]
fn confirm_conf_prints_the_sources_and_every_setting() {
    let (_, lines) = read_all(&[
        (Source::Symbol, b"narenas:2"),
        (
            Source::MallardConf,
            b"confirm_conf:true,narenas:3,lg_tcache_max:12",
        ),
    ]);
    assert_eq!(
        lines[..7],
        [
            concat!("mallard: version ", env!("CARGO_PKG_VERSION")),
            "mallard: options #1 (compiled-in options): not set",
            r#"mallard: options #2 (symbol malloc_conf): "narenas:2""#,
            "mallard: options #3 (/etc/malloc.conf): not set",
            "mallard: options #4 (MALLOC_CONF): not set",
            "mallard: options #5 (malloc_conf_2_conf_harder): not set",
            r#"mallard: options #6 (MALLARD_CONF): "confirm_conf:true,narenas:3,lg_tcache_max:12""#,
        ]
    );
    let settings = &lines[7..];
    let names: Vec<String> = TABLE
        .iter()
        .filter(|o| o.alias_of().is_none())
        .map(|o| o.name().to_string())
        .collect();
    let printed: Vec<String> = settings
        .iter()
        .map(|line| {
            line["mallard: -- ".len()..]
                .split(':')
                .next()
                .unwrap_or_default()
                .to_string()
        })
        .collect();
    assert_eq!(printed, names);
    for expected in [
        "mallard: -- narenas:3 (MALLARD_CONF)",
        "mallard: -- tcache_max:4096 (MALLARD_CONF)",
        "mallard: -- tcache:true",
    ] {
        assert!(
            settings.iter().any(|line| line == expected),
            "no {expected:?} in {settings:#?}"
        );
    }
}

#[test]
fn confirm_conf_short_is_the_version_and_what_differs_from_the_defaults() {
    let head = concat!("mallard: version ", env!("CARGO_PKG_VERSION"), "; ");
    let (_, lines) = read_all(&[
        (Source::Symbol, b"narenas:2,tcache:true"),
        (
            Source::MallardConf,
            b"confirm_conf:short,narenas:3,lg_tcache_max:12,prof_prefix:\x1b",
        ),
    ]);
    let settings = "narenas:3 (MALLARD_CONF), tcache_max:4096 (MALLARD_CONF), \
                    prof_prefix:\\x1b (MALLARD_CONF)";
    assert_eq!(lines, [format!("{head}{settings}")]);
    let (_, lines) = read("confirm_conf:short,tcache:true");
    assert_eq!(lines, [format!("{head}all options have their defaults")]);
}

#[test]
fn confirmed_values_are_escaped_as_well() {
    let (outcome, lines) = read_all(&[(
        Source::MallocConf,
        b"confirm_conf:true,prof_prefix:/tmp/\x1b[31m\xff",
    )]);
    assert_eq!(outcome.options.prof_prefix.as_bytes(), b"/tmp/\x1b[31m\xff");
    let expected = r"mallard: -- prof_prefix:/tmp/\x1b[31m\xff (MALLOC_CONF)";
    assert!(lines.iter().any(|line| line == expected), "{lines:#?}");
}

#[test]
fn a_confirmed_string_longer_than_a_line_is_cut() {
    let string = format!("confirm_conf:true,prof_prefix:{}", "p".repeat(65_536));
    let (_, lines) = read(&string);
    let source = lines
        .iter()
        .find(|line| line.contains("#4"))
        .expect("the source is shown");
    assert!(
        source.ends_with("ppp...") && source.len() == 1024,
        "{} bytes",
        source.len()
    );
}
