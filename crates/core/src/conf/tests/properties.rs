//! Properties of every input.

extern crate std;

use proptest::prelude::*;
use proptest::sample::select;
use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use super::{checks, read_all};
use crate::conf::nearest::{distance, nearest};
use crate::conf::*;

/// A text that some option accepts: words, numbers, sizes, fractions.
fn value() -> impl Strategy<Value = String> {
    let words = "true false auto default always never disabled percpu phycpu primary secondary \
        alloc free abort left right closed block heap_v2 pprof none eager lazy high Jmda x jeprof 8-64:2 8-8:1|16-64:4 0.25";
    let words: Vec<String> = words.split_whitespace().map(String::from).collect();
    prop_oneof![
        4 => select(words),
        2 => (-1i64..70).prop_map(|n| n.to_string()),
        1 => any::<i64>().prop_map(|n| n.to_string()),
        1 => any::<u64>().prop_map(|n| format!("{n:#x}")),
        1 => (0u32..2000, select(vec!["k", "M", "g", "T", "%"])).prop_map(|(n, s)| format!("{n}{s}")),
        1 => "[a-z/._]{0,20}",
    ]
}

fn name() -> impl Strategy<Value = String> {
    select(
        TABLE
            .iter()
            .map(|option| option.name().to_string())
            .collect::<Vec<_>>(),
    )
}

/// An item as people write it: mostly valid, with some rubbish.
fn item() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (name(), value()).prop_map(|(name, value)| format!("{name}:{value}").into_bytes()),
        1 => name().prop_map(String::into_bytes),
        1 => (name(), any::<Vec<u8>>()).prop_map(|(name, value)| [name.as_bytes(), b":", &value].concat()),
        1 => any::<Vec<u8>>(),
    ]
}

fn string_of_items() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(item(), 0..40).prop_map(|items| items.join(&b','))
}

/// The settings as one option string.
fn written(options: &Options) -> Vec<u8> {
    let mut items = Vec::new();
    for option in TABLE.iter().filter(|option| option.alias_of().is_none()) {
        let mut value = LineBuffer::new();
        option.show(options, &mut value);
        items.push([option.name().as_bytes(), b":", value.as_bytes()].concat());
    }
    items.join(&b',')
}

/// One typing mistake in a name.
#[derive(Clone, Debug)]
enum Slip {
    Insert(prop::sample::Index, u8),
    Remove(prop::sample::Index),
    Replace(prop::sample::Index, u8),
    Swap(prop::sample::Index),
}

impl Slip {
    fn any() -> impl Strategy<Value = Slip> {
        let at = any::<prop::sample::Index>;
        prop_oneof![
            (at(), b'a'..=b'z').prop_map(|(at, letter)| Slip::Insert(at, letter)),
            at().prop_map(Slip::Remove),
            (at(), b'a'..=b'z').prop_map(|(at, letter)| Slip::Replace(at, letter)),
            at().prop_map(Slip::Swap),
        ]
    }

    fn make(&self, name: &str) -> Vec<u8> {
        let mut letters = name.as_bytes().to_vec();
        match self {
            Slip::Insert(at, letter) => letters.insert(at.index(letters.len() + 1), *letter),
            Slip::Remove(at) => {
                letters.remove(at.index(letters.len()));
            }
            Slip::Replace(at, letter) => {
                let at = at.index(letters.len());
                letters[at] = *letter;
            }
            Slip::Swap(at) => {
                let at = at.index(letters.len() - 1);
                letters.swap(at, at + 1);
            }
        }
        letters
    }
}

