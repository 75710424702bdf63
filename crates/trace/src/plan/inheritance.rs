//! What lives in a process when it begins: in a forked one, the blocks of its parent.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use crate::Result;
use crate::event::Kind;
use crate::life::Lives;
use crate::recording::Recording;

/// The blocks that a forked process begins with: address and size, in the order of addresses.
pub(crate) fn inherited<R: Read + Seek>(
    recording: &mut Recording<R>,
    process: u32,
) -> Result<Vec<(u64, u64)>> {
    inherited_of(recording, process, GENERATIONS_MAX)
}

/// Forks of forks that are followed; more than any program has had.
const GENERATIONS_MAX: u32 = 256;

fn inherited_of<R: Read + Seek>(
    recording: &mut Recording<R>,
    process: u32,
    generations: u32,
) -> Result<Vec<(u64, u64)>> {
    let Some(child) = recording.processes.get(&process) else {
        return Ok(Vec::new());
    };
    let Some(parent) = child
        .forked_from
        .filter(|parent| *parent < process && generations > 0)
    else {
        return Ok(Vec::new());
    };
    let since = child.since;
    let mut blocks: Lives<u64, ()> = Lives::default();
    for (address, size) in inherited_of(recording, parent, generations - 1)? {
        blocks.begin(address, 0, size);
    }
    let mut resizing: BTreeMap<u32, (u64, Option<u64>)> = BTreeMap::new();
    let mut merged = recording.merged(parent);
    while let Some((thread, event)) = merged.next_event()? {
        if event.when > since {
            break;
        }
        match event.kind {
            Kind::ReallocBegin if event.address == 0 => {
                resizing.insert(thread, (0, None));
            }
            Kind::ReallocBegin => {
                let old = blocks.end(event.address, event.when, ());
                resizing.insert(thread, (event.address, old.map(|(size, ())| size)));
            }
            Kind::ReallocEnd if event.address == 0 => {
                if let Some((address, Some(size))) = resizing.remove(&thread)
                    && event.size != 0
                {
                    blocks.begin(address, event.when, size);
                }
            }
            kind if kind.ends() => {
                blocks.end(event.address, event.when, ());
            }
            kind if kind.begins() => {
                blocks.begin(event.address, event.when, event.size);
            }
            _ => {}
        }
    }
    let mut all: Vec<(u64, u64)> = blocks
        .iter()
        .map(|(address, size)| (address, *size))
        .collect();
    all.sort_unstable();
    Ok(all)
}
