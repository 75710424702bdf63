//! What a walk needs to know of nearly every frame, in one word.
//!
//! ```text
//!  bits  0..3   the kind
//!  bits  3..20  the CFA's distance from the stack pointer or the frame pointer
//!  bits 20..37  how far below the CFA the frame pointer is saved; 0 if it is not
//!  bits 37..54  the same for the base pointer
//! ```
//!
//! All distances are in words. Of the registers that functions restore, these two are kept,
//! because some functions say where their frame is by them.

use super::program::{Cfa, Rules, Where};
use crate::prof::unwind::registers::{BASE, FP, RETURN, SP};
use crate::sys::arch::frames::RETURN_AT;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackedRules(u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The CFA is at a distance from the stack pointer, or from the frame pointer.
    FromSp,
    FromFp,
    /// The frame has no caller.
    Outermost,
    /// The module has no table for the address.
    Uncovered,
    /// Not rules: the module's tables were found to be within it.
    Checked,
}

/// The registers that [`PackedRules::new`] wants the rules of.
pub const ASKED: [u8; 4] = [FP, RETURN, SP, BASE];
/// Bytes of the largest frame that is believed.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
const WORD: i64 = size_of::<usize>() as i64;

/// Bits of the kind.
const KIND_BITS: u32 = 3;
/// Bits of each distance.
const DISTANCE_BITS: u32 = 17;
/// All distances are less than this many words.
const DISTANCE_WORDS: u64 = 1 << DISTANCE_BITS;
const _: () = assert!(DISTANCE_WORDS * WORD as u64 == FRAME_BYTES_MAX as u64);

/// A distance in words, if it can be packed.
fn words(distance: i64) -> Option<u64> {
    let words = u64::try_from(distance / WORD).ok()?;
    (distance % WORD == 0 && words > 0 && words < DISTANCE_WORDS).then_some(words)
}

/// How far below the CFA a register is saved, in words; 0 if it is not.
fn depth(place: Where) -> Option<u64> {
    match place {
        Where::Same => Some(0),
        Where::At(at) => words(at.checked_neg()?),
        _ => None,
    }
}

impl PackedRules {
    pub const OUTERMOST: PackedRules = PackedRules(Kind::Outermost as u64 + 1);
    pub const UNCOVERED: PackedRules = PackedRules(Kind::Uncovered as u64 + 1);
    pub const CHECKED: PackedRules = PackedRules(Kind::Checked as u64 + 1);

    /// Packs the rules for [`ASKED`]; `None` if they do not fit.
    pub fn new(rules: &Rules) -> Option<PackedRules> {
        let [fp, returns, sp, base] = rules.columns.map(|rule| rule.place());
        if returns == Where::Undefined {
            return Some(PackedRules::OUTERMOST);
        }
        let (kind, distance) = match rules.cfa {
            Cfa::Register(SP, distance) => (Kind::FromSp, distance),
            Cfa::Register(FP, distance) => (Kind::FromFp, distance),
            _ => return None,
        };
        if returns != Where::At(RETURN_AT) || sp != Where::Same {
            return None;
        }
        let parts = [words(distance)?, depth(fp)?, depth(base)?];
        let mut packed = kind as u64 + 1;
        for (i, part) in (0..).zip(parts) {
            packed |= part << (KIND_BITS + i * DISTANCE_BITS);
        }
        Some(PackedRules(packed))
    }

    #[inline(always)]
    fn part(self, i: u32) -> usize {
        (self.0 >> (KIND_BITS + i * DISTANCE_BITS) & (DISTANCE_WORDS - 1)) as usize * WORD as usize
    }

    pub fn from_bits(bits: u64) -> PackedRules {
        PackedRules(bits)
    }

    pub fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub fn kind(self) -> Kind {
        match self.0 & 7 {
            1 => Kind::FromSp,
            2 => Kind::FromFp,
            3 => Kind::Outermost,
            4 => Kind::Uncovered,
            _ => Kind::Checked,
        }
    }

    /// The CFA's distance from the register.
    #[inline(always)]
    pub fn distance(self) -> usize {
        self.part(0)
    }

    /// How far below the CFA the frame pointer is saved; 0 if it has not changed.
    #[inline(always)]
    pub fn fp_below(self) -> usize {
        self.part(1)
    }

    /// How far below the CFA the base pointer is saved; 0 if it has not changed.
    #[inline(always)]
    pub fn base_below(self) -> usize {
        self.part(2)
    }
}
