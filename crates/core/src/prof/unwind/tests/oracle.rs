//! The rules that the tables' programs yield are those that gimli finds, for every function of the
//! libraries and programs that are here, at up to sixteen addresses each. Files of aarch64 are read
//! on any machine, at each row of their tables.

use super::file::File;
use crate::prof::unwind::table::packed::{Kind, PackedRules, asked};
use crate::prof::unwind::table::program::{self, Cfa, Rule, Where};
use crate::prof::unwind::table::{Entry, Missing, Table};
#[cfg(target_arch = "aarch64")]
use crate::sys::arch::Native as Aarch64;
#[cfg(not(target_arch = "aarch64"))]
use crate::sys::arch::aarch64_frames::Aarch64;
use crate::sys::arch::{Convention, Native};
use crate::testing::{lacks, skipped};
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindExpression, UnwindSection, UnwindTableRow, Vendor,
};
use std::path::PathBuf;
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
    /// Functions that keep their return address in a register of their own choice.
    odd: usize,
    /// Frames that the kernel makes.
    signals: usize,
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

fn entry_of<C: Convention>(table: &Table<'_>, pc: usize) -> Entry {
    let mut entry = Entry::NONE;
    assert_eq!(table.find::<C>(pc, &mut entry), Ok(()), "{pc:#x}");
    entry
}

/// Compares the rules at an address: all of them, or those that are packed.
fn compare<C: Convention>(file: &File, rules: &Rules, pc: usize, is_all: bool, count: &mut Count) {
    let table = file.table();
    let address = file.entries().1;
    let entry = entry_of::<C>(&table, pc);
    let registers: Vec<u8> = (0..u8::MAX).filter(|&i| C::saved_at(i).is_some()).collect();
    let others = registers.chunks_exact(4).filter(|_| is_all);
    let packed = asked::<C>();
    for asked in [&packed[..]].into_iter().chain(others) {
        let asked: [u8; 4] = asked.try_into().unwrap();
        let mut found = program::Rules::NONE;
        program::run(table.entries, &entry, pc, asked, &mut found).expect("a sound program");
        assert_eq!(found.cfa, cfa(rules, address), "{pc:#x}");
        for (register, rule) in asked.into_iter().zip(found.columns) {
            let expected = place(rules.register(Register(register.into())), address);
            assert_eq!(rule.place(), expected, "{pc:#x}, register {register}");
        }
        if asked == packed {
            count.places += 1;
            count.without_packed += PackedRules::new::<C>(&found).is_none() as usize;
        }
    }
}

/// At most `most` addresses of a function that has rows at these: each row's first and last ones by
/// turns.
fn places(rows: &[(usize, usize)], most: usize) -> Vec<usize> {
    let step = rows.len().div_ceil(most).max(1);
    (rows.iter().step_by(step).enumerate())
        .map(|(i, row)| if i % 2 == 0 { row.0 } else { row.1 - 1 })
        .collect()
}

fn compare_file<C: Convention>(path: &str, most: usize) -> Option<Count> {
    let file = File::open(path)?;
    let (bytes, address) = file.entries();
    let mut section = EhFrame::new(bytes, LittleEndian);
    if C::RETURN == Aarch64::RETURN {
        section.set_vendor(Vendor::AArch64);
    }
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
        if fde.cie().return_address_register().0 != C::RETURN.into() {
            // One function of arm64's C library, `rawmemchr`, which calls nothing but `strlen`.
            let mut entry = Entry::NONE;
            let found = file
                .table()
                .find::<C>(fde.initial_address() as usize, &mut entry);
            assert_eq!(found, Err(Missing::Broken));
            count.odd += 1;
            continue;
        }
        let mut bounds = Vec::new();
        let mut rows = fde.rows(&section, &bases, &mut context).unwrap();
        while let Some(row) = rows.next_row().unwrap() {
            if row.start_address() < row.end_address() {
                bounds.push((row.start_address() as usize, row.end_address() as usize));
            }
        }
        let places = places(&bounds, most);
        let mut next = places.iter().peekable();
        let mut rows = fde.rows(&section, &bases, &mut context).unwrap();
        while let Some(row) = rows.next_row().unwrap() {
            while let Some(pc) = next.next_if(|&&pc| row.contains(pc as u64)) {
                compare::<C>(&file, row, *pc, *pc == places[0], &mut count);
            }
        }
        assert_eq!(next.next(), None);
        let entry = entry_of::<C>(&file.table(), places[0]);
        assert_eq!(entry.start, fde.initial_address() as usize);
        assert_eq!(entry.is_signal, fde.is_signal_trampoline());
        count.functions += 1;
        count.signals += entry.is_signal as usize;
    }
    Some(count)
}

