//! Evaluates the expressions with which tables describe rare frames: entries of the procedure
//! linkage table, frames of signals, functions that align their stack.

use crate::prof::unwind::bytes::{Bytes, Reader};
use crate::prof::unwind::memory::Memory;
use crate::prof::unwind::registers::Registers;

/// The most values that an expression may hold at once.
const VALUES_MAX: usize = 8;
/// The most operations of one evaluation: expressions may contain loops.
pub const OPERATIONS_MAX: u32 = 256;

/// The values, the last on top.
struct Stack {
    values: [usize; VALUES_MAX],
    height: usize,
}

impl Stack {
    fn push(&mut self, value: usize) -> Option<()> {
        *self.values.get_mut(self.height)? = value;
        self.height += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<usize> {
        self.height = self.height.checked_sub(1)?;
        Some(self.values[self.height])
    }

    /// The value below `depth` others.
    fn pick(&self, depth: usize) -> Option<usize> {
        self.height.checked_sub(depth + 1).map(|at| self.values[at])
    }
}

/// The value of the expression whose length is at `at`. It begins with the CFA on its stack, if
/// there is one. `None` if it is broken, or needs a register or memory that is not known.
#[cold]
#[inline(never)]
pub fn evaluate(
    entries: Bytes<'_>,
    at: usize,
    registers: &Registers,
    memory: &mut Memory,
    cfa: Option<usize>,
) -> Option<usize> {
    let mut read = entries.reader(at);
    let length = read.uleb()? as usize;
    let start = read.at();
    read.end_at(start.checked_add(length)?)?;
    let mut stack = Stack {
        values: [0; VALUES_MAX],
        height: 0,
    };
    if let Some(cfa) = cfa {
        stack.push(cfa)?;
    }
    let mut budget = OPERATIONS_MAX;
    while !read.is_at_end() {
        budget = budget.checked_sub(1)?;
        let code = read.u8()?;
        match code {
            0x13 => {
                stack.pop()?;
            }
            // Jumps, of which the first has a condition.
            0x28 | 0x2f => {
                let by = read.u16()? as i16;
                if code == 0x2f || stack.pop()? != 0 {
                    let to = read.at().wrapping_add_signed(by.into());
                    if to < start || to > read.end() {
                        return None;
                    }
                    read.go_to(to);
                }
            }
            0x96 => {}
            _ => {
                let value = result(code, &mut read, &mut stack, registers, memory)?;
                stack.push(value)?;
            }
        }
    }
    stack.pop()
}

/// The result of an operation, which goes on top of the stack next.
#[inline(always)]
fn result(
    code: u8,
    read: &mut Reader<'_>,
    stack: &mut Stack,
    registers: &Registers,
    memory: &mut Memory,
) -> Option<usize> {
    Some(match code {
        // An address, then constants.
        0x03 | 0x0e | 0x0f => read.u64()? as usize,
        0x08 => read.u8()?.into(),
        0x09 => read.u8()? as i8 as usize,
        0x0a => read.u16()?.into(),
        0x0b => read.u16()? as i16 as usize,
        0x0c => read.u32()? as usize,
        0x0d => read.u32()? as i32 as usize,
        0x10 => read.uleb()? as usize,
        0x11 => read.sleb()? as usize,
        0x30..=0x4f => (code - 0x30).into(),
        // A register plus a number.
        0x70..=0x8f => {
            let offset = read.sleb()?;
            registers
                .get(code - 0x70, memory)?
                .wrapping_add_signed(offset as isize)
        }
        0x06 => memory.word(stack.pop()?)?,
        0x12 => stack.pick(0)?,
        0x14 => stack.pick(1)?,
        0x15 => stack.pick(read.u8()?.into())?,
        0x16 => {
            let (top, below) = (stack.pop()?, stack.pop()?);
            stack.push(top)?;
            below
        }
        0x17 => {
            let (top, second, third) = (stack.pop()?, stack.pop()?, stack.pop()?);
            stack.push(top)?;
            stack.push(third)?;
            second
        }
        0x1f => stack.pop()?.wrapping_neg(),
        0x20 => !stack.pop()?,
        0x23 => stack.pop()?.wrapping_add(read.uleb()? as usize),
        0x1a | 0x1c | 0x1e | 0x21 | 0x22 | 0x24..=0x27 | 0x29..=0x2e => {
            let (right, left) = (stack.pop()?, stack.pop()?);
            of_two(code, left, right)?
        }
        _ => return None,
    })
}

/// An operation on two values.
fn of_two(code: u8, left: usize, right: usize) -> Option<usize> {
    let (a, b) = (left as isize, right as isize);
    let shift = u32::try_from(right).unwrap_or(u32::MAX);
    Some(match code {
        0x1a => left & right,
        0x1c => left.wrapping_sub(right),
        0x1e => left.wrapping_mul(right),
        0x21 => left | right,
        0x22 => left.wrapping_add(right),
        0x24 => left.checked_shl(shift).unwrap_or(0),
        0x25 => left.checked_shr(shift).unwrap_or(0),
        0x26 => a.checked_shr(shift).unwrap_or(a >> 63) as usize,
        0x27 => left ^ right,
        0x29 => (a == b).into(),
        0x2a => (a >= b).into(),
        0x2b => (a > b).into(),
        0x2c => (a <= b).into(),
        0x2d => (a < b).into(),
        0x2e => (a != b).into(),
        _ => return None,
    })
}
