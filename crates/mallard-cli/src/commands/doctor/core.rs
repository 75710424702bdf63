//! What lies at an address of the heap in a core file.

use std::path::Path;

use anyhow::{Context, Result, bail};
use mallard_inspect::memory::core::{self, Core};
use mallard_inspect::memory::heap::{self, Heap, Place};
use mallard_inspect::memory::image;
use mallard_report::model::Exit;
use mallard_report::units;
use serde::Serialize;

use super::advice::bytes;
use crate::options::search::SearchOptions;
use crate::profiles::frames::{self, Place as CodePlace};
use crate::terminal::exit;

/// A core file, and its addresses.
#[derive(Debug, Serialize)]
pub struct Explained {
    pub program: String,
    pub pid: Option<u32>,
    /// How the process ended.
    pub signal: Option<String>,
    pub addresses: Vec<Address>,
    pub notes: Vec<String>,
}

/// An address, and what lies there.
#[derive(Debug, Serialize)]
pub struct Address {
    /// Whose it is: `the access`, or a register.
    pub of: String,
    pub address: String,
    pub text: String,
    pub block: Option<String>,
    /// Bytes of the block.
    pub size: Option<u64>,
    pub offset: Option<u64>,
    /// Null if it is not known, or no block is there.
    pub free: Option<bool>,
    /// Bytes that the program asked for, where the heap profiler or the block's record knows.
    pub requested: Option<u64>,
    /// The stack that allocated it, where that is known.
    pub allocated: Vec<String>,
}

/// Reads a core file, and explains addresses: those given, or the one of the fault and those in
/// registers.
pub fn explain(file: &Path, given: &[u64], search: &SearchOptions) -> Result<Explained> {
    let shown = file.display();
    let bytes = core::open(file).with_context(|| format!("cannot read {shown}"))?;
    let Some(bytes) = bytes else {
        return Err(exit::usage(format!("{shown} is no core file")));
    };
    let mut core = Core::parse(&bytes).with_context(|| shown.to_string())?;
    core.open_files(search.root.as_deref());
    let mapped = core.mapped();
    let images = mapped.iter().filter(|mapped| mapped.begins_image());
    let roots: Vec<u64> = images
        .filter_map(|mapped| image::read(&core, mapped.start)?.root)
        .collect();
    if roots.is_empty() {
        bail!("{} in {shown} did not run on Mallard", core.name);
    }
    let found = roots
        .iter()
        .find_map(|&root| Some((root, Heap::read(&core, root)?)));
    let Some((root, heap)) = found else {
        return Err(exit::cannot_tell(format!(
            "{} in {shown} has no map of its heap: a process has one from its first second and 8 \
             MiB on, and with export_stats, prof or hardened from the start",
            core.name
        )));
    };
    let mut addresses = Vec::new();
    let all = match given {
        [] => of_interest(&core),
        given => given.iter().map(|&at| ("address".to_owned(), at)).collect(),
    };
    let mut explained = Vec::new();
    for (of, at) in all {
        let place = heap.find(&core, at);
        // A register with any other number says nothing.
        if place.is_none() && given.is_empty() && of != ACCESS {
            continue;
        }
        let (start, sampled) = match place.and_then(Place::range) {
            Some((start, _)) => (Some(start), heap::sampled(&core, root, start)),
            None => (None, None),
        };
        explained.push((of, at, place, start, sampled));
    }
    let code = |address: u64| {
        let inside = |mapped: &&mallard_inspect::memory::Mapped| {
            (mapped.start..mapped.limit).contains(&address) && !mapped.path.is_empty()
        };
        let mapped = mapped.iter().find(inside)?;
        let first = mapped_first(&core, &mapped.path);
        Some(CodePlace {
            path: mapped.path.clone(),
            offset: address - mapped.start + mapped.file_offset,
            build_id: first.unwrap_or_default(),
        })
    };
    let stacks = explained.iter().filter_map(|it| it.4.as_ref());
    let places = stacks
        .flat_map(|sampled| &sampled.stack)
        .filter_map(|&at| code(at));
    let names = frames::named(places, search);
    for (of, at, place, start, sampled) in &explained {
        let stack = sampled.iter().flat_map(|sampled| &sampled.stack);
        let lines = stack.flat_map(|&at| match code(at) {
            Some(place) => super::outcome::calls(&place, &names)
                .iter()
                .map(mallard_report::doctor::Call::shown)
                .collect(),
            None => vec![format!("{at:#x}")],
        });
        let requested = sampled.as_ref().map(|sampled| sampled.requested);
        addresses.push(Address {
            of: of.clone(),
            address: format!("{at:#x}"),
            text: text_of(*at, *place, requested),
            block: start.map(|start| format!("{start:#x}")),
            size: place.and_then(Place::range).map(|(_, bytes)| bytes),
            offset: start.map(|start| at - start),
            free: is_free(*place, sampled.is_some()),
            requested,
            allocated: lines.collect(),
        });
    }
    // A debugger that takes a core of a running process has stopped it by a signal.
    let signal = core
        .signal
        .and_then(|signal| i32::try_from(signal.number).ok())
        .filter(|&signal| super::session::is_crash(signal));
    let mut notes = Vec::from_iter(core.short().map(|short| short.to_string()));
    let is_vague = |address: &Address| address.block.is_some() && address.free.is_none();
    if addresses.iter().any(is_vague) {
        notes.push(
            "a freed block counts as in use until the thread's cache returns it to its page"
                .to_owned(),
        );
    }
    Ok(Explained {
        program: core.name.clone(),
        pid: core.pid,
        signal: signal.map(|signal| units::exit(Exit::Signal(signal))),
        addresses,
        notes,
    })
}

