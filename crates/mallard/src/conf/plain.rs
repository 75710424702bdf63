//! What an option's value is to C, as `mallctl` tells it: the type, by how the value is kept, and
//! the value itself.

use super::text::Text;
use super::value::DirtyMax;
use core::ffi::CStr;

/// A value in C's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain<'a> {
    Switch(bool),
    Number(i128),
    Text(&'a CStr),
    /// `default`: whatever the allocator then decides.
    Unset,
    /// What only a text can say, as it is written in an option string.
    Written,
}

/// The type in C that such a value naturally has.
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

/// What options are kept as.
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

impl<const N: usize> Kept for Text<N> {
    const SHAPE: Shape = Shape::Text;
    fn plain(&self) -> Plain<'_> {
        Plain::Text(self.as_c_str())
    }
}

macro_rules! written {
    ($($type:ty)*) => {$(
        impl Kept for $type {
            const SHAPE: Shape = Shape::Written;
            fn plain(&self) -> Plain<'_> {
                Plain::Written
            }
        }
    )*};
}
// The second is a fraction.
written! { DirtyMax Option<u64> }