/// Optimal string alignment by its definition, without rows or buffers.
fn distance_by_definition(a: &[u8], b: &[u8]) -> usize {
    let ([.., x], [.., y]) = (a, b) else {
        return a.len().max(b.len());
    };
    let (shorter_a, shorter_b) = (&a[..a.len() - 1], &b[..b.len() - 1]);
    let mut best = (distance_by_definition(shorter_a, shorter_b) + usize::from(x != y))
        .min(distance_by_definition(shorter_a, b) + 1)
        .min(distance_by_definition(a, shorter_b) + 1);
    if let ([before_a @ .., p, q], [before_b @ .., r, s]) = (a, b)
        && p == s
        && q == r
    {
        best = best.min(distance_by_definition(before_a, before_b) + 1);
    }
    best
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_the_end_with_few_words(
        symbol in any::<Vec<u8>>(), variable in any::<Vec<u8>>()
    ) {
        checks::strings(&[(Source::Symbol, &symbol), (Source::MallocConf, &variable)]);
    }

    #[test]
    fn any_list_of_items_is_read_to_the_end_with_few_words(string in string_of_items()) {
        checks::strings(&[(Source::Link, &string)]);
    }

    #[test]
    fn settings_shown_are_read_back_the_same(string in string_of_items()) {
        let (first, _) = read_all(&[(Source::MallocConf, &string)]);
        // Only the dependency error of the string may remain: each shown value is valid by itself.
        let shown = written(&first.options);
        let (second, lines) = read_all(&[(Source::MallocConf, &shown)]);
        prop_assert_eq!(second.options, first.options);
        let tangled = first.options.prof_leak_error && !first.options.prof_final;
        prop_assert_eq!(second.errors, u32::from(tangled), "{:?}", lines);
    }

    #[test]
    fn reading_is_setting_one_item_after_the_other(
        settings in prop::collection::vec((name(), value(), select(Source::ALL.to_vec())), 0..60)
    ) {
        let mut expected = Options::DEFAULT;
        let mut strings = Vec::new();
        for source in Source::ALL {
            let mut items = Vec::new();
            for (name, value, _) in settings.iter().filter(|(.., at)| *at == source) {
                let option = find(name.as_bytes()).expect("names come from the table");
                let _refused = option.set(&mut expected, value.as_bytes());
                items.push(format!("{name}:{value}"));
            }
            strings.push((source, items.join(",").into_bytes()));
        }
        let strings: Vec<(Source, &[u8])> =
            strings.iter().map(|(source, string)| (*source, string.as_slice())).collect();
        prop_assert_eq!(read_all(&strings).0.options, expected);
    }

    #[test]
    fn one_slip_is_understood(name in name(), slip in Slip::any()) {
        let typed = slip.make(&name);
        let found = nearest(&typed);
        let to = |other: &str| distance(&typed, other.as_bytes()).expect("short words");
        prop_assert!(to(&name) <= 1);
        // If another option is as near (`hp` for `hpa` and `thp`), either is right.
        let right = found.is_some_and(|found| found == name || to(found) <= to(&name));
        prop_assert!(right, "{:?} gave {found:?}", String::from_utf8_lossy(&typed));
    }

    #[test]
    fn distances_are_those_of_the_definition(a in "[abc]{0,6}", b in "[abc]{0,6}") {
        let (a, b) = (a.as_bytes(), b.as_bytes());
        prop_assert_eq!(distance(a, b), Some(distance_by_definition(a, b)));
    }

    #[test]
    fn numbers_in_any_notation_mean_the_same(value in 0u64..=u64::MAX) {
        let option = find(b"guard_sample").expect("an option that takes any 64-bit number");
        for text in [format!("{value}"), format!("{value:#x}"), format!("0{value:o}"), format!("+{value}")] {
            let mut options = Options::DEFAULT;
            prop_assert!(option.set(&mut options, text.as_bytes()), "{}", text);
            prop_assert_eq!(options.guard_sample, value, "{}", text);
        }
    }
}

/// The strategies above would prove little if they never reached an option: each option must accept
/// some of their values, and refuse some.
#[test]
fn the_generated_values_reach_every_option() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let values: Vec<String> = (0..2000)
        .map(|_| {
            value()
                .new_tree(&mut runner)
                .expect("no filter rejects it")
                .current()
        })
        .collect();
    for option in &TABLE {
        let taken = values
            .iter()
            .filter(|v| option.set(&mut Options::DEFAULT.clone(), v.as_bytes()));
        let taken = taken.count();
        assert!(
            taken > 20,
            "{} takes only {taken} of {}",
            option.name(),
            values.len()
        );
        assert!(
            matches!(
                option.name(),
                "prof_prefix" | "http" | "report_file" | "guard_sites"
            ) || taken < values.len(),
            "{}",
            option.name()
        );
    }
}

#[test]
fn strings_of_64_kib_are_read_to_the_end() {
    for pattern in [
        "a",
        ":",
        ",",
        "narenas:1,",
        "narenas:",
        "0",
        "prof_prefix:",
        "\u{7f}",
    ] {
        let long = pattern.repeat((64 << 10) / pattern.len());
        for begin in [
            "",
            "narenas:",
            "dirty_max:",
            "prof_prefix:",
            "stats_print_opts:",
        ] {
            for end in ["", ",narenas:7", ",confirm_conf:true"] {
                let string = format!("{begin}{long}{end}");
                let outcome = checks::strings(&[(Source::MallocConf, string.as_bytes())]);
                assert!(!end.contains("narenas") || outcome.options.narenas == Some(7));
            }
        }
    }
}
