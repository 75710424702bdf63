//! Runs the program of an entry up to an address: it says where the caller's registers are.
//!
//! Only four columns and the CFA (the stack pointer before the call) are followed, so that the
//! state is a few words. `remember_state` needs no copy of it: what lies between it and its
//! `restore_state` is skipped, if the address is behind that, and has nothing to restore otherwise.

use super::Entry;
use crate::prof::unwind::bytes::{Bytes, Reader};

/// Where a register of the caller is. The value is in the upper bits, the kind in the lowest three.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rule(i64);

/// A rule taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Where {
    /// The register has not changed; what holds for those that a table does not mention.
    Same,
    Undefined,
    /// In memory, at this distance from the CFA.
    At(i64),
    /// The value is the CFA plus this distance.
    Is(i64),
    In(u8),
    /// In memory at the address that an expression yields, or what it yields itself. The number is
    /// where the expression's length is.
    AtExpression(usize),
    IsExpression(usize),
}

const VALUE_BITS: u32 = 61;

impl Rule {
    pub const SAME: Rule = Rule(0);

    pub fn new(place: Where) -> Option<Rule> {
        let (kind, value) = match place {
            Where::Same => (0, 0),
            Where::Undefined => (1, 0),
            Where::At(offset) => (2, offset),
            Where::Is(offset) => (3, offset),
            Where::In(register) => (4, register.into()),
            Where::AtExpression(at) => (5, at as i64),
            Where::IsExpression(at) => (6, at as i64),
        };
        let packed = value << 3;
        (packed >> 3 == value).then_some(Rule(packed | kind))
    }

    pub fn place(self) -> Where {
        const { assert!(VALUE_BITS + 3 == i64::BITS) };
        let value = self.0 >> 3;
        match self.0 & 7 {
            0 => Where::Same,
            2 => Where::At(value),
            3 => Where::Is(value),
            4 => Where::In(value as u8),
            5 => Where::AtExpression(value as usize),
            6 => Where::IsExpression(value as usize),
            _ => Where::Undefined,
        }
    }
}

/// What the CFA is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cfa {
    Register(u8, i64),
    /// Where the expression's length is.
    Expression(usize),
}

/// What a program has said about the columns that were asked for.
pub struct Rules {
    pub cfa: Cfa,
    pub columns: [Rule; COLUMNS],
}

pub const COLUMNS: usize = 4;
/// More operations than any compiler's program has; a bound for hostile ones.
pub const OPERATIONS_MAX: u32 = 1 << 16;
/// No register.
const NONE: u8 = u8::MAX;

struct Machine<'a, 'e> {
    read: Reader<'a>,
    entry: &'e Entry,
    asked: [u8; COLUMNS],
    location: usize,
    budget: u32,
}

enum Operation {
    Nothing,
    Advance(usize),
    Set(u8, Where),
    Restore(u8),
    Cfa(Cfa),
    CfaRegister(u8),
    CfaOffset(i64),
    Remember,
    RestoreAll,
}

impl Rules {
    /// What holds before a program has said anything.
    pub const NONE: Rules = Rules {
        cfa: Cfa::Register(NONE, 0),
        columns: [Rule::SAME; COLUMNS],
    };
}

/// Finds the rules that hold at `pc`, which the entry covers. `None` if the program is broken.
#[cold]
#[inline(never)]
pub fn run(
    entries: Bytes<'_>,
    entry: &Entry,
    pc: usize,
    asked: [u8; COLUMNS],
    rules: &mut Rules,
) -> Option<()> {
    let mut machine = Machine {
        read: entries.reader(entry.common.0),
        entry,
        asked,
        location: entry.start,
        budget: OPERATIONS_MAX,
    };
    *rules = Rules::NONE;
    let mut initial = rules.columns;
    for (from, to) in [entry.common, entry.own] {
        machine.read = entries.reader(from);
        machine.read.end_at(to)?;
        machine.location = entry.start;
        machine.run(pc, rules, &initial)?;
        initial = rules.columns;
    }
    Some(())
}

impl Machine<'_, '_> {
    #[inline(always)]
    fn run(&mut self, pc: usize, rules: &mut Rules, initial: &[Rule; COLUMNS]) -> Option<()> {
        while !self.read.is_at_end() {
            match self.next()? {
                Operation::Nothing => {}
                Operation::Advance(to) if to > pc => return Some(()),
                Operation::Advance(to) => self.location = to,
                Operation::Set(register, place) => {
                    let rule = Rule::new(place)?;
                    self.set(register, rules, |_| rule);
                }
                Operation::Restore(register) => self.set(register, rules, |i| initial[i]),
                Operation::Cfa(cfa) => rules.cfa = cfa,
                Operation::CfaRegister(register) => match &mut rules.cfa {
                    Cfa::Register(of, _) => *of = register,
                    Cfa::Expression(_) => return None,
                },
                Operation::CfaOffset(offset) => match &mut rules.cfa {
                    Cfa::Register(_, by) => *by = offset,
                    Cfa::Expression(_) => return None,
                },
                Operation::Remember => self.pass_remembered(pc)?,
                // What it would restore was not skipped, so there is no `remember_state`.
                Operation::RestoreAll => return None,
            }
        }
        Some(())
    }

