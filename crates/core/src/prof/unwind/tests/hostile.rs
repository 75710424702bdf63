//! Tables and stacks that were damaged: a walk reads nothing that is not there, and ends.

use super::code::Pages;
use super::file::{File, table};
use super::walks::zeroed;
use crate::prof::unwind::Registers;
use crate::prof::unwind::bytes::Bytes;
use crate::prof::unwind::cache::RuleCache;
use crate::prof::unwind::memory::Memory;
use crate::prof::unwind::modules::Modules;
use crate::prof::unwind::modules::list::{Listed, ModuleList};
use crate::prof::unwind::step::{ASKED, WALK_FRAMES_MAX};
use crate::prof::unwind::table::packed::PackedRules;
use crate::prof::unwind::table::program::{self, COLUMNS, Where};
use crate::prof::unwind::table::{Entry, Table, expression};
use crate::prof::unwind::tag::tag_of;
use crate::prof::unwind::walk::walk_by;
use crate::sys::arch::Native;
use crate::testing::own_process;
use proptest::prelude::*;
use std::ops::Range;
use std::sync::OnceLock;
use std::vec;
use std::vec::Vec;

/// A library with few functions, and with frames of all kinds.
fn sample() -> &'static File {
    static SAMPLE: OnceLock<File> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        // Programs in Rust are linked with it.
        let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
        let path = maps
            .split_whitespace()
            .find(|word| word.ends_with("/libgcc_s.so.1"));
        File::open(path.expect("it is loaded")).expect("it has tables")
    })
}

/// The addresses of its code, as far as its tables cover them.
fn code(file: &File) -> Range<usize> {
    let (index, _) = file.index();
    let table = file.table();
    let covered = (0..index.len() * 4096).step_by(16).filter(|&pc| {
        let mut entry = Entry::NONE;
        table.find::<Native>(pc, &mut entry).is_ok()
    });
    let all: Vec<usize> = covered.collect();
    all[0]..all[all.len() - 1]
}

/// Bytes that lie right before memory that cannot be read.
fn before_the_end(bytes: &[u8]) -> (Pages, Range<usize>) {
    let mut pages = Pages::new(bytes.len().div_ceil(4096));
    let from = pages.bytes().len() - bytes.len();
    pages.bytes()[from..].copy_from_slice(bytes);
    let range = from..pages.bytes().len();
    (pages, range)
}

/// Everything that a walk computes from a table.
fn compute(table: &Table<'_>, pc: usize) {
    let mut entry = Entry::NONE;
    if table.find::<Native>(pc, &mut entry).is_err() {
        return;
    }
    use_entry(table.entries, &entry, pc);
}

fn use_entry(entries: Bytes<'_>, entry: &Entry, pc: usize) {
    let here = Registers::here();
    for asked in [ASKED, [0, 1, 2, 4], [12, 13, 14, 15]] {
        let mut rules = program::Rules::NONE;
        if program::run(entries, entry, pc, asked, &mut rules).is_none() {
            return;
        }
        _ = PackedRules::new::<Native>(&rules);
        for rule in rules.columns {
            if let Where::AtExpression(at) | Where::IsExpression(at) = rule.place() {
                let mut memory = Memory::unknown();
                expression::evaluate(entries, at, &here, &mut memory, Some(here.sp));
            }
        }
    }
}

/// Places, as shares of the whole, and what is written there.
fn damage() -> impl Strategy<Value = Vec<(f64, u8)>> {
    let byte = prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(0x7f), Just(0x80)];
    prop::collection::vec((0.0..1.0, byte), 0..24)
}

