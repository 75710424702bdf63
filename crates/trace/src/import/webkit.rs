//! WebKit's MallocBench: structures of 24 bytes, which name blocks by slots and not by addresses.
//! Opcode (4 bytes), thread (2), logarithm of the alignment (2), slot (8), size (8).

use std::collections::HashMap;
use std::io::{BufRead, ErrorKind, Write};

use super::{SPACING_BYTES, Sink};
use crate::event::Kind;
use crate::{Error, Result};

const OP_BYTES: usize = 24;

pub fn read<W: Write>(mut from: impl BufRead, sink: &mut Sink<W>) -> Result<()> {
    let mut op = [0; OP_BYTES];
    let mut live: HashMap<u64, ()> = HashMap::new();
    loop {
        match from.read_exact(&mut op) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let eight = |at: usize| u64::from_le_bytes(op[at..at + 8].try_into().expect("8 bytes"));
        let code = u32::from_le_bytes(op[..4].try_into().expect("4 bytes"));
        let thread = u64::from(u16::from_le_bytes([op[4], op[5]]));
        let align = u16::from_le_bytes([op[6], op[7]]);
        let (slot, size) = (eight(8), eight(16));
        if slot >= 1 << 32 || size >= 1 << 47 {
            return Err(Error::Damaged(
                "an operation has an impossible slot or size",
            ));
        }
        // Slots become addresses.
        let address = (slot + 1) * SPACING_BYTES;
        match code {
            0 => {
                live.insert(slot, ());
                sink.push(thread, Kind::Malloc, address, size)?;
            }
            1 => {
                if live.remove(&slot).is_some() {
                    sink.push(thread, Kind::Free, address, 0)?;
                }
            }
            2 => {
                if live.contains_key(&slot) {
                    sink.push(thread, Kind::ReallocBegin, address, 0)?;
                    sink.push(thread, Kind::ReallocEnd, address, size)?;
                }
            }
            3 => {
                live.insert(slot, ());
                // An alignment that is no power of two has all bits set; WebKit then asks for
                // 0xff00.
                let align = if align < 48 { align as u8 } else { 4 };
                sink.push_aligned(thread, Kind::Aligned, address, size, align)?;
            }
            _ => {
                return Err(Error::Damaged(
                    "an operation has an unknown code (no .ops file?)",
                ));
            }
        }
    }
}
