//! From a frame to its caller.
//!
//! ```text
//!  rules in the cache       nearly always: one word says all
//!  table of the module      its rules are packed, and cached
//!   … that do not fit       evaluated each time: frames of signals, aligned stacks, linkage tables
//!  no table                 by the frame pointer, every word probed
//!  no frame pointer either  code made at run time: by the next address behind a similar call
//! ```
//!
//! Nothing that is read is trusted: a step that does not lead to a higher place of the stack, or to
//! memory that cannot be read, ends the walk.

use super::cache::RuleCache;
use super::frames::{End, Frames};
use super::memory::{Memory, bytes_now, is_readable};
use super::modules::{Module, Modules};
use super::registers::{BASE, FP, RETURN, Registers, SP};
use super::table::packed::{ASKED, FRAME_BYTES_MAX, Kind, PackedRules};
use super::table::program::{self, Cfa, Rules, Where};
use super::table::{Entry, Missing, Table, expression};
use super::tag::tag_of;
use crate::sys::arch::CODE_END;
use crate::sys::arch::frames::{self, CONTEXT_AT, RETURN_AT, RETURN_FROM_SIGNAL};

/// The most frames of one walk, which bounds its time.
pub const WALK_FRAMES_MAX: usize = 1 << 16;
/// The most frames of signals, each of which may lead anywhere.
const SIGNAL_FRAMES_MAX: u32 = 16;
const WORD: usize = size_of::<usize>();
/// How many words of the stack are searched for a return address.
const SEARCHED_WORDS: usize = 512;
/// Code that is made at run time has its callers within this many bytes: the most that HotSpot and
/// V8 reserve for code.
const CODE_REACH_BYTES: usize = 1 << 28;

/// The module that a walk is in, and what its rules are filed under.
struct Entered {
    module: Module,
    tag: u64,
}

impl Entered {
    const NONE: Entered = Entered {
        module: Module::NONE,
        tag: 0,
    };
}

/// What the program counter of the first frame points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstPc {
    /// An instruction that has not run.
    #[cfg(test)]
    Instruction,
    /// The instruction behind a call.
    Return,
}

/// A walk under way.
pub struct Walker<'a> {
    registers: Registers,
    /// Whether the program counter is at an instruction that has not run, not at one behind a call.
    is_exact: bool,
    signals: u32,
    /// The stack, of which pages may be known from earlier walks.
    pub stack: Memory,
    /// What a chain of frame pointers or a search leads to, of which this walk knows pages.
    strayed: Memory,
    entered: Entered,
    /// The module entered before the last one, because callers often lead back to it.
    before: Entered,
    cache: Option<&'a RuleCache>,
    modules: &'a Modules,
}

