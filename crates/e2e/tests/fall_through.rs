//! The instructions of the fast paths on AArch64, where `callgrind` cannot count them: those from a
//! function's first one to its return, with no branch taken that has a condition. The compiler lays
//! code out so that this is the path of a call that the cache serves.
//!
//! `bench/instructions-aarch64.txt` has the recorded counts. The test runs if `MALLARD_TARGET`
//! names a system with AArch64.

use mallard_e2e::{Library, repository, target};
use object::{Object, ObjectSection, ObjectSymbol};

/// The counts by function, from the file's text.
fn recorded(text: &str) -> Vec<(&str, usize)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let (name, count) = (words.next(), words.next().map(str::parse));
            match (name, count) {
                (Some(name), Some(Ok(count))) => (name, count),
                _ => panic!("{line:?} is not a name and a count"),
            }
        })
        .collect()
}

/// The instructions from this address to the return; an error if the path leaves the function in
/// another way.
fn to_the_return(code: impl Fn(u64) -> Option<u32>, start: u64) -> Result<usize, String> {
    const RETURN: u32 = 0xd65f_03c0;
    const JUMP_BY_REGISTER: u32 = 0xd61f_0000;
    const CALL_BY_REGISTER: u32 = 0xd63f_0000;
    const REGISTER: u32 = 31 << 5;
    const LONGEST: usize = 200;
    let mut at = start;
    for count in 1..=LONGEST {
        let word = code(at).ok_or(format!("there is no code at {at:#x}"))?;
        at += 4;
        match word >> 26 {
            _ if word == RETURN => return Ok(count),
            // A jump: 26 bits, in instructions.
            0b00_0101 => at = at.wrapping_add_signed(i64::from((word << 6) as i32 >> 4) - 4),
            // A call, and one by a register.
            0b10_0101 => return Err(format!("the path calls a function before {at:#x}")),
            _ if word & !REGISTER == CALL_BY_REGISTER => {
                return Err(format!("the path calls a function before {at:#x}"));
            }
            // A jump by a register: where to, only a run can tell.
            _ if word & !REGISTER == JUMP_BY_REGISTER => {
                return Err(format!("the path leaves by a register before {at:#x}"));
            }
            _ => {}
        }
    }
    Err(format!("no return within {LONGEST} instructions"))
}

#[test]
fn no_fast_path_of_aarch64_grows_unseen() {
    let is_aarch64 = match target::target().triple() {
        Some(triple) => triple.starts_with("aarch64"),
        None => cfg!(target_arch = "aarch64"),
    };
    if !is_aarch64 {
        mallard_testing::skipped(format_args!("only the code of AArch64 is counted so"));
        return;
    }
    let library = &Library::release().shared;
    let data = std::fs::read(library).expect("the library was built");
    let file = object::File::parse(&*data).expect("it is an object file");
    let code = |at: u64| {
        let section = file.sections().find(|section| {
            (section.address()..section.address() + section.size()).contains(&at)
                && section.kind() == object::SectionKind::Text
        })?;
        let bytes = section.data_range(at, 4).ok()??;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let count = |name: &str| {
        let symbol = file
            .dynamic_symbols()
            .find(|symbol| symbol.name() == Ok(name))
            .unwrap_or_else(|| panic!("{name} is exported"));
        to_the_return(code, symbol.address()).unwrap_or_else(|why| panic!("{name}: {why}"))
    };
    let path = repository().join("bench/instructions-aarch64.txt");
    let text = std::fs::read_to_string(&path).expect("the record is a file of the repository");
    let changed: Vec<_> = recorded(&text)
        .into_iter()
        .map(|(name, then)| (name, then, count(name)))
        .filter(|(_, then, now)| now != then)
        .map(|(name, then, now)| format!("{name}: {now} instructions, recorded {then}"))
        .collect();
    assert!(
        changed.is_empty(),
        "enter what is intended in {}:\n{}",
        path.display(),
        changed.join("\n")
    );
}

#[test]
fn jumps_are_followed_and_calls_are_no_fast_path() {
    const NOTHING: u32 = 0xd503_201f;
    const RETURN: u32 = 0xd65f_03c0;
    // To the instruction after the next, and back over three.
    const FORTH: u32 = 0x1400_0002;
    const BACK: u32 = 0x17ff_fffd;
    const CALL: u32 = 0x9400_0001;
    // By register 16.
    const LEAVE: u32 = 0xd61f_0200;
    const CALL_BY_REGISTER: u32 = 0xd63f_0200;
    let count = |words: &[u32], start: u64| {
        to_the_return(|at| words.get(at as usize / 4).copied(), start).ok()
    };
    assert_eq!(count(&[NOTHING, RETURN], 0), Some(2));
    assert_eq!(count(&[FORTH, CALL, RETURN], 0), Some(2));
    assert_eq!(count(&[RETURN, CALL, CALL, BACK], 12), Some(2));
    assert_eq!(count(&[NOTHING, CALL, RETURN], 0), None);
    assert_eq!(count(&[NOTHING, CALL_BY_REGISTER, RETURN], 0), None);
    assert_eq!(count(&[NOTHING, LEAVE, RETURN], 0), None);
    assert_eq!(count(&[NOTHING], 0), None);
}