fn expect_equal(paths: &[&str]) {
    let mut any = false;
    for path in paths {
        match compare_file::<Native>(path, PLACES) {
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
    let (triple, loader) = if Native::RETURN == Aarch64::RETURN {
        ("aarch64-linux-gnu", "/lib/ld-linux-aarch64.so.1")
    } else {
        ("x86_64-linux-gnu", "/lib64/ld-linux-x86-64.so.2")
    };
    let names = ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "libcrypto.so.3"];
    let mut paths: Vec<String> = (names.iter())
        .map(|name| std::format!("/lib/{triple}/{name}"))
        .collect();
    paths.push(loader.into());
    paths.push(std::format!("/usr/lib/{triple}/libstdc++.so.6"));
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    expect_equal(&paths);
}

/// The folder that `scripts/setup-cross.sh` fills.
fn cross_folder() -> PathBuf {
    let from = |name, below: &str| std::env::var_os(name).map(|at| PathBuf::from(at).join(below));
    from("MALLARD_CROSS", "")
        .or_else(|| from("XDG_CACHE_HOME", "mallard/cross"))
        .or_else(|| from("HOME", ".cache/mallard/cross"))
        .unwrap_or_default()
}

/// Compares all rows of a library of the folder; how many functions.
fn compare_arm64(library: &str) -> usize {
    let path = cross_folder().join(library);
    let path = path.to_str().expect("a path of the tests");
    match compare_file::<Aarch64>(path, usize::MAX) {
        Some(count) => {
            std::eprintln!("{path}: {count:?}");
            assert!(count.functions > 0 && count.odd <= 1);
            count.functions
        }
        None => {
            skipped(format_args!("{path} is not here: scripts/setup-cross.sh"));
            0
        }
    }
}

#[test]
fn rules_of_arm64_s_c_library_are_those_of_gimli() {
    for library in [
        "aarch64/usr/aarch64-linux-gnu/lib",
        "glibc/lib/aarch64-linux-gnu",
    ] {
        for name in ["libc.so.6", "libm.so.6", "ld-linux-aarch64.so.1"] {
            compare_arm64(&std::format!("{library}/{name}"));
        }
    }
}

/// Where the end-to-end tests, and `cargo build`, leave it.
#[test]
fn rules_of_mallard_for_arm64_are_those_of_gimli() {
    let this = std::env::current_exe().unwrap();
    let targets = this.ancestors().skip(3).take(2);
    let built = "mallard-c/aarch64-unknown-linux-gnu/release/libmallard.so";
    match targets.map(|at| at.join(built)).find(|path| path.exists()) {
        Some(path) => assert!(compare_arm64(path.to_str().unwrap()) > 500),
        None => skipped(format_args!("{built} is not there")),
    }
}

#[test]
fn rules_of_arm64_s_other_libraries_are_those_of_gimli() {
    for name in [
        "libgcc_s.so.1",
        "libstdc++.so.6",
        "libgomp.so.1",
        "libitm.so.1",
    ] {
        compare_arm64(&std::format!("aarch64/usr/aarch64-linux-gnu/lib/{name}"));
    }
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
}

/// The packed rules of a function with this CFA, and these rules for the frame pointer, the return
/// address and the fourth register.
fn packed<C: Convention>(cfa: Cfa, [fp, returns, fourth]: [Where; 3]) -> Option<PackedRules> {
    let columns = [fp, returns, Where::Same, fourth].map(|place| Rule::new(place).unwrap());
    PackedRules::new::<C>(&program::Rules { cfa, columns })
}

#[cfg(target_arch = "x86_64")]
#[test]
fn usual_rules_are_packed() {
    use crate::prof::unwind::registers::{FP, RETURN, SP};
    let at = Where::At;
    let packed = |cfa, fp, returns| packed::<Native>(cfa, [fp, returns, at(-24)]);
    let usual = packed(Cfa::Register(FP, 16), at(-16), at(-8)).unwrap();
    assert_eq!(
        (usual.distance(), usual.fp_below(), usual.fourth_below()),
        (16, 16, 24)
    );
    let none = packed(Cfa::Register(SP, 8), Where::Same, at(-8)).unwrap();
    assert_eq!(
        (none.distance(), none.fp_below(), none.fourth_below()),
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

#[test]
fn usual_rules_of_aarch64_are_packed() {
    const FP: u8 = Aarch64::FP;
    const SP: u8 = Aarch64::SP;
    let at = Where::At;
    let packed = |cfa, fp, returns| packed::<Aarch64>(cfa, [fp, returns, returns]);
    let parts = |packed: PackedRules| {
        (
            packed.kind(),
            packed.distance(),
            packed.fp_below(),
            packed.fourth_below(),
        )
    };
    // The record may lie anywhere, the return address need not be saved, and a frame may be empty.
    for (cfa, fp, returns, expected) in [
        (
            Cfa::Register(SP, 96),
            at(-96),
            at(-88),
            (Kind::FromSp, 96, 96, 88),
        ),
        (
            Cfa::Register(FP, 16),
            at(-16),
            at(-8),
            (Kind::FromFp, 16, 16, 8),
        ),
        (
            Cfa::Register(SP, 32),
            Where::Same,
            at(-32),
            (Kind::FromSp, 32, 0, 32),
        ),
        (
            Cfa::Register(SP, 0),
            Where::Same,
            Where::Same,
            (Kind::FromSp, 0, 0, 0),
        ),
    ] {
        assert_eq!(parts(packed(cfa, fp, returns).unwrap()), expected);
    }
    assert_eq!(
        packed(Cfa::Register(SP, 0), Where::Same, Where::Undefined),
        Some(PackedRules::OUTERMOST)
    );
    for odd in [
        packed(Cfa::Register(19, 16), at(-16), at(-8)),
        packed(Cfa::Register(SP, 16), at(-16), Where::In(17)),
        packed(Cfa::Register(SP, -8), at(-16), at(-8)),
        packed(Cfa::Register(SP, 16), at(-16), at(0)),
        packed(Cfa::Expression(5), at(-16), at(-8)),
    ] {
        assert_eq!(odd, None);
    }
}

#[test]
fn calls_of_aarch64_are_known_by_their_bytes() {
    let ends = |instruction: u32| {
        let [a, b, c, d] = instruction.to_le_bytes();
        Aarch64::ends_with_call([0, 0, 0, 0, a, b, c, d])
    };
    // `bl` forward and back, `blr x8`, `blraa x8, sp`, `blraaz x8`, `blrab x0, x1`, `blrabz x30`.
    for call in [
        0x9400_0001,
        0x97ff_ffff,
        0xd63f_0100,
        0xd73f_091f,
        0xd63f_091f,
        0xd73f_0c01,
        0xd63f_0fdf,
    ] {
        assert!(ends(call), "{call:#x}");
    }
    // `b`, `br x8`, `ret`, `retaa`, `braa x8, sp`, `svc #0`, `nop`, `cbz x0, .`
    for other in [
        0x1400_0001,
        0xd61f_0100,
        0xd65f_03c0,
        0xd65f_0bff,
        0xd71f_091f,
        0xd400_0001,
        0xd503_201f,
        0xb400_0000,
    ] {
        assert!(!ends(other), "{other:#x}");
    }
}
