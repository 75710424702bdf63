//! What a leaf of the tree allows, and where the lookup that reached it stands.

use super::CtlResult;

/// The position of a lookup: the MIB so far, and those of its components that are numbers.
pub struct At<'a> {
    mib: &'a [usize],
    indices: &'a [usize],
}

impl<'a> At<'a> {
    pub(super) fn new(mib: &'a [usize], indices: &'a [usize]) -> Self {
        At { mib, indices }
    }

    /// The MIB: for each component its position among its siblings, or the number itself.
    pub fn mib(&self) -> &[usize] {
        self.mib
    }

    /// The `n`th number in the name: in `stats.arenas.<i>.bins.<j>.size`, `i` has the index 0 and
    /// `j` 1.
    pub fn index(&self, n: usize) -> usize {
        self.indices.get(n).copied().unwrap_or(0)
    }
}

/// Whether a name can be read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    ReadOnly,
    WriteOnly,
    ReadWrite,
    Neither,
}

pub type Read<T> = fn(&At<'_>) -> CtlResult<T>;
pub type Write<T> = fn(&At<'_>, T) -> CtlResult<()>;

/// How a value can be accessed.
#[derive(Clone, Copy)]
pub enum Access<T, New = T> {
    Read(Read<T>),
    /// A value must be given.
    Write(Write<New>),
    /// Either or both: the answer is the previous value.
    ReadWrite(Read<T>, Write<New>),
}

impl<T, New> Access<T, New> {
    #[cfg(test)]
    pub(super) const fn mode(&self) -> Mode {
        match self {
            Access::Read(_) => Mode::ReadOnly,
            Access::Write(_) => Mode::WriteOnly,
            Access::ReadWrite(..) => Mode::ReadWrite,
        }
    }
}
