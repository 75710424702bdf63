//! From a frame to its caller.
//!
//! ```text
//!  row in the cache         nearly always: one word says all
//!  table of the module      a row is made of it, and cached
//!   … that no row can say   evaluated each time: frames of signals, aligned stacks, linkage tables
//!  no table                 by the frame pointer, every word probed
//! ```
//!
//! Nothing that is read is trusted: a step that does not lead to a higher place of the stack, or to
//! memory that cannot be read, ends the walk.

use super::cache::RowCache;
use super::memory::Memory;
use super::modules::{Module, Modules};
use super::registers::{GENERAL, RBP, RETURN, RSP, Registers};
use super::table::program::{self, COLUMNS, Cfa, Rules, Where};
use super::table::row::{ASKED, Kind, LARGEST_FRAME, Row};
use super::table::{Entry, Missing, Table, expression};
use super::walk::{End, Frames, tag_of};

/// The most frames of one walk, which bounds its time.
pub const MOST_FRAMES: usize = 1 << 16;
/// The most frames of signals, each of which may lead anywhere.
const MOST_SIGNALS: usize = 16;
const WORD: usize = size_of::<usize>();
/// Addresses of programs end here.
const END_OF_CODE: usize = 1 << 47;
/// What returns from a signal handler, where no table says so: `mov $15, %rax; syscall`.
const RETURN_FROM_SIGNAL: [u8; 8] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f];

/// A walk under way.
pub struct Walker<'a> {
    registers: Registers,
    /// Whether rip is an instruction that has not run, and not one behind a call.
    is_exact: bool,
    signals: usize,
    memory: Memory,
    module: Module,
    /// What rows of the module are filed under.
    tag: u64,
    cache: Option<&'a RowCache>,
    modules: &'a Modules,
}