impl<'a> Walker<'a> {
    #[inline(always)]
    pub fn new(
        registers: Registers,
        begins: FirstPc,
        cache: Option<&'a RuleCache>,
        modules: &'a Modules,
        stack: Memory,
    ) -> Walker<'a> {
        Walker {
            registers,
            is_exact: begins != FirstPc::Return,
            signals: 0,
            stack,
            strayed: Memory::unknown(),
            entered: Entered::NONE,
            before: Entered::NONE,
            cache,
            modules,
        }
    }

    /// Walks to the end; the frames that it meets go to `out`.
    #[inline(always)]
    pub fn run(&mut self, out: &mut Frames<'_>) -> End {
        for _ in 0..WALK_FRAMES_MAX {
            // One less is within an instruction that has not run, as it is within a call.
            out.push(self.registers.pc.wrapping_add(self.is_exact.into()));
            if let Err(end) = self.step() {
                return end;
            }
        }
        End::TooMany
    }

    /// Goes on to the caller.
    #[inline(always)]
    fn step(&mut self) -> Result<(), End> {
        let at = self.registers.pc.wrapping_sub(!self.is_exact as usize);
        if !self.entered.module.contains(at) {
            self.enter_module(at)?;
        }
        let cached = self.cache.and_then(|cache| cache.get(at, self.entered.tag));
        let packed = match cached {
            Some(bits) => Some(PackedRules::from_bits(bits)),
            None => self.packed_from_table(at)?,
        };
        match packed {
            Some(packed) => self.by_packed(packed),
            None => self.by_rules(at),
        }
    }

    /// Goes on to the caller, which has these registers.
    #[inline(always)]
    fn go_to_caller(&mut self, pc: usize, sp: usize, fp: usize, base: usize) -> Result<(), End> {
        if pc == 0 {
            return Err(End::Complete);
        }
        self.registers = Registers::new(pc, sp, fp, base);
        self.is_exact = false;
        Ok(())
    }

    #[inline(always)]
    fn by_packed(&mut self, packed: PackedRules) -> Result<(), End> {
        let origin = match packed.kind() {
            Kind::FromSp => self.registers.sp,
            Kind::FromFp => self.registers.fp,
            Kind::Outermost => return Err(End::Complete),
            Kind::Uncovered | Kind::Checked => return self.by_frame_pointer(),
        };
        let cfa = origin.wrapping_add(packed.distance());
        self.check_rise(cfa)?;
        let pc = self
            .stack
            .word(cfa.wrapping_add_signed(RETURN_AT as isize))
            .ok_or(End::Unreadable)?;
        let (mut fp, mut base) = (self.registers.fp, self.registers.base);
        let (fp_below, base_below) = (packed.fp_below(), packed.base_below());
        if fp_below != 0 {
            let at = cfa.wrapping_sub(fp_below);
            fp = self.stack.word(at).ok_or(End::Unreadable)?;
        }
        if base_below != 0 {
            let at = cfa.wrapping_sub(base_below);
            base = self.stack.word(at).ok_or(End::Unreadable)?;
        }
        self.go_to_caller(pc, cfa, fp, base)
    }

    /// The CFA of a frame is above its stack pointer, not far, and a multiple of a word. Where no
    /// call has happened it may be the stack pointer: the return address is in a register then.
    #[inline(always)]
    fn check_rise(&self, cfa: usize) -> Result<(), End> {
        let rise = cfa.wrapping_sub(self.registers.sp);
        let least = !self.is_exact as usize;
        let is_fine = rise.wrapping_sub(least) < FRAME_BYTES_MAX && cfa.is_multiple_of(WORD);
        if is_fine { Ok(()) } else { Err(End::Astray) }
    }

    /// Looks up the module of an address; [`Module::NONE`] if there is none.
    #[cold]
    #[inline(never)]
    fn enter_module(&mut self, at: usize) -> Result<(), End> {
        if at >= CODE_END {
            return Err(End::Astray);
        }
        core::mem::swap(&mut self.entered, &mut self.before);
        let Entered { module, tag } = &mut self.entered;
        if !module.contains(at) {
            self.modules.find_into(at, module);
            *tag = tag_of(module, self.cache);
        }
        Ok(())
    }

    /// Packs the rules of an address from the module's table, and caches them; `None` if they
    /// cannot be packed.
    #[cold]
    #[inline(never)]
    fn packed_from_table(&mut self, at: usize) -> Result<Option<PackedRules>, End> {
        let packed = match &self.entered.module.table() {
            None => PackedRules::UNCOVERED,
            Some(table) => match self.packed_of(table, at)? {
                Some(packed) => packed,
                None => return Ok(None),
            },
        };
        if let Some(cache) = self.cache.filter(|_| self.entered.module.unwind != 0) {
            cache.put(at, self.entered.tag, packed.bits());
        }
        Ok(Some(packed))
    }

    // Not part of its caller: what this keeps on the stack is not there while the table is found.
    #[inline(never)]
    fn packed_of(&self, table: &Table<'_>, at: usize) -> Result<Option<PackedRules>, End> {
        let mut entry = Entry::NONE;
        match table.find(at, &mut entry) {
            Ok(()) => {
                let mut rules = Rules::NONE;
                program::run(table.entries, &entry, at, ASKED, &mut rules)
                    .ok_or(End::BrokenTable)?;
                Ok(PackedRules::new(&rules).filter(|_| !entry.is_signal))
            }
            // Behind a call there is more of its function. A return address that is where a
            // function starts was made up: the first frame of a fiber has one.
            Err(Missing::Uncovered) => {
                let is_start = table.find(self.registers.pc, &mut entry).is_ok()
                    && entry.start == self.registers.pc;
                Ok(Some(if is_start && !self.is_exact {
                    PackedRules::OUTERMOST
                } else {
                    PackedRules::UNCOVERED
                }))
            }
            Err(Missing::Broken) => Err(End::BrokenTable),
        }
    }

    /// The rules for [`ASKED`] at an address; returns the table that has them, and whether the
    /// frame is a signal's.
    #[inline(never)]
    fn rules(&self, at: usize, rules: &mut Rules) -> Option<(Table<'static>, bool)> {
        let table = self.entered.module.table()?;
        let mut entry = Entry::NONE;
        table.find(at, &mut entry).ok()?;
        program::run(table.entries, &entry, at, ASKED, rules)?;
        Some((table, entry.is_signal))
    }

    /// By rules that cannot be packed.
    #[cold]
    #[inline(never)]
    fn by_rules(&mut self, at: usize) -> Result<(), End> {
        if self.returns_from_signal() {
            return self.by_context();
        }
        let mut rules = Rules::NONE;
        let (table, is_signal) = self.rules(at, &mut rules).ok_or(End::BrokenTable)?;
        let cfa = match rules.cfa {
            Cfa::Register(register, distance) => (self.registers)
                .get(register, &mut self.stack)
                .map(|origin| origin.wrapping_add_signed(distance as isize)),
            Cfa::Expression(at) => self.evaluate(&table, at, None),
        };
        let cfa = cfa.ok_or(End::Unknown)?;
        let [fp, pc, sp, base] = rules.columns.map(|rule| rule.place());
        let Some(pc) = self.value(&table, RETURN, pc, cfa)? else {
            return Err(End::Complete);
        };
        let fp = self.value(&table, FP, fp, cfa)?.ok_or(End::Unknown)?;
        let base = self.value(&table, BASE, base, cfa)?.unwrap_or(0);
        let sp = match sp {
            Where::Same => cfa,
            sp => self.value(&table, SP, sp, cfa)?.ok_or(End::Unknown)?,
        };
        if is_signal {
            self.count_signal()?;
        } else {
            self.check_rise(sp)?;
            // Damaged rules may read nothing of the stack; then only its end can stop the walk.
            self.stack
                .word(sp.wrapping_sub(WORD))
                .ok_or(End::Unreadable)?;
        }
        self.go_to_caller(pc, sp, fp, base)?;
        self.is_exact = is_signal;
        Ok(())
    }

    fn count_signal(&mut self) -> Result<(), End> {
        self.signals += 1;
        if self.signals > SIGNAL_FRAMES_MAX {
            Err(End::TooMany)
        } else {
            Ok(())
        }
    }

    /// The caller's value of a register, if it is known.
    fn value(
        &mut self,
        table: &Table<'_>,
        register: u8,
        place: Where,
        cfa: usize,
    ) -> Result<Option<usize>, End> {
        let by = |offset: i64| cfa.wrapping_add_signed(offset as isize);
        let at = match place {
            Where::Same => return Ok(self.registers.get(register, &mut self.stack)),
            Where::Undefined => return Ok(None),
            Where::Is(offset) => return Ok(Some(by(offset))),
            Where::In(other) => return Ok(self.registers.get(other, &mut self.stack)),
            Where::IsExpression(at) => return Ok(self.evaluate(table, at, Some(cfa))),
            Where::At(offset) => by(offset),
            Where::AtExpression(at) => self.evaluate(table, at, Some(cfa)).ok_or(End::Unknown)?,
        };
        self.stack.word(at).map(Some).ok_or(End::Unreadable)
    }

    fn evaluate(&mut self, table: &Table<'_>, at: usize, cfa: Option<usize>) -> Option<usize> {
        expression::evaluate(table.entries, at, &self.registers, &mut self.stack, cfa)
    }

    /// Through code that no table describes.
    #[cold]
    #[inline(never)]
    fn by_frame_pointer(&mut self) -> Result<(), End> {
        if self.returns_from_signal() {
            return self.by_context();
        }
        let is_made_at_run_time = self.entered.module.start == self.entered.module.end;
        match self.by_chain() {
            Err(end) if is_made_at_run_time => self.by_search().ok_or(end),
            outcome => outcome,
        }
    }

    /// By the frame pointer.
    fn by_chain(&mut self) -> Result<(), End> {
        let fp = self.registers.fp;
        if fp == 0 {
            // The outermost frame is marked so.
            return Err(End::Complete);
        }
        let cfa = fp.wrapping_add(2 * WORD);
        self.check_rise(cfa)?;
        let above = self.strayed.word(fp).ok_or(End::Unreadable)?;
        let pc = self
            .strayed
            .word(cfa.wrapping_sub(WORD))
            .ok_or(End::Unreadable)?;
        // The frame pointer may be any number, so what it leads to must look like code.
        let is_code = pc < CODE_END && is_readable(pc.wrapping_sub(1) & !7);
        if pc != 0 && !is_code {
            return Err(End::Astray);
        }
        // No table says where the base pointer may be saved.
        self.go_to_caller(pc, cfa, above, self.registers.base)
    }

    /// Through code that was made at run time and has another use for the frame pointer, as
    /// HotSpot's compiled methods do: the next word of the stack that is an address of other such
    /// code nearby, behind a call, is taken for the return address. The first instruction of such
    /// a function saves the frame pointer right below it.
    #[inline(never)]
    fn by_search(&mut self) -> Option<()> {
        let Registers { pc, sp, fp, .. } = self.registers;
        let mut below = fp;
        for i in 0..SEARCHED_WORDS {
            let at = sp.checked_add(i * WORD)?;
            let word = self.strayed.word(at)?;
            let is_near = word.abs_diff(pc) < CODE_REACH_BYTES;
            if is_near && Self::is_behind_call(word) && self.modules.find(word).is_none() {
                let base = self.registers.base;
                return self.go_to_caller(word, at + WORD, below, base).ok();
            }
            below = word;
        }
        None
    }

    /// Whether the instruction before this address is a call, as far as its bytes show.
    fn is_behind_call(at: usize) -> bool {
        let Some(bytes) = bytes_now(at.wrapping_sub(8)) else {
            return false;
        };
        // A pointer on the stack may look like a call. A saved frame pointer or the address of a
        // variable that points right above it is no return address. The bytes of a call, taken for
        // a pointer, hardly ever lead to mapped memory.
        frames::ends_with_call(bytes) && !is_readable(usize::from_le_bytes(bytes) & !7)
    }

    /// Whether the program counter is where a signal handler returns to.
    #[inline(never)]
    fn returns_from_signal(&self) -> bool {
        let code = &RETURN_FROM_SIGNAL;
        [0, code.len() - 8].into_iter().all(|from| {
            bytes_now(self.registers.pc + from).is_some_and(|bytes| bytes == code[from..from + 8])
        })
    }

    /// By what the kernel has saved in the frame.
    fn by_context(&mut self) -> Result<(), End> {
        self.count_signal()?;
        let context = self.registers.sp.wrapping_add(CONTEXT_AT);
        let interrupted = Registers::of_context(context, &mut self.stack);
        self.registers = interrupted.ok_or(End::Unreadable)?;
        self.is_exact = true;
        Ok(())
    }
}
