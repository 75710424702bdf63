//! Finds the place of a name or a MIB in the tree, in one step per component, without allocating.

use super::access::At;
use super::node::{DEPTH, Indexed, Kind, Leaf, Names, Node};
use super::{CtlResult, Error, opt};
use crate::sys::proc;

/// The position of a lookup.
pub(super) struct Cursor {
    location: Location,
    mib: [usize; DEPTH],
    depth: usize,
    indices: [usize; DEPTH],
    numbers: usize,
}

#[derive(Clone, Copy)]
enum Location {
    Leaf(Leaf),
    Names(Names),
    Options,
    Indexed(Indexed),
}

impl Cursor {
    pub fn new(root: Names) -> Self {
        Cursor {
            location: Location::Names(root),
            mib: [0; DEPTH],
            depth: 0,
            indices: [0; DEPTH],
            numbers: 0,
        }
    }

    /// Finds the place of a whole name. Not inlined, so that its stack frame is gone when it
    /// returns.
    #[inline(never)]
    pub fn find(root: Names, name: &[u8]) -> CtlResult<Self> {
        let mut cursor = Cursor::new(root);
        for component in name.split(|&byte| byte == b'.') {
            cursor.enter_named(component)?;
        }
        Ok(cursor)
    }

    /// Like [`Cursor::find`], for a whole MIB.
    #[inline(never)]
    pub fn find_mib(root: Names, mib: &[usize]) -> CtlResult<Self> {
        let mut cursor = Cursor::new(root);
        for &component in mib {
            cursor.enter(component)?;
        }
        Ok(cursor)
    }

    /// Descends by a component of a name; returns its MIB component.
    pub fn enter_named(&mut self, component: &[u8]) -> CtlResult<usize> {
        let position = match self.location {
            Location::Names(names) => position(names, component).ok_or(Error::NotFound)?,
            Location::Options => opt::position(component).ok_or(Error::NotFound)?,
            Location::Indexed(_) => proc::number(component, 10).ok_or(Error::NotFound)?,
            Location::Leaf(_) => return Err(Error::NotFound),
        };
        self.enter(position)?;
        Ok(position)
    }

    /// Descends by a component of a MIB.
    fn enter(&mut self, component: usize) -> CtlResult<()> {
        self.location = match self.location {
            Location::Names(names) => match nth(names, component).ok_or(Error::NotFound)?.1 {
                Kind::Leaf(leaf) => Location::Leaf(leaf),
                Kind::Names(names) => Location::Names(names),
                Kind::Options => Location::Options,
                Kind::Indexed(indexed) => Location::Indexed(indexed),
            },
            Location::Options if component == opt::AT_SOURCES => Location::Names(opt::sources),
            Location::Options => Location::Leaf(opt::leaf(component).ok_or(Error::NotFound)?),
            Location::Indexed(indexed) => {
                if !(indexed.exists)(&self.at(), component) {
                    return Err(Error::NotFound);
                }
                *self.indices.get_mut(self.numbers).ok_or(Error::NotFound)? = component;
                self.numbers += 1;
                Location::Names(indexed.below)
            }
            Location::Leaf(_) => return Err(Error::NotFound),
        };
        *self.mib.get_mut(self.depth).ok_or(Error::NotFound)? = component;
        self.depth += 1;
        Ok(())
    }

    /// The position so far.
    pub fn at(&self) -> At<'_> {
        At::new(
            self.mib.get(..self.depth).unwrap_or(&[]),
            self.indices.get(..self.numbers).unwrap_or(&[]),
        )
    }

    /// The leaf here, if the name ends here.
    pub fn leaf(&self) -> CtlResult<Leaf> {
        match self.location {
            Location::Leaf(leaf) => Ok(leaf),
            _ => Err(Error::NotFound),
        }
    }
}

/// The position of a name among its siblings.
fn position(names: Names, name: &[u8]) -> Option<usize> {
    let (mut found, mut before) = (None, 0);
    let same = |node: &Node| node.name.as_bytes() == name;
    names(&mut |nodes| {
        found = found.or_else(|| Some(before + nodes.iter().position(same)?));
        before += nodes.len();
    });
    found
}

/// The name at a position among its siblings, and its kind.
pub(super) fn nth(names: Names, position: usize) -> Option<(&'static str, Kind)> {
    let (mut found, mut before) = (None, 0);
    names(&mut |nodes| {
        let node = position.checked_sub(before).and_then(|n| nodes.get(n));
        found = found.or(node.map(|node| (node.name, node.kind)));
        before += nodes.len();
    });
    found
}
