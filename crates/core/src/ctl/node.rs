//! The building blocks of the tree: nodes and leaves.
//!
//! A function produces the names below a node each time they are needed ([`Names`]). As constant
//! data they would hold two addresses a name, all of which the loader relocates at the start of
//! every program: 30 KiB of memory that hardly any program reads. The documentation lines exist
//! only in tests, which write the reference from them.

use super::CtlResult;
use super::access::{Access, At, Mode};
use super::request::Request;
use core::ffi::{CStr, c_char, c_uint, c_void};

/// The most components of a name.
pub const DEPTH: usize = 7;

/// Shows the names below this place in order, some at a time, because they lie on the program's
/// stack.
pub type Names = fn(See<'_>);

/// The callback that looks at names with a common parent.
pub type See<'a> = &'a mut dyn FnMut(&[Node]);

/// One component of names: a leaf, or a branch.
pub struct Node {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    #[cfg(test)]
    pub(super) doc: &'static str,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Leaf(Leaf),
    Names(Names),
    /// The options, which have their own table.
    Options,
    Indexed(Indexed),
}

/// A component that is a number.
#[derive(Clone, Copy)]
pub struct Indexed {
    /// How the reference writes it: `i`, `j`.
    #[cfg(test)]
    pub(super) letter: &'static str,
    /// Whether this index exists now, at the current position.
    pub(super) exists: fn(&At<'_>, usize) -> bool,
    pub(super) below: Names,
}

/// A leaf, and its line in the reference.
pub const fn name(name: &'static str, leaf: Leaf, doc: &'static str) -> Node {
    let _ = doc;
    Node {
        name,
        kind: Kind::Leaf(leaf),
        #[cfg(test)]
        doc,
    }
}

/// A branch with names.
pub const fn branch(name: &'static str, below: Names) -> Node {
    Node {
        name,
        kind: Kind::Names(below),
        #[cfg(test)]
        doc: "",
    }
}

/// The branch of the options.
pub const fn options(name: &'static str) -> Node {
    Node {
        name,
        kind: Kind::Options,
        #[cfg(test)]
        doc: "",
    }
}

/// A branch whose next component is a number, which the reference writes `<letter>`.
pub const fn indexed(
    name: &'static str,
    letter: &'static str,
    exists: fn(&At<'_>, usize) -> bool,
    below: Names,
) -> Node {
    let _ = letter;
    Node {
        name,
        kind: Kind::Indexed(Indexed {
            #[cfg(test)]
            letter,
            exists,
            below,
        }),
        #[cfg(test)]
        doc: "",
    }
}

/// A leaf, by its type in C.
#[derive(Clone, Copy)]
pub enum Leaf {
    /// `bool`
    Bool(Access<bool>),
    /// `unsigned`
    Unsigned(Access<c_uint>),
    /// `uint32_t`
    U32(Access<u32>),
    /// `size_t`
    Size(Access<usize>),
    /// `ssize_t`
    Ssize(Access<isize>),
    /// `uint64_t`
    U64(Access<u64>),
    /// `int64_t`
    I64(Access<i64>),
    /// `const char *`: read as a text that is never freed, written as an arbitrary pointer.
    Text(Access<&'static CStr, *const c_char>),
    /// `uint64_t *`: a counter that its owner may read at any time.
    Counter(Access<*mut u64>),
    /// A pointer, with the name of its type in the reference.
    Pointer(&'static str, Access<*mut c_void>),
    /// A number of the statistics, read-only.
    Figure(Figure),
    /// Neither read nor written: performs an action.
    Action(fn(&At<'_>) -> CtlResult<()>),
    /// A leaf with its own rules.
    Special(Special),
}

/// A number in a table of numbers, which all have one reader (`branches/stats/rows.rs`).
#[derive(Clone, Copy)]
pub struct Figure {
    pub number: Number,
    /// Reads the number of a row.
    pub read: fn(&At<'_>, usize) -> CtlResult<u64>,
    pub row: usize,
}

/// The C type of a [`Figure`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// `unsigned`
    Unsigned,
    /// `uint32_t`
    U32,
    /// `size_t`
    Size,
    /// `ssize_t`
    Ssize,
    /// `uint64_t`
    U64,
}

impl Number {
    #[cfg(test)]
    const fn c_type(self) -> &'static str {
        match self {
            Number::Unsigned => "unsigned",
            Number::U32 => "uint32_t",
            Number::Size => "size_t",
            Number::Ssize => "ssize_t",
            Number::U64 => "uint64_t",
        }
    }
}

impl Figure {
    pub(super) fn get(&self, at: &At<'_>) -> CtlResult<u64> {
        (self.read)(at, self.row)
    }

    #[inline(never)]
    fn serve(&self, at: &At<'_>, request: &mut Request) -> CtlResult<()> {
        request.allow(Mode::ReadOnly)?;
        let value = self.get(at)?;
        match self.number {
            Number::Unsigned | Number::U32 => request.answer(value as u32),
            Number::Size | Number::Ssize | Number::U64 => request.answer(value),
        }
    }
}

#[derive(Clone, Copy)]
pub struct Special {
    /// The type in C, for the reference.
    pub c_type: &'static str,
    /// For the reference; `serve` itself has to enforce it ([`Request::allow`]).
    pub mode: Mode,
    pub serve: fn(&At<'_>, &mut Request) -> CtlResult<()>,
}

/// A C type that only the reference needs, which tests write.
pub(super) const fn in_reference(c_type: &'static str) -> &'static str {
    if cfg!(test) { c_type } else { "" }
}

impl Leaf {
    #[cfg(test)]
    pub fn mode(&self) -> Mode {
        match self {
            Leaf::Bool(a) => a.mode(),
            Leaf::Unsigned(a) => a.mode(),
            Leaf::U32(a) => a.mode(),
            Leaf::Size(a) => a.mode(),
            Leaf::Ssize(a) => a.mode(),
            Leaf::U64(a) => a.mode(),
            Leaf::I64(a) => a.mode(),
            Leaf::Text(a) => a.mode(),
            Leaf::Counter(a) => a.mode(),
            Leaf::Pointer(_, a) => a.mode(),
            Leaf::Figure(_) => Mode::ReadOnly,
            Leaf::Action(_) => Mode::Neither,
            Leaf::Special(special) => special.mode,
        }
    }

    /// The type in C, for the reference.
    #[cfg(test)]
    pub fn c_type(&self) -> &'static str {
        match self {
            Leaf::Bool(_) => "bool",
            Leaf::Unsigned(_) => "unsigned",
            Leaf::U32(_) => "uint32_t",
            Leaf::Size(_) => "size_t",
            Leaf::Ssize(_) => "ssize_t",
            Leaf::U64(_) => "uint64_t",
            Leaf::I64(_) => "int64_t",
            Leaf::Text(_) => "const char *",
            Leaf::Counter(_) => "uint64_t *",
            Leaf::Pointer(c_type, _) => c_type,
            Leaf::Figure(figure) => figure.number.c_type(),
            Leaf::Action(_) => "",
            Leaf::Special(special) => special.c_type,
        }
    }

    /// Serves a request for this leaf.
    pub(super) fn serve(&self, at: &At<'_>, request: &mut Request) -> CtlResult<()> {
        match self {
            Leaf::Bool(a) => request.value(a, at),
            Leaf::Unsigned(a) => request.value(a, at),
            Leaf::U32(a) => request.value(a, at),
            Leaf::Size(a) => request.value(a, at),
            Leaf::Ssize(a) => request.value(a, at),
            Leaf::U64(a) => request.value(a, at),
            Leaf::I64(a) => request.value(a, at),
            Leaf::Text(a) => request.value(a, at),
            Leaf::Counter(a) => request.value(a, at),
            Leaf::Pointer(_, a) => request.value(a, at),
            Leaf::Figure(figure) => figure.serve(at, request),
            Leaf::Action(act) => {
                request.allow(Mode::Neither)?;
                act(at)
            }
            Leaf::Special(special) => (special.serve)(at, request),
        }
    }
}
