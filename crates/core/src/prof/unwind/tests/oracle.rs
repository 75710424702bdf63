//! The rules that the tables' programs yield are those that gimli finds, for every function of the
//! libraries and programs that are here, at up to sixteen addresses each.

use super::file::File;
use crate::prof::unwind::registers::{FP, RETURN, SP};
use crate::prof::unwind::table::packed::{ASKED, PackedRules};
use crate::prof::unwind::table::program::{self, Cfa, Rule, Where};
use crate::prof::unwind::table::{Entry, Table};
use crate::testing::{lacks, skipped};
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindExpression, UnwindSection, UnwindTableRow,
};
use std::string::String;
use std::vec::Vec;

/// Addresses of a function that are compared, at most.
const PLACES: usize = 16;

type Rules = UnwindTableRow<usize>;

/// What was compared.
#[derive(Default, Debug)]
struct Count {
    functions: usize,
    places: usize,
    /// Of the places, those whose rules cannot be packed.
    without_packed: usize,
}

/// An expression as the tables have it: the length, which is shorter than 128 bytes, is before it.
fn expression(of: &UnwindExpression<usize>, address: usize) -> usize {
    let length_size = if of.length < 128 { 1 } else { 2 };
    address + of.offset - length_size
}

fn place(rule: Option<RegisterRule<usize>>, address: usize) -> Where {
    match rule {
        None | Some(RegisterRule::SameValue) => Where::Same,
        Some(RegisterRule::Undefined) => Where::Undefined,
        Some(RegisterRule::Offset(offset)) => Where::At(offset),
        Some(RegisterRule::ValOffset(offset)) => Where::Is(offset),
        Some(RegisterRule::Register(register)) => Where::In(register.0 as u8),
        Some(RegisterRule::Expression(of)) => Where::AtExpression(expression(&of, address)),
        Some(RegisterRule::ValExpression(of)) => Where::IsExpression(expression(&of, address)),
        other => panic!("{other:?}"),
    }
}

fn cfa(rules: &Rules, address: usize) -> Cfa {
    match rules.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Cfa::Register(register.0 as u8, *offset),
        CfaRule::Expression(of) => Cfa::Expression(expression(of, address)),
    }
}

fn entry_of(table: &Table<'_>, pc: usize) -> Entry {
    let mut entry = Entry::NONE;
    assert_eq!(table.find(pc, &mut entry), Ok(()), "{pc:#x}");
    entry
}

/// Compares the rules at an address: all of them, or those that are packed.
fn compare(file: &File, rules: &Rules, pc: usize, is_all: bool, count: &mut Count) {
    let table = file.table();
    let address = file.entries().1;
    let entry = entry_of(&table, pc);
    let all = [
        ASKED,
        [0, 1, 2, 4],
        [5, 8, 9, 10],
        [11, 12, 13, 14],
        [15; 4],
    ];
    for asked in all.into_iter().take(if is_all { all.len() } else { 1 }) {
        let mut found = program::Rules::NONE;
        program::run(table.entries, &entry, pc, asked, &mut found).expect("a sound program");
        assert_eq!(found.cfa, cfa(rules, address), "{pc:#x}");
        for (register, rule) in asked.into_iter().zip(found.columns) {
            let expected = place(rules.register(Register(register.into())), address);
            assert_eq!(rule.place(), expected, "{pc:#x}, register {register}");
        }
        if asked == ASKED {
            count.places += 1;
            count.without_packed += PackedRules::new(&found).is_none() as usize;
        }
    }
}

/// Addresses of a function that has rows at these: each row's first and last ones by turns.
fn places(rows: &[(usize, usize)]) -> Vec<usize> {
    let step = rows.len().div_ceil(PLACES).max(1);
    (rows.iter().step_by(step).enumerate())
        .map(|(i, row)| if i % 2 == 0 { row.0 } else { row.1 - 1 })
        .collect()
}

