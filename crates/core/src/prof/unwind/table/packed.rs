//! What a walk needs to know of nearly every frame, in one word.
//!
//! ```text
//!  bits  0..3   the kind
//!  bits  3..20  the CFA's distance from the stack pointer or the frame pointer
//!  bits 20..37  how far below the CFA the frame pointer is saved; 0 if it is not
//!  bits 37..54  the same for the fourth register
//! ```
//!
//! All distances are in words. Of the registers that functions restore, these two are kept: some
//! functions say where their frame is by them, or one of them has the return address.

use super::program::{Cfa, Rules, Where};
use crate::sys::arch::Convention;

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
pub const fn asked<C: Convention>() -> [u8; 4] {
    [C::FP, C::RETURN, C::SP, C::FOURTH]
}

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

    /// Packs the rules for the registers that are [`asked`](fn@asked) for; `None` if they do not
    /// fit.
    pub fn new<C: Convention>(rules: &Rules) -> Option<PackedRules> {
        let [fp, returns, sp, fourth] = rules.columns.map(|rule| rule.place());
        if returns == Where::Undefined {
            return Some(PackedRules::OUTERMOST);
        }
        let (kind, distance) = match rules.cfa {
            Cfa::Register(register, distance) if register == C::SP => (Kind::FromSp, distance),
            Cfa::Register(register, distance) if register == C::FP => (Kind::FromFp, distance),
            _ => return None,
        };
        // A return address in the fourth register has the rule of that.
        if C::RETURN_AT.is_some_and(|at| returns != Where::At(at)) || sp != Where::Same {
            return None;
        }
        let distance = match distance {
            // Neither the call nor the function has put anything on the stack.
            0 if C::RETURN_AT.is_none() => 0,
            distance => words(distance)?,
        };
        let parts = [distance, depth(fp)?, depth(fourth)?];
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

    /// How far below the CFA the fourth register is saved; 0 if it has not changed.
    #[inline(always)]
    pub fn fourth_below(self) -> usize {
        self.part(2)
    }
}