fn harm(bytes: &mut [u8], damage: &[(f64, u8)]) {
    for &(share, byte) in damage {
        let at = (share * bytes.len() as f64) as usize;
        bytes[at] = byte;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damaged_tables_are_read_within_their_bounds(
        of_index in damage(), of_entries in damage(), pcs in prop::collection::vec(0.0..1.1, 20),
    ) {
        let file = sample();
        static CODE: OnceLock<Range<usize>> = OnceLock::new();
        let code = CODE.get_or_init(|| code(file));
        let ((index, index_at), (entries, entries_at)) = (file.index(), file.entries());
        let (mut index, index_in) = before_the_end(index);
        let (mut entries, entries_in) = before_the_end(entries);
        harm(&mut index.bytes()[index_in.clone()], &of_index);
        harm(&mut entries.bytes()[entries_in.clone()], &of_entries);
        let table = table(
            (&index.bytes()[index_in], index_at),
            (&entries.bytes()[entries_in], entries_at),
        );
        for share in pcs {
            compute(&table, code.start + (share * code.len() as f64) as usize);
        }
    }

    #[test]
    fn any_bytes_may_be_a_program(
        bytes in prop::collection::vec(any::<u8>(), 1..300), split in 0..300_usize, pc in 0..500_usize,
        code_unit in 0..5_usize, data_unit in -9..9_i64, encoding in any::<u8>(),
    ) {
        let (mut pages, range) = before_the_end(&bytes);
        let at = 0x1000;
        let split = at + split.min(bytes.len());
        let entry = Entry {
            start: 100,
            common: (at, split),
            own: (split, at + bytes.len()),
            code_unit,
            data_unit,
            encoding: encoding & 0x7f,
            is_signal: false,
        };
        let entries = Bytes::of(&pages.bytes()[range], at);
        use_entry(entries, &entry, 100 + pc);
        let here = Registers::here();
        let mut memory = Memory::unknown();
        for at in [at, split] {
            expression::evaluate(entries, at, &here, &mut memory, None);
        }
    }
}

/// A program that is all one operation, at the end of its memory.
fn program_of(operation: u8, count: usize) -> (Pages, Range<usize>, Entry) {
    let (pages, range) = before_the_end(&vec![operation; count]);
    let entry = Entry {
        start: 0,
        common: (0, 0),
        own: (0, count),
        code_unit: 1,
        data_unit: -8,
        encoding: 0,
        is_signal: false,
    };
    (pages, range, entry)
}

#[test]
fn programs_and_expressions_without_end_are_given_up() {
    const REMEMBER: u8 = 0x0a;
    const NOTHING: u8 = 0;
    let run = |operation, count| {
        let (mut pages, range, entry) = program_of(operation, count);
        let entries = Bytes::of(&pages.bytes()[range], 0);
        let mut rules = program::Rules::NONE;
        program::run(entries, &entry, 10, [0; COLUMNS], &mut rules).is_some()
    };
    let max = program::OPERATIONS_MAX as usize;
    assert!(run(NOTHING, max) && !run(NOTHING, max + 1));
    // Each operation searches for the end that belongs to it.
    assert!(run(REMEMBER, 100) && !run(REMEMBER, 1000));
    // A jump to itself: length, operation, distance.
    let expression = [3, 0x2f, 0xfd, 0xff];
    let value = expression::evaluate(
        Bytes::of(&expression, 0x1000),
        0x1000,
        &Registers::here(),
        &mut Memory::unknown(),
        Some(1),
    );
    assert_eq!(value, None);
}

/// A module in memory that has a header, the tables of the sample at their places, and no code.
fn made_up(file: &File) -> Pages {
    let ((index, index_at), (entries, entries_at)) = (file.index(), file.entries());
    let size = (entries_at + entries.len()).max(index_at + index.len());
    let mut pages = Pages::new(size.div_ceil(4096));
    let bytes = pages.bytes();
    let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
    put(0, b"\x7fELF\x02\x01");
    put(32, &64_u64.to_le_bytes());
    put(54, &56_u16.to_le_bytes());
    put(56, &2_u16.to_le_bytes());
    // Loaded and readable: all of it. Then the index.
    for (at, kind, start, size) in [
        (64, 1_u32, 0, size),
        (120, 0x6474_e550, index_at, index.len()),
    ] {
        put(at, &kind.to_le_bytes());
        put(at + 4, &4_u32.to_le_bytes());
        put(at + 8, &start.to_le_bytes());
        put(at + 16, &start.to_le_bytes());
        put(at + 40, &size.to_le_bytes());
    }
    put(index_at, index);
    put(entries_at, entries);
    pages
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn walks_by_damaged_modules_over_any_stack_end(
        of_header in damage(), of_tables in damage(), is_cached in any::<bool>(),
        words in prop::collection::vec((0..4_u8, any::<u64>()), 300), from in 0..300_usize,
    ) {
        // Such a walk may leave its stack for memory that the thread of another test unmaps.
        own_process!(Ok(()));
        let file = sample();
        static CODE: OnceLock<Range<usize>> = OnceLock::new();
        let code = CODE.get_or_init(|| code(file)).clone();
        let mut module = made_up(file);
        if words[0].1 % 2 == 0 {
            harm(&mut module.bytes()[..200], &of_header);
        }
        harm(&mut module.bytes()[file.index().1..], &of_tables);
        let (start, end) = (module.start(), module.end());
        static LIST: OnceLock<&ModuleList> = OnceLock::new();
        // SAFETY: aligned memory of zeros that is never freed.
        let list = *LIST.get_or_init(|| unsafe { ModuleList::in_zeroed(zeroed::<ModuleList>()) });
        list.set(Listed { start, end, header: start, unwind: start + file.index().1 });
        let modules = Modules::without_loader();
        modules.set_list(list);
        // Return addresses, places on the stack, and anything.
        let bytes: Vec<u8> = (0..300)
            .flat_map(|i| {
                let (kind, any) = words[i];
                let any = any as usize;
                let word = match kind {
                    0 | 1 => start + code.start + any % code.len(),
                    2 => (i + any % 20) * 8,
                    _ => any,
                };
                word.to_le_bytes()
            })
            .collect();
        let (mut stack, range) = before_the_end(&bytes);
        let bottom = stack.start() + range.start;
        for (i, word) in words.iter().enumerate().filter(|(_, word)| word.0 == 2) {
            let at = range.start + i * 8;
            let to = bottom + (i + word.1 as usize % 20) * 8;
            stack.bytes()[at..at + 8].copy_from_slice(&to.to_le_bytes());
        }
        let rsp = bottom + from * 8;
        let rip = start + code.start + words[1].1 as usize % code.len();
        static CACHE: OnceLock<&RuleCache> = OnceLock::new();
        // SAFETY: aligned memory of zeros that is never freed.
        let cache = CACHE.get_or_init(|| unsafe { RuleCache::in_zeroed(zeroed::<RuleCache>()) });
        let mut out = [0; 64];
        let registers = Registers::new(rip, rsp, rsp + words[2].1 as usize % 64 * 8, rsp);
        let walk = walk_by(registers, &mut out, false, is_cached.then_some(cache), &modules);
        prop_assert!(walk.frames > 0 && walk.frames <= 64);
        // Each frame is above the one before, but for those of signals, which are few. A damaged
        // table may lead past the end of this stack to other memory, but memory ends each walk.
        prop_assert!(walk.frames + walk.omitted < WALK_FRAMES_MAX);
    }
}

#[test]
fn a_module_that_takes_another_s_place_does_not_get_its_rules() {
    let file = sample();
    // SAFETY: aligned memory of zeros that is never freed.
    let (cache, list) = unsafe {
        let cache: &RuleCache = RuleCache::in_zeroed(zeroed::<RuleCache>());
        (cache, ModuleList::in_zeroed(zeroed::<ModuleList>()))
    };
    let modules = Modules::without_loader();
    modules.set_list(list);
    let mut pages = made_up(file);
    let (start, end) = (pages.start(), pages.end());
    let unwind = start + file.index().1;
    list.set(Listed {
        start,
        end,
        header: start,
        unwind,
    });
    let tag = || {
        let mut module = modules.find(start).unwrap();
        let tag = tag_of(&mut module, Some(cache));
        (tag, module.is_checked)
    };
    let first = tag();
    assert!(first.1);
    assert_eq!(tag(), first);
    // The new one has one function more.
    pages.bytes()[file.index().1 + 8] += 1;
    let second = tag();
    assert!(second.1 && second.0 != first.0);
    // One without a table, and none at all: what is not there is not read.
    pages.bytes()[120] = 0;
    assert!(modules.find(start).unwrap().table().is_none());
    drop(pages);
    assert_ne!(tag().0, second.0);
    assert!(modules.find(start).unwrap().table().is_none());
}
