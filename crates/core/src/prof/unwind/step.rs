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
use super::registers::{FOURTH, FP, RETURN, RETURN_IS_FOURTH, Registers, SP};
use super::table::packed::{FRAME_BYTES_MAX, Kind, PackedRules, asked};
use super::table::program::{self, Cfa, Rules, Where};
use super::table::{Entry, Missing, Table, expression};
use super::tag::tag_of;
use crate::sys::arch::{CODE_END, Convention, Native, capture};

/// The most frames of one walk, which bounds its time.
pub const WALK_FRAMES_MAX: usize = 1 << 16;
/// The most frames of signals, each of which may lead anywhere.
const SIGNAL_FRAMES_MAX: u32 = 16;
const WORD: usize = size_of::<usize>();
/// The registers whose rules are needed.
pub const ASKED: [u8; 4] = asked::<Native>();
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
    Instruction,
    /// The instruction behind a call.
    Return,
}

/// A walk under way.
pub struct Walker<'a> {
    registers: Registers,
    /// Whether the program counter is at an instruction that has not run, not at one behind a call.
    is_exact: bool,
    /// Whether the stack pointer is only the lowest that it can be.
    is_sp_guessed: bool,
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
            is_sp_guessed: false,
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
            out.push(
                self.registers.pc.wrapping_add(self.is_exact.into()),
                self.registers.sp,
            );
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
    fn go_to_caller(&mut self, pc: usize, sp: usize, fp: usize, fourth: usize) -> Result<(), End> {
        if pc == 0 {
            return Err(End::Complete);
        }
        self.registers = Registers::new(pc, sp, fp, fourth);
        self.is_exact = false;
        if !Native::RECORD_IS_AT_TOP {
            self.is_sp_guessed = false;
        }
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
        let mut cfa = origin.wrapping_add(packed.distance());
        if !Native::RECORD_IS_AT_TOP && self.is_sp_guessed {
            cfa = self.cfa_above_guess(packed, cfa)?;
        }
        self.check_rise(cfa)?;
        let mut pc = 0;
        if let Some(at) = Native::RETURN_AT {
            let at = cfa.wrapping_add_signed(at as isize);
            pc = self.stack.word(at).ok_or(End::Unreadable)?;
        }
        let (mut fp, mut fourth) = (self.registers.fp, self.registers.fourth);
        let (fp_below, fourth_below) = (packed.fp_below(), packed.fourth_below());
        if fp_below != 0 {
            let at = cfa.wrapping_sub(fp_below);
            fp = self.stack.word(at).ok_or(End::Unreadable)?;
        }
        if fourth_below != 0 {
            let at = cfa.wrapping_sub(fourth_below);
            fourth = self.stack.word(at).ok_or(End::Unreadable)?;
        }
        if RETURN_IS_FOURTH {
            if fourth_below == 0 && fourth == 0 {
                return Err(End::Unknown);
            }
            (pc, fourth) = (capture::without_signature(fourth), 0);
        }
        self.go_to_caller(pc, cfa, fp, fourth)
    }

    /// The CFA of a function whose stack pointer is not known, because its callee has no table: it
    /// is at least `least` if the rules go by that pointer. The frame pointer says more if the
    /// function keeps a record. Else it is the first place from which the rules lead to a return
    /// address.
    #[cold]
    #[inline(never)]
    fn cfa_above_guess(&mut self, packed: PackedRules, least: usize) -> Result<usize, End> {
        let (fp_below, return_below) = (packed.fp_below(), packed.fourth_below());
        if packed.kind() != Kind::FromSp || return_below == 0 {
            return Ok(least);
        }
        let by_record = self.registers.fp.wrapping_add(fp_below);
        if return_below + WORD == fp_below && self.check_rise(by_record).is_ok() {
            return Ok(by_record);
        }
        for i in 0..SEARCHED_WORDS / 2 {
            let cfa = least.wrapping_add(2 * WORD * i);
            let word = self.strayed.word(cfa.wrapping_sub(return_below));
            let at = capture::without_signature(word.ok_or(End::Unreadable)?);
            if at < CODE_END && Self::is_behind_call(at) {
                return Ok(cfa);
            }
        }
        Err(End::Astray)
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
        match table.find::<Native>(at, &mut entry) {
            Ok(()) => {
                let mut rules = Rules::NONE;
                program::run(table.entries, &entry, at, ASKED, &mut rules)
                    .ok_or(End::BrokenTable)?;
                Ok(PackedRules::new::<Native>(&rules).filter(|_| !entry.is_signal))
            }
            // Behind a call there is more of its function. A return address that is where a
            // function starts was made up: the first frame of a fiber has one.
            Err(Missing::Uncovered) => {
                let is_start = table.find::<Native>(self.registers.pc, &mut entry).is_ok()
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
        table.find::<Native>(at, &mut entry).ok()?;
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
        let is_sp_known = Native::RECORD_IS_AT_TOP || !self.is_sp_guessed;
        let cfa = match rules.cfa {
            Cfa::Register(SP, _) if !is_sp_known => None,
            Cfa::Register(register, distance) => (self.registers)
                .get(register, &mut self.stack)
                .map(|origin| origin.wrapping_add_signed(distance as isize)),
            Cfa::Expression(at) => self.evaluate(&table, at, None),
        };
        let cfa = cfa.ok_or(End::Unknown)?;
        let [fp, pc, sp, fourth] = rules.columns.map(|rule| rule.place());
        let Some(return_address) = self.value(&table, RETURN, pc, cfa)? else {
            return Err(Self::without_caller(pc));
        };
        let pc = capture::without_signature(return_address);
        let fp = self.value(&table, FP, fp, cfa)?.ok_or(End::Unknown)?;
        let fourth = if RETURN_IS_FOURTH {
            0
        } else {
            self.value(&table, FOURTH, fourth, cfa)?.unwrap_or(0)
        };
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
        self.go_to_caller(pc, sp, fp, fourth)?;
        self.is_exact = is_signal;
        if !Native::RECORD_IS_AT_TOP {
            self.is_sp_guessed = false;
        }
        Ok(())
    }

    /// How a walk ends at a frame whose return address has this rule, and no value.
    fn without_caller(rule: Where) -> End {
        match rule {
            Where::Same if RETURN_IS_FOURTH => End::Unknown,
            _ => End::Complete,
        }
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
        if RETURN_IS_FOURTH && !is_made_at_run_time && self.by_register().is_some() {
            return Ok(());
        }
        match self.by_chain() {
            Err(end) if is_made_at_run_time => self.by_search().ok_or(end),
            outcome => outcome,
        }
    }

    /// From an instruction of a module that no table describes, such as one of the linkage table:
    /// the return address is still in its register.
    fn by_register(&mut self) -> Option<()> {
        let Registers { sp, fp, fourth, .. } = self.registers;
        let at = capture::without_signature(fourth);
        if at >= CODE_END || !Self::is_behind_call(at) {
            return None;
        }
        self.go_to_caller(at, sp, fp, 0).ok()?;
        // Something may have been put on the stack, as the linkage table does before it binds a
        // function.
        self.is_sp_guessed = true;
        Some(())
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
        let pc = capture::without_signature(pc);
        // The frame pointer may be any number, so what it leads to must look like code.
        let is_code = pc < CODE_END && is_readable(pc.wrapping_sub(1) & !7);
        if pc != 0 && !is_code {
            return Err(End::Astray);
        }
        // No table says where the fourth register may be saved.
        self.go_to_caller(pc, cfa, above, self.fourth_of_caller())?;
        self.is_sp_guessed = !Native::RECORD_IS_AT_TOP;
        Ok(())
    }

    /// The caller's fourth register, where no table says where it may be saved.
    fn fourth_of_caller(&self) -> usize {
        if RETURN_IS_FOURTH {
            0
        } else {
            self.registers.fourth
        }
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
            let caller = capture::without_signature(word);
            let is_near = caller.abs_diff(pc) < CODE_REACH_BYTES;
            if is_near && Self::is_behind_call(caller) && self.modules.find(caller).is_none() {
                let fourth = self.fourth_of_caller();
                return self.go_to_caller(caller, at + WORD, below, fourth).ok();
            }
            below = word;
        }
        None
    }

    /// Whether the instruction before this address is a call, as far as its bytes show.
    fn is_behind_call(at: usize) -> bool {
        if !at.is_multiple_of(Native::INSTRUCTION_BYTES) {
            return false;
        }
        let Some(bytes) = bytes_now(at.wrapping_sub(8)) else {
            return false;
        };
        // A pointer on the stack may look like a call. A saved frame pointer or the address of a
        // variable that points right above it is no return address. The bytes of a call, taken for
        // a pointer, hardly ever lead to mapped memory.
        Native::ends_with_call(bytes) && !is_readable(usize::from_le_bytes(bytes) & !7)
    }

    /// Whether the program counter is where a signal handler returns to.
    #[inline(never)]
    fn returns_from_signal(&self) -> bool {
        let code = Native::RETURN_FROM_SIGNAL;
        [0, code.len() - 8].into_iter().all(|from| {
            bytes_now(self.registers.pc + from).is_some_and(|bytes| bytes == code[from..from + 8])
        })
    }

    /// By what the kernel has saved in the frame.
    fn by_context(&mut self) -> Result<(), End> {
        self.count_signal()?;
        let context = self.registers.sp.wrapping_add(Native::CONTEXT_AT);
        let interrupted = Registers::of_context(context, &mut self.stack);
        self.registers = interrupted.ok_or(End::Unreadable)?;
        self.is_exact = true;
        self.is_sp_guessed = false;
        Ok(())
    }
}