const ACCESS: &str = "the access";

/// The address of the fault, and what is in the registers.
fn of_interest(core: &Core<'_>) -> Vec<(String, u64)> {
    let fault = core.signal.and_then(|signal| signal.address);
    let fault = fault.map(|at| (ACCESS.to_owned(), at));
    let registers = core.registers.iter();
    let registers = registers.map(|&(name, value)| (name.to_owned(), value));
    fault.into_iter().chain(registers).collect()
}

/// The build id of a file in the core.
fn mapped_first(core: &Core<'_>, path: &str) -> Option<String> {
    let mapped = core.mapped();
    let first = mapped
        .iter()
        .find(|it| it.path == path && it.begins_image())?;
    Some(image::read(core, first.start)?.build_id)
}

fn is_free(place: Option<Place>, is_sampled: bool) -> Option<bool> {
    match place? {
        Place::Region { is_free: true, .. } | Place::Large { is_free: true, .. } => Some(true),
        Place::Large { .. } => Some(false),
        Place::Region { .. } => is_sampled.then_some(false),
        Place::NoBlock => None,
    }
}

fn text_of(at: u64, place: Option<Place>, requested: Option<u64>) -> String {
    let Some(place) = place else {
        return "not in the heap".to_owned();
    };
    let Some((start, size)) = place.range() else {
        return "in the heap, where no block is".to_owned();
    };
    let state = match (place, is_free(Some(place), requested.is_some())) {
        (_, Some(true)) => "free",
        (_, Some(false)) => "in use",
        (_, None) => "in use, or in a thread's cache",
    };
    let asked = requested.map_or_else(String::new, |asked| format!(", for {}", bytes(asked)));
    let into = at - start;
    let behind = match requested {
        Some(asked) if into >= asked => {
            format!(", {} behind what was asked for", bytes(into - asked))
        }
        _ => String::new(),
    };
    format!(
        "{} into a block of {} at {start:#x}{asked}{behind}: {state}",
        bytes(into),
        bytes(size)
    )
}

/// The text for a terminal.
pub fn text(explained: &Explained) -> String {
    let pid = explained
        .pid
        .map_or_else(String::new, |pid| format!(" ({pid})"));
    let end = explained.signal.as_ref();
    let end = end.map_or_else(String::new, |signal| format!(" ended by {signal}"));
    let mut text = format!("{}{pid}{end}\n", explained.program);
    for address in &explained.addresses {
        text += &format!("\n{} {}\n  {}\n", address.of, address.address, address.text);
        for (number, line) in address.allocated.iter().enumerate() {
            if number == 0 {
                text += "  allocated by:\n";
            }
            text += &format!("    {line}\n");
        }
    }
    if explained.addresses.is_empty() {
        text += "no register has an address of the heap; --address explains others\n";
    }
    for note in &explained.notes {
        text += &format!("note: {note}\n");
    }
    text
}
