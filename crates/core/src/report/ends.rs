//! The misuses for which the default checks end the process: a line of JSON beside the line of text
//! that is printed.

use super::FRAMES_MAX;
use super::finding::{Block, Event, Finding, FoundBy};
use super::print::{self, Wanted};
use crate::arena::misuse::{self, Misuse};
use crate::prof::unwind::Registers;
use core::ffi::CStr;

/// Appends all reports to a file as well, also those of the default checks. For a thread that is
/// inside, after [`print::begin`].
pub fn append_to(file: &'static CStr) {
    print::set_file(file);
    misuse::record_by(record);
}

/// Appends a misuse of a call with the address `at` to the file of reports.
#[cold]
#[inline(never)]
fn record(misuse: Misuse, at: usize) {
    let block = |at, size| {
        Some(Block {
            at,
            size,
            place: "",
        })
    };
    // A block that is free already may be found when its thread's cache returns it.
    let (kind, found_by, block) = match misuse {
        Misuse::Double(size) => ("double free", FoundBy::Check, block(at, size)),
        Misuse::Inside(into, size) => ("invalid free", FoundBy::Check, block(at - into, size)),
        Misuse::NoBlock => ("invalid free", FoundBy::Check, None),
        Misuse::Foreign => ("foreign free", FoundBy::Free, None),
        Misuse::Size(_, size) => ("wrong size", FoundBy::Free, block(at, size)),
    };
    let finding = Finding {
        kind,
        found_by,
        at,
        block,
        damage: None,
        allocated: Event::NONE,
        freed: Event::NONE,
    };
    let mut room = [0; FRAMES_MAX];
    let frames = print::stack_of_this_thread(&Registers::here(), &mut room);
    print::print_as(Wanted::Json, &finding, frames);
}
