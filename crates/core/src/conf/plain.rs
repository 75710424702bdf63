//! An option's value in C, as `mallctl` returns it: its type, which follows from how it is stored,
//! and the value.
//!
//! A type that is not a number says in its own file what it is in C (`text`, `value`).

use core::ffi::CStr;

/// A value in C's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain<'a> {
    Switch(bool),
    Number(i128),
    Text(&'a CStr),
    /// `default`: the allocator decides.
    Unset,
    /// A value that only has a text form, as written in an option string.
    Written,
}

/// The C type that such a value naturally has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Bool,
    Unsigned,
    Size,
    Ssize,
    U64,
    Text,
    Written,
}

/// The types that options are stored as.
pub(super) trait Kept {
    const SHAPE: Shape;
    fn plain(&self) -> Plain<'_>;
}

impl Kept for bool {
    const SHAPE: Shape = Shape::Bool;
    fn plain(&self) -> Plain<'_> {
        Plain::Switch(*self)
    }
}

macro_rules! numbers {
    ($($type:ty: $shape:ident)*) => {$(
        impl Kept for $type {
            const SHAPE: Shape = Shape::$shape;
            fn plain(&self) -> Plain<'_> {
                Plain::Number(*self as i128)
            }
        }
    )*};
}
numbers! { u32: Unsigned usize: Size i64: Ssize u64: U64 }

macro_rules! defaulted {
    ($($type:ty)*) => {$(
        impl Kept for Option<$type> {
            const SHAPE: Shape = <$type>::SHAPE;
            fn plain(&self) -> Plain<'_> {
                self.as_ref().map_or(Plain::Unset, Kept::plain)
            }
        }
    )*};
}
defaulted! { u32 usize }