    fn set(&self, register: u8, rules: &mut Rules, rule: impl Fn(usize) -> Rule) {
        for (i, column) in rules.columns.iter_mut().enumerate() {
            if self.asked[i] == register {
                *column = rule(i);
            }
        }
    }

    /// Behind `remember_state`: goes on behind the `restore_state` that belongs to it, if the
    /// address is there too; else stays.
    fn pass_remembered(&mut self, pc: usize) -> Option<()> {
        let (at, location) = (self.read.at(), self.location);
        let mut depth = 1;
        while !self.read.is_at_end() {
            match self.next()? {
                Operation::Advance(to) if to > pc => break,
                Operation::Advance(to) => self.location = to,
                Operation::Remember => depth += 1,
                Operation::RestoreAll => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Some(());
            }
        }
        self.read.go_to(at);
        self.location = location;
        Some(())
    }

    fn next(&mut self) -> Option<Operation> {
        self.budget = self.budget.checked_sub(1)?;
        let code = self.read.u8()?;
        let low = code & 0x3f;
        Some(match code >> 6 {
            1 => self.advance(low.into())?,
            2 => {
                let offset = self.read.uleb()? as i64;
                Operation::Set(low, Where::At(self.in_units(offset)?))
            }
            3 => Operation::Restore(low),
            _ => self.other(low)?,
        })
    }

    fn other(&mut self, code: u8) -> Option<Operation> {
        use Operation::{
            Advance, CfaOffset, CfaRegister, Nothing, Remember, Restore, RestoreAll, Set,
        };
        Some(match code {
            0x00 => Nothing,
            // No table of the system has addresses relative to another place than themselves here.
            0x01 => Advance(self.read.address(self.entry.encoding, 0)?),
            0x02 => {
                let units = self.read.u8()?.into();
                self.advance(units)?
            }
            0x03 => {
                let units = self.read.u16()?.into();
                self.advance(units)?
            }
            0x04 => {
                let units = self.read.u32()? as usize;
                self.advance(units)?
            }
            0x05 => {
                let (register, offset) = (self.register()?, self.read.uleb()? as i64);
                Set(register, Where::At(self.in_units(offset)?))
            }
            0x06 => Restore(self.register()?),
            0x07 => Set(self.register()?, Where::Undefined),
            0x08 => Set(self.register()?, Where::Same),
            0x09 => Set(self.register()?, Where::In(self.register()?)),
            0x0a => Remember,
            0x0b => RestoreAll,
            0x0c => Operation::Cfa(Cfa::Register(self.register()?, self.read.uleb()? as i64)),
            0x0d => CfaRegister(self.register()?),
            0x0e => CfaOffset(self.read.uleb()? as i64),
            0x0f => Operation::Cfa(Cfa::Expression(self.block()?)),
            0x10 => Set(self.register()?, Where::AtExpression(self.block()?)),
            0x11 => Set(self.register()?, Where::At(self.signed_units()?)),
            0x12 => Operation::Cfa(Cfa::Register(self.register()?, self.signed_units()?)),
            0x13 => CfaOffset(self.signed_units()?),
            0x14 => {
                let (register, offset) = (self.register()?, self.read.uleb()? as i64);
                Set(register, Where::Is(self.in_units(offset)?))
            }
            0x15 => Set(self.register()?, Where::Is(self.signed_units()?)),
            0x16 => Set(self.register()?, Where::IsExpression(self.block()?)),
            // Whether the return address is signed from here on (aarch64): it is used without its
            // signature.
            0x2c | 0x2d => Nothing,
            // The size of arguments on the stack, for handlers of exceptions.
            0x2e => {
                self.read.uleb()?;
                Nothing
            }
            0x2f => {
                let (register, offset) = (self.register()?, self.read.uleb()? as i64);
                Set(register, Where::At(self.in_units(offset.checked_neg()?)?))
            }
            _ => return None,
        })
    }

    fn advance(&mut self, units: usize) -> Option<Operation> {
        let by = units.checked_mul(self.entry.code_unit)?;
        self.location.checked_add(by).map(Operation::Advance)
    }

    /// A register's number; [`NONE`] stands for those of a higher number, which no caller needs.
    #[inline(never)]
    fn register(&mut self) -> Option<u8> {
        Some(u8::try_from(self.read.uleb()?).unwrap_or(NONE))
    }

    fn in_units(&self, units: i64) -> Option<i64> {
        units.checked_mul(self.entry.data_unit)
    }

    #[inline(never)]
    fn signed_units(&mut self) -> Option<i64> {
        let units = self.read.sleb()?;
        self.in_units(units)
    }

    /// Passes over an expression; returns where its length is.
    #[inline(never)]
    fn block(&mut self) -> Option<usize> {
        let at = self.read.at();
        let length = self.read.uleb()? as usize;
        self.read.skip(length)?;
        Some(at)
    }
}
