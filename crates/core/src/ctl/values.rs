//! The tree for the report: lists of names, and values independent of their C types.

use super::access::{Access, At};
use super::lookup::{Cursor, nth};
use super::node::{Kind, Leaf, Names, Number, Special};
use super::{CtlResult, Error, Request, opt, root};
use crate::api;
use core::ffi::CStr;

/// A value that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Text(&'static CStr),
}

/// The names directly below one of the tree's branches, in the order of its table.
pub fn names(branch: &str) -> impl Iterator<Item = &'static str> {
    let found = (0..)
        .map_while(|i| nth(root, i))
        .find(|&(name, _)| name == branch);
    let (below, options): (Option<Names>, _) = match found.map(|(_, kind)| kind) {
        Some(Kind::Names(below)) => (Some(below), None),
        Some(Kind::Options) => (None, Some(opt::names())),
        _ => (None, None),
    };
    below
        .into_iter()
        .flat_map(|below| (0..).map_while(move |i| nth(below, i)))
        .filter(|(_, kind)| matches!(kind, Kind::Leaf(_)))
        .map(|(name, _)| name)
        .chain(options.into_iter().flatten())
}

/// The value of a name directly below a branch, if it can be read as one.
pub fn value(branch: &str, name: &str) -> CtlResult<Value> {
    api::start();
    let mut cursor = Cursor::new(root);
    cursor.enter_named(branch.as_bytes())?;
    cursor.enter_named(name.as_bytes())?;
    told(&cursor.leaf()?, &cursor.at())
}

fn told(leaf: &Leaf, at: &At<'_>) -> CtlResult<Value> {
    Ok(match leaf {
        Leaf::Bool(access) => Value::Bool(read(access, at)?),
        Leaf::Unsigned(access) => Value::Unsigned(read(access, at)?.into()),
        Leaf::U32(access) => Value::Unsigned(read(access, at)?.into()),
        Leaf::Size(access) => Value::Unsigned(read(access, at)? as u64),
        Leaf::U64(access) => Value::Unsigned(read(access, at)?),
        Leaf::Ssize(access) => Value::Signed(read(access, at)? as i64),
        Leaf::I64(access) => Value::Signed(read(access, at)?),
        Leaf::Text(access) => Value::Text(read(access, at)?),
        Leaf::Figure(figure) if figure.number == Number::Ssize => {
            Value::Signed(figure.get(at)? as i64)
        }
        Leaf::Figure(figure) => Value::Unsigned(figure.get(at)?),
        Leaf::Special(special) if special.c_type == "bool" => Value::Bool(asked(special, at)?),
        _ => return Err(Error::NotPermitted),
    })
}

/// Reads a switch that has its own rules.
fn asked(special: &Special, at: &At<'_>) -> CtlResult<bool> {
    let (mut on, mut len) = (0u8, 1);
    // SAFETY: one byte is as long as a bool, and there is no new value.
    let mut request = unsafe { Request::new((&raw mut on).cast(), &mut len, core::ptr::null(), 0) };
    (special.serve)(at, &mut request)?;
    Ok(on != 0)
}

fn read<T, New>(access: &Access<T, New>, at: &At<'_>) -> CtlResult<T> {
    match access {
        Access::Read(read) | Access::ReadWrite(read, _) => read(at),
        Access::Write(_) => Err(Error::NotPermitted),
    }
}
