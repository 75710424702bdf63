//! The whole tree of jemalloc 5.3.1's names, asked one by one by `programs/names.c`.

use std::collections::BTreeMap;

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox};

/// The code of "no such name" in C.
const ENOENT: i32 = 2;

const NAMES: &str = include_str!("../names/jemalloc-5.3.1.txt");

/// Names that answer ENOENT, by how they begin or end, and why.
const ABSENT: &[&str] = &[
    // Functions that see every call: no fast path asks for any.
    "experimental.hooks.install",
    "experimental.hooks.remove",
    // Heap profiles, as in a jemalloc that was built without them.
    "experimental.hooks.prof_",
    "experimental.prof_recent.",
    "prof.stats.",
    "prof.dump",
    "prof.prefix",
    "prof.reset",
    "prof.log_",
    "thread.prof.name",
    // The page allocator that `hpa:true` would put beside the usual one.
    "stats.arenas.<i>.hpa_",
    // Not yet.
    "opt.malloc_conf.",
    "thread.tcache.ncached_max.",
    "arena.<i>.oversize_threshold",
    "stats.metadata_edata",
    "stats.metadata_rtree",
    "stats.arenas.<i>.metadata_edata",
    "stats.arenas.<i>.metadata_rtree",
    "experimental.",
];

struct Name {
    name: &'static str,
    access: &'static str,
    bytes: usize,
}

fn names() -> impl Iterator<Item = Name> {
    let lines = NAMES.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let (name, rest) = line.split_once(' ').expect("a name and its access");
        let (access, c_type) = rest.split_once(' ').unwrap_or((rest, ""));
        Name {
            name,
            access,
            bytes: bytes(c_type),
        }
    })
}

fn bytes(c_type: &str) -> usize {
    match c_type {
        "" => 0,
        "bool" => 1,
        "unsigned" | "uint32_t" => 4,
        _ => 8,
    }
}

/// These need a new value to answer, or make something, and have tests of their own.
fn has_a_test_of_its_own(name: &str) -> bool {
    [
        "arenas.lookup",
        "arena.<i>.name",
        "experimental.utilization.query",
        "experimental.utilization.batch_query",
        "experimental.batch_alloc",
        "experimental.hooks.safety_check_abort",
        "experimental.hooks.thread_event",
        "thread.tcache.ncached_max.read_sizeclass",
    ]
    .contains(&name)
}

#[test]
fn every_name_of_jemalloc_answers_or_is_known_not_to() {
    let program = Source::new("names.c")
        .flags(&["-O1", "-rdynamic"])
        .compile();
    let asked: Vec<Name> = names()
        .filter(|name| !has_a_test_of_its_own(name.name))
        .collect();
    assert!(asked.len() > 400, "{}", asked.len());
    let input: String = asked
        .iter()
        .map(
            |Name {
                 name,
                 access,
                 bytes,
             }| {
                let name = name.replace("<i>", "0").replace("<j>", "0");
                format!("{name} {access} {bytes}\n")
            },
        )
        .collect();
    for library in Library::under_test() {
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        let outcome = sandbox
            .run_with_input(sandbox.command(&program).arg("walk"), input.as_bytes())
            .expect("the program runs");
        let told = outcome.expect_success();
        let answers: BTreeMap<&str, (&str, &str)> = told
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                Some((words.next()?, (words.next()?, words.next()?)))
            })
            .collect();
        for Name { name, bytes, .. } in &asked {
            let absent = ABSENT.iter().any(|start| name.starts_with(start));
            let numbered = name.replace("<i>", "0").replace("<j>", "0");
            let expected = match absent {
                true => (ENOENT.to_string(), bytes.to_string()),
                false => ("0".into(), bytes.to_string()),
            };
            let (answer, size) = answers[numbered.as_str()];
            assert_eq!(
                (answer.into(), size.into()),
                expected,
                "{name} on the {} build",
                library.name
            );
        }
    }
}
