//! What a walk needs to know of nearly every frame, in one word.
//!
//! ```text
//!  bits 0..3   the kind
//!  bit  3      whether rbp is saved
//!  bits 8..32  the CFA's distance from rsp or rbp
//!  bits 32..   where rbp is saved: the distance from the CFA, negative
//! ```

use super::program::{Cfa, Rules, Where};
use crate::prof::unwind::registers::{RBP, RETURN, RSP};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row(u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The CFA is at a distance from rsp, or from rbp.
    FromRsp,
    FromRbp,
    /// The frame has no caller.
    Outermost,
    /// The module has no table for the address.
    Uncovered,
    /// Not a row: the module's tables were found to be within it.
    Checked,
}

/// The registers that [`Row::new`] wants the rules of.
pub const ASKED: [u8; 3] = [RBP, RETURN, RSP];
/// The return address lies right below the CFA.
const RETURN_AT: i64 = -8;
/// Bytes of the largest frame that is believed.
pub const LARGEST_FRAME: usize = 1 << 20;
const WORD: i64 = size_of::<usize>() as i64;

impl Row {
    pub const OUTERMOST: Row = Row(Kind::Outermost as u64 + 1);
    pub const UNCOVERED: Row = Row(Kind::Uncovered as u64 + 1);
    pub const CHECKED: Row = Row(Kind::Checked as u64 + 1);

    /// The row that says the same as the rules for [`ASKED`], if one does.
    pub fn new(rules: &Rules) -> Option<Row> {
        let [rbp, returns, rsp] = rules.columns.map(|rule| rule.place());
        if returns == Where::Undefined {
            return Some(Row::OUTERMOST);
        }
        let (kind, distance) = match rules.cfa {
            Cfa::Register(RSP, distance) => (Kind::FromRsp, distance),
            Cfa::Register(RBP, distance) => (Kind::FromRbp, distance),
            _ => return None,
        };
        if returns != Where::At(RETURN_AT) || rsp != Where::Same {
            return None;
        }
        let distance = u64::try_from(distance).ok()?;
        if distance > LARGEST_FRAME as u64 {
            return None;
        }
        let saved = match rbp {
            Where::Same => 0,
            Where::At(at) if at % WORD == 0 && at < 0 && at >= -(LARGEST_FRAME as i64) => {
                1 << 3 | (at as u64) << 32
            }
            _ => return None,
        };
        Some(Row((kind as u64 + 1) | distance << 8 | saved))
    }

    pub fn from_bits(bits: u64) -> Row {
        Row(bits)
    }

    pub fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub fn kind(self) -> Kind {
        match self.0 & 7 {
            1 => Kind::FromRsp,
            2 => Kind::FromRbp,
            3 => Kind::Outermost,
            4 => Kind::Uncovered,
            _ => Kind::Checked,
        }
    }

    /// The CFA's distance from the register.
    #[inline(always)]
    pub fn distance(self) -> usize {
        (self.0 as u32 >> 8) as usize
    }

    /// Where rbp is saved, by its distance from the CFA; `None` if it has not changed.
    #[inline(always)]
    pub fn rbp_at(self) -> Option<isize> {
        (self.0 & 1 << 3 != 0).then_some((self.0 as i64 >> 32) as isize)
    }
}
