//! Properties of every name and every MIB.

extern crate std;

use super::{checks, first, rows};
use crate::ctl::DEPTH;
use crate::testing::alone;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::string::String;
use std::vec::Vec;
use std::{format, vec};

/// A name of the tree with its numbers replaced by others, some of them out of range.
fn known() -> impl Strategy<Value = String> {
    let paths: Vec<String> = rows().into_iter().map(|row| row.path).collect();
    let number = prop_oneof![
        4 => (0u64..40).prop_map(|n| format!("{n}")),
        2 => select(vec!["4096", "4097", "4095", "4098", "18446744073709551615", "18446744073709551616",
            "007", "", "-1", "+1", " 1", "1 ", "0x1", "1e3", "٣"]).prop_map(String::from),
        1 => any::<u64>().prop_map(|n| format!("{n}")),
    ];
    (select(paths), prop::collection::vec(number, 2)).prop_map(|(path, numbers)| {
        let mut numbers = numbers.into_iter();
        let components = path.split('.').map(|component| match component {
            number if number.starts_with('<') => numbers.next().unwrap_or_default(),
            name => name.into(),
        });
        components.collect::<Vec<_>>().join(".")
    })
}

/// A name with some bytes changed, truncated, or followed by another one.
fn spoilt() -> impl Strategy<Value = Vec<u8>> {
    let change = prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| (0, at, byte)),
        (any::<Index>(), select(b".0<".to_vec())).prop_map(|(at, byte)| (1, at, byte)),
        any::<Index>().prop_map(|at| (2, at, 0)),
    ];
    let changes = prop::collection::vec(change, 0..3);
    (known(), changes, any::<bool>()).prop_map(|(name, changes, twice)| {
        let mut name = name.into_bytes();
        for (kind, at, byte) in changes {
            let at = at.index(name.len() + 1);
            match kind {
                0 if at < name.len() => name[at] = byte,
                1 => name.insert(at, byte),
                _ => name.truncate(at),
            }
        }
        if twice {
            let again = name.clone();
            name.push(b'.');
            name.extend(again);
        }
        name
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn names_of_the_tree_keep_the_rules(name in known()) {
        crate::testing::own_process!(Ok(()));
        let _alone = alone();
        checks::name(name.as_bytes());
    }

    #[test]
    fn names_that_are_nearly_right_keep_the_rules(name in spoilt()) {
        crate::testing::own_process!(Ok(()));
        let _alone = alone();
        checks::name(&name);
    }

    #[test]
    fn any_bytes_are_a_name_that_does_not_exist(name in prop::collection::vec(any::<u8>(), 0..300)) {
        crate::testing::own_process!(Ok(()));
        let _alone = alone();
        checks::name(&name);
    }

    #[test]
    fn any_numbers_are_a_mib(mib in prop::collection::vec(any::<usize>(), 0..=DEPTH + 1)) {
        crate::testing::own_process!(Ok(()));
        let _alone = alone();
        checks::mib(&mib);
    }

    #[test]
    fn small_numbers_are_a_mib(bytes in prop::collection::vec(any::<u8>(), 0..=2 * DEPTH + 2)) {
        crate::testing::own_process!(Ok(()));
        let _alone = alone();
        let mib: Vec<usize> = checks::mib_of(&bytes).collect();
        checks::mib(&mib);
    }
}

#[test]
fn names_of_64_kib_do_not_exist() {
    crate::testing::own_process!();
    let _alone = alone();
    for pattern in [
        "a",
        ".",
        "arena.",
        "arena.0.",
        "stats.arenas.0.bins.0.",
        "9",
    ] {
        let name = pattern.repeat((64 << 10) / pattern.len());
        checks::name(name.as_bytes());
        checks::name(format!("arenas.bin.{name}").as_bytes());
        checks::name(format!("arenas.bin.{name}.size").as_bytes());
    }
    let zeros = "0".repeat(64 << 10);
    // Any number of digits, as long as it is a number.
    checks::name(format!("arenas.bin.{zeros}1.size").as_bytes());
}

/// The strategies would prove little if they generated no existing names.
#[test]
fn the_names_made_up_reach_every_branch() {
    crate::testing::own_process!();
    use proptest::strategy::ValueTree;
    let _alone = alone();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut found = std::collections::BTreeSet::new();
    for _ in 0..20_000 {
        let name = known().new_tree(&mut runner).expect("no filter").current();
        if crate::ctl::name_to_mib(name.as_bytes(), &mut [0; DEPTH]).is_ok() {
            found.insert(name);
        }
    }
    let missing: Vec<String> = (rows().iter().map(first))
        .filter(|name| !name.contains(".0.") && !found.contains(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(found.iter().any(|name| name.starts_with("arenas.bin.")));
}