fn compare_file(path: &str) -> Option<Count> {
    let file = File::open(path)?;
    let (bytes, address) = file.entries();
    let section = EhFrame::new(bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(address as u64);
    let mut context = UnwindContext::new();
    let mut count = Count::default();
    let mut common = std::collections::HashMap::new();
    let mut entries = section.entries(&bases);
    while let Some(next) = entries.next().expect("a sound table") {
        let CieOrFde::Fde(partial) = next else {
            continue;
        };
        let fde = partial
            .parse(|section, bases, offset| {
                let read = || section.cie_from_offset(bases, offset);
                common.entry(offset).or_insert_with(read).clone()
            })
            .expect("a sound entry");
        if fde.len() == 0 {
            continue;
        }
        let mut bounds = Vec::new();
        let mut rows = fde.rows(&section, &bases, &mut context).unwrap();
        while let Some(row) = rows.next_row().unwrap() {
            if row.start_address() < row.end_address() {
                bounds.push((row.start_address() as usize, row.end_address() as usize));
            }
        }
        let places = places(&bounds);
        let mut next = places.iter().peekable();
        let mut rows = fde.rows(&section, &bases, &mut context).unwrap();
        while let Some(row) = rows.next_row().unwrap() {
            while let Some(pc) = next.next_if(|&&pc| row.contains(pc as u64)) {
                compare(&file, row, *pc, *pc == places[0], &mut count);
            }
        }
        assert_eq!(next.next(), None);
        let entry = entry_of(&file.table(), places[0]);
        assert_eq!(entry.start, fde.initial_address() as usize);
        assert_eq!(entry.is_signal, fde.is_signal_trampoline());
        count.functions += 1;
    }
    Some(count)
}

fn expect_equal(paths: &[&str]) {
    let mut any = false;
    for path in paths {
        match compare_file(path) {
            Some(count) => {
                std::eprintln!("{path}: {count:?}");
                any |= count.functions > 0;
            }
            None => skipped(format_args!("{path} is not here, or has no unwind tables")),
        }
    }
    assert!(any || paths.len() == 1, "nothing was compared");
}

#[test]
fn rules_of_the_system_s_libraries_are_those_of_gimli() {
    let system = "/lib/x86_64-linux-gnu/";
    let names = ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "libcrypto.so.3"];
    let paths: Vec<String> = names.map(|name| String::from(system) + name).into();
    let mut paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    paths.push("/lib64/ld-linux-x86-64.so.2");
    paths.push("/usr/lib/x86_64-linux-gnu/libstdc++.so.6");
    expect_equal(&paths);
}

#[test]
fn rules_of_programs_in_rust_and_go_are_those_of_gimli() {
    let this = std::env::current_exe().unwrap();
    expect_equal(&[this.to_str().unwrap()]);
    // Functions of Go itself have no such tables: they keep a frame pointer. C that is linked with
    // them has some.
    let name = std::format!("mallard-go-{}", std::process::id());
    let program = std::env::temp_dir().join(name);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../e2e/programs/cgo.go");
    if lacks(&["go", "cc"]) {
        return;
    }
    let built = std::process::Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(source)
        .env("CGO_ENABLED", "1")
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    expect_equal(&[program.to_str().unwrap()]);
    std::fs::remove_file(program).unwrap();
}

#[test]
fn rules_of_node_are_those_of_gimli() {
    if !lacks(&["node"]) {
        expect_equal(&["/usr/bin/node"]);
    }
}

#[test]
fn rules_of_java_are_those_of_gimli() {
    if lacks(&["javac"]) {
        return;
    }
    let folders = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten();
    let library = |folder: std::fs::DirEntry| folder.path().join("lib/server/libjvm.so");
    let found = folders.flatten().map(library).find(|path| path.exists());
    match found {
        Some(path) => expect_equal(&[path.to_str().unwrap()]),
        None => skipped("Java is not Debian's, in /usr/lib/jvm"),
    }
}

#[test]
fn rules_of_chromium_are_those_of_gimli() {
    if !lacks(&["chromium"]) {
        expect_equal(&["/usr/lib/chromium/chromium"]);
    }
}

#[test]
fn rules_are_packed_without_loss() {
    for distance in [-8, 0, 8, i64::from(i32::MIN), 1 << 59] {
        for rule in [Where::At(distance), Where::Is(distance)] {
            assert_eq!(Rule::new(rule).unwrap().place(), rule);
        }
    }
    for rule in [
        Where::Same,
        Where::Undefined,
        Where::In(15),
        Where::AtExpression(1 << 47),
    ] {
        assert_eq!(Rule::new(rule).unwrap().place(), rule);
    }
    assert!(Rule::new(Where::At(1 << 60)).is_none());
    let packed = |cfa, fp, returns| {
        let columns =
            [fp, returns, Where::Same, Where::At(-24)].map(|place| Rule::new(place).unwrap());
        PackedRules::new(&program::Rules { cfa, columns })
    };
    let at = Where::At;
    let usual = packed(Cfa::Register(FP, 16), at(-16), at(-8)).unwrap();
    assert_eq!(
        (usual.distance(), usual.fp_below(), usual.base_below()),
        (16, 16, 24)
    );
    let none = packed(Cfa::Register(SP, 8), Where::Same, at(-8)).unwrap();
    assert_eq!(
        (none.distance(), none.fp_below(), none.base_below()),
        (8, 0, 24)
    );
    assert_eq!(
        packed(Cfa::Register(SP, 8), at(-16), Where::Undefined),
        Some(PackedRules::OUTERMOST)
    );
    for odd in [
        packed(Cfa::Register(10, 8), at(-16), at(-8)),
        packed(Cfa::Register(RETURN, 8), at(-16), at(-8)),
        packed(Cfa::Register(SP, -8), at(-16), at(-8)),
        packed(Cfa::Register(SP, 1 << 20), at(-16), at(-8)),
        packed(Cfa::Register(SP, 12), at(-16), at(-8)),
        packed(Cfa::Register(SP, 8), at(-12), at(-8)),
        packed(Cfa::Register(SP, 8), at(16), at(-8)),
        packed(Cfa::Register(SP, 8), at(-(1 << 20)), at(-8)),
        packed(Cfa::Register(SP, 8), at(-16), at(0)),
        packed(Cfa::Expression(5), at(-16), at(-8)),
    ] {
        assert_eq!(odd, None);
    }
}