impl<'a> Walker<'a> {
    #[inline(always)]
    pub fn new(
        registers: Registers,
        cache: Option<&'a RowCache>,
        modules: &'a Modules,
    ) -> Walker<'a> {
        Walker {
            memory: Memory::unknown(),
            registers,
            is_exact: true,
            signals: 0,
            module: Module::NONE,
            tag: 0,
            cache,
            modules,
        }
    }

    /// Walks to the end; the frames that it meets go to `out`.
    #[inline(always)]
    pub fn run(&mut self, out: &mut Frames<'_>) -> End {
        for _ in 0..MOST_FRAMES {
            // One less is within the call, as it is for all others.
            out.push(self.registers.rip.wrapping_add(self.is_exact.into()));
            if let Err(end) = self.step() {
                return end;
            }
        }
        End::TooMany
    }

    /// Goes on to the caller.
    #[inline(always)]
    pub fn step(&mut self) -> Result<(), End> {
        let at = self.registers.rip.wrapping_sub(!self.is_exact as usize);
        if !self.module.contains(at) {
            self.enter_module(at)?;
        }
        if let Some(cache) = self.cache
            && let Some(row) = cache.get(at, self.tag)
        {
            return self.by_row(Row::from_bits(row));
        }
        self.by_table(at)
    }

    /// Goes on to the caller, which has these registers.
    #[inline(always)]
    fn to_caller(&mut self, rip: usize, rsp: usize, rbp: usize, rbx: usize) -> Result<(), End> {
        if rip == 0 {
            return Err(End::Complete);
        }
        self.registers.rip = rip;
        self.registers.forget_all_but(rsp, rbp, rbx);
        self.is_exact = false;
        Ok(())
    }

    #[inline(always)]
    fn by_row(&mut self, row: Row) -> Result<(), End> {
        let base = match row.kind() {
            Kind::FromRsp => self.registers.rsp(),
            Kind::FromRbp => self.registers.rbp(),
            Kind::Outermost => return Err(End::Complete),
            Kind::Uncovered | Kind::Checked => return self.by_frame_pointer(),
        };
        let cfa = base.wrapping_add(row.distance());
        self.check_rise(cfa)?;
        let rip = self.memory.word(cfa - WORD).ok_or(End::Unreadable)?;
        let (mut rbp, mut rbx) = (self.registers.rbp(), self.registers.rbx());
        let (rbp_below, rbx_below) = (row.rbp_below(), row.rbx_below());
        if rbp_below != 0 {
            rbp = self
                .memory
                .word(cfa.wrapping_sub(rbp_below))
                .ok_or(End::Unreadable)?;
        }
        if rbx_below != 0 {
            rbx = self
                .memory
                .word(cfa.wrapping_sub(rbx_below))
                .ok_or(End::Unreadable)?;
        }
        self.to_caller(rip, cfa, rbp, rbx)
    }

    /// The CFA of a frame is above its stack pointer, not far, and a multiple of a word. Where no
    /// call has happened it may be the stack pointer: the return address is in a register then.
    #[inline(always)]
    fn check_rise(&self, cfa: usize) -> Result<(), End> {
        let rise = cfa.wrapping_sub(self.registers.rsp());
        let least = !self.is_exact as usize;
        let is_fine = rise.wrapping_sub(least) < LARGEST_FRAME && cfa % WORD == 0;
        if is_fine { Ok(()) } else { Err(End::Astray) }
    }

    /// Looks up the module of an address, with none if there is none.
    #[cold]
    #[inline(never)]
    fn enter_module(&mut self, at: usize) -> Result<(), End> {
        if at >= END_OF_CODE {
            return Err(End::Astray);
        }
        self.module = self.modules.find(at).unwrap_or(Module::NONE);
        self.tag = tag_of(&self.module, self.cache);
        Ok(())
    }

    /// By the module's table.
    #[cold]
    #[inline(never)]
    fn by_table(&mut self, at: usize) -> Result<(), End> {
        let Some(table) = self.module.image().and_then(|image| image.table()) else {
            return self.by_frame_pointer();
        };
        let entry = match table.find(at) {
            Ok(entry) => entry,
            Err(Missing::Uncovered) => {
                // Behind a call there is more of its function. A return address that is where a
                // function starts was made up: the first frame of a fiber has such a one.
                let is_made_up = (table.find(self.registers.rip))
                    .is_ok_and(|entry| !self.is_exact && entry.start == self.registers.rip);
                let row = if is_made_up {
                    Row::OUTERMOST
                } else {
                    Row::UNCOVERED
                };
                self.remember(at, row);
                return self.by_row(row);
            }
            Err(Missing::Broken) => return Err(End::BrokenTable),
        };
        let rules = program::run(table.entries, &entry, at, ASKED).ok_or(End::BrokenTable)?;
        match Row::new(&rules) {
            Some(row) if !entry.is_signal => {
                self.remember(at, row);
                self.by_row(row)
            }
            _ => self.by_rules(&table, &entry, at, &rules),
        }
    }

    fn remember(&self, at: usize, row: Row) {
        if let Some(cache) = self.cache {
            cache.put(at, self.tag, row.bits());
        }
    }

    /// By rules that no row can say; `rules` are those for [`ASKED`].
    #[cold]
    #[inline(never)]
    fn by_rules(
        &mut self,
        table: &Table<'_>,
        entry: &Entry,
        at: usize,
        rules: &Rules,
    ) -> Result<(), End> {
        let cfa = match rules.cfa {
            Cfa::Register(register, distance) => (self.registers.get(register))
                .map(|base| base.wrapping_add_signed(distance as isize)),
            Cfa::Expression(at) => self.evaluate(table, at, None),
        };
        let cfa = cfa.ok_or(End::Unknown)?;
        let [rbp, rip, rsp, _] = rules.columns.map(|rule| rule.place());
        // A frame of which nothing is known but that it has no caller is above.
        let rip = self.value(table, RETURN, rip, cfa)?.ok_or(End::Complete)?;
        let rbp = self.value(table, RBP, rbp, cfa)?.ok_or(End::Unknown)?;
        let rsp = match rsp {
            Where::Same => cfa,
            rsp => self.value(table, RSP, rsp, cfa)?.ok_or(End::Unknown)?,
        };
        if entry.is_signal {
            self.signals += 1;
            if self.signals > MOST_SIGNALS {
                return Err(End::TooMany);
            }
        } else {
            self.check_rise(rsp)?;
        }
        self.others(table, entry, at, cfa)?;
        if rip == 0 {
            return Err(End::Complete);
        }
        self.registers.set(RSP, Some(rsp));
        self.registers.set(RBP, Some(rbp));
        self.registers.rip = rip;
        self.is_exact = entry.is_signal;
        Ok(())
    }

    /// Restores all registers but rbp and rsp, which the rules of the others refer to.
    fn others(
        &mut self,
        table: &Table<'_>,
        entry: &Entry,
        at: usize,
        cfa: usize,
    ) -> Result<(), End> {
        let mut first = 0;
        while first < GENERAL as u8 {
            let asked = [first, first + 1, first + 2, first + 3];
            let rules = program::run(table.entries, entry, at, asked).ok_or(End::BrokenTable)?;
            for i in 0..COLUMNS {
                let (register, place) = (asked[i], rules.columns[i].place());
                if register == RBP || register == RSP {
                    continue;
                }
                let mut value = self.value(table, register, place, cfa)?;
                if place == Where::Same && Registers::is_clobbered(register) {
                    value = None;
                }
                self.registers.set(register, value);
            }
            first += COLUMNS as u8;
        }
        Ok(())
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
            Where::Same => return Ok(self.registers.get(register)),
            Where::Undefined => return Ok(None),
            Where::Is(offset) => return Ok(Some(by(offset))),
            Where::In(other) => return Ok(self.registers.get(other)),
            Where::IsExpression(at) => return Ok(self.evaluate(table, at, Some(cfa))),
            Where::At(offset) => by(offset),
            Where::AtExpression(at) => self.evaluate(table, at, Some(cfa)).ok_or(End::Unknown)?,
        };
        self.memory.word(at).map(Some).ok_or(End::Unreadable)
    }

    fn evaluate(&mut self, table: &Table<'_>, at: usize, cfa: Option<usize>) -> Option<usize> {
        expression::evaluate(table.entries, at, &self.registers, &mut self.memory, cfa)
    }

    /// By the frame pointer, through code that no table describes.
    #[cold]
    #[inline(never)]
    fn by_frame_pointer(&mut self) -> Result<(), End> {
        if self.returns_from_signal() {
            return self.by_context();
        }
        let rbp = self.registers.rbp();
        if rbp == 0 {
            // The outermost frame is marked so.
            return Err(End::Complete);
        }
        let cfa = rbp.wrapping_add(2 * WORD);
        self.check_rise(cfa)?;
        // It may be any register's value: only what the kernel says is there is read.
        self.memory.forget();
        let above = self.memory.word(rbp).ok_or(End::Unreadable)?;
        let rip = self.memory.word(cfa - WORD).ok_or(End::Unreadable)?;
        let is_code = rip < END_OF_CODE && self.memory.bytes(rip.wrapping_sub(1)).is_some();
        if rip != 0 && !is_code {
            return Err(End::Astray);
        }
        self.memory.forget();
        // rbx may have changed; no table says where it is.
        self.to_caller(rip, cfa, above, self.registers.rbx())
    }

    /// Whether rip is where a signal handler returns to, in a C library without a table for it.
    fn returns_from_signal(&mut self) -> bool {
        let rip = self.registers.rip;
        let is_it = self.memory.bytes(rip) == Some(RETURN_FROM_SIGNAL);
        is_it
            && self
                .memory
                .bytes(rip + 1)
                .is_some_and(|bytes| bytes[7] == 0x05)
    }

    /// By what the kernel has saved, which begins at the stack pointer.
    fn by_context(&mut self) -> Result<(), End> {
        self.signals += 1;
        if self.signals > MOST_SIGNALS {
            return Err(End::TooMany);
        }
        let saved = core::mem::offset_of!(libc::ucontext_t, uc_mcontext);
        let from = self.registers.rsp().wrapping_add(saved);
        let mut restored = self.registers;
        for register in 0..=RETURN {
            let place = Registers::place_in_context(register);
            let word = self.memory.word(from.wrapping_add(place * WORD));
            let word = word.ok_or(End::Unreadable)?;
            if register == RETURN {
                restored.rip = word;
            } else {
                restored.set(register, Some(word));
            }
        }
        self.registers = restored;
        self.is_exact = true;
        Ok(())
    }
}
