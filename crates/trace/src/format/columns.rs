//! The events of a chunk as columns, which compress well: all kinds, all times, all sizes, all
//! addresses.
//!
//! Times are differences to the event before. An address is given by what happened to it in the
//! same chunk: a free names the block by how many blocks began since it did, and a new block that
//! has the address of one that ended names that one by how many ended since. Both numbers are
//! small, because programs free young blocks and allocators hand out the memory that was freed
//! last. Any other address is a difference to the last such address of the same kind.

use super::varint;
use crate::event::{Event, Kind};
use crate::hash::Addresses;
use crate::{Error, Result};

/// The most events in one chunk.
pub const EVENTS_MAX: usize = 1 << 20;
/// Columns: kinds, times, sizes, alignments, codes of addresses, new addresses.
const COLUMN_COUNT: usize = 6;
/// Addresses are at most this far shifted: blocks lie at multiples of 16, or of 8.
const SHIFT_BITS_MAX: u32 = 4;

/// The columns of events whose times begin at `first`.
pub fn encode(events: &[Event], first: u64) -> Vec<u8> {
    Encoder::default().encode(events, first)
}

/// Makes columns, in memory that it keeps from chunk to chunk.
#[derive(Default)]
pub struct Encoder {
    columns: [Vec<u8>; COLUMN_COUNT],
    known: Known,
}

impl Encoder {
    /// The columns of events whose times begin at `first`.
    pub fn encode(&mut self, events: &[Event], first: u64) -> Vec<u8> {
        self.encode_all([(events, first)].into_iter())
    }

    /// The columns of several parts, whose times begin at their first events.
    pub fn encode_parts<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a [Event]> + Clone,
    ) -> Vec<u8> {
        self.encode_all(parts.filter_map(|events| Some((events, events.first()?.when))))
    }

    fn encode_all<'a>(
        &mut self,
        parts: impl Iterator<Item = (&'a [Event], u64)> + Clone,
    ) -> Vec<u8> {
        self.columns.iter_mut().for_each(Vec::clear);
        self.known.clear();
        let shift = shift(parts.clone().flat_map(|(events, _)| events));
        let mut count = 0;
        for (events, first) in parts {
            count += events.len();
            fill(&mut self.columns, &mut self.known, events, first, shift);
        }
        let bytes = self.columns.iter().map(Vec::len).sum::<usize>();
        let mut all = Vec::with_capacity(bytes + (COLUMN_COUNT + 2) * varint::BYTES_MAX);
        varint::write(count as u64, &mut all);
        all.push(shift as u8);
        for column in &self.columns {
            varint::write(column.len() as u64, &mut all);
        }
        for column in &self.columns {
            all.extend(column);
        }
        all
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Encoder")
    }
}

/// Fills the columns. Addresses are shifted.
fn fill(
    columns: &mut [Vec<u8>; COLUMN_COUNT],
    known: &mut Known,
    events: &[Event],
    first: u64,
    shift: u32,
) {
    let [kinds, times, sizes, alignments, codes, addresses] = columns;
    let mut before = first;
    for event in events {
        kinds.push(event.kind as u8);
        varint::write(event.when.saturating_sub(before), times);
        before = before.max(event.when);
        if event.kind.has_size() {
            varint::write(event.size, sizes);
        }
        if event.kind == Kind::Aligned {
            alignments.push(event.align);
        }
        if event.kind.has_address() {
            known.encode(event.kind, event.address >> shift, codes, addresses);
        }
    }
}

/// The lowest bits that are zero in all addresses.
fn shift<'a>(events: impl Iterator<Item = &'a Event>) -> u32 {
    let addresses = events.filter(|event| event.kind.has_address());
    let all = addresses.fold(0, |all, event| all | event.address);
    all.trailing_zeros().min(SHIFT_BITS_MAX)
}

/// Reads events whose times begin at `first`.
pub fn decode(bytes: &[u8], first: u64) -> Result<Vec<Event>> {
    decode_parts(bytes, [(usize::MAX, first)].into_iter())
}

/// Reads the events of several parts, of which the lengths and the first times are known. The last
/// one may be shorter.
pub fn decode_parts(
    bytes: &[u8],
    mut parts: impl Iterator<Item = (usize, u64)>,
) -> Result<Vec<Event>> {
    let (count, shift, columns) = split(bytes)?;
    let [
        kinds,
        mut times,
        mut sizes,
        mut alignments,
        mut codes,
        mut addresses,
    ] = columns;
    let mut events = Vec::with_capacity(count);
    let (mut left, mut when) = (0, 0);
    let mut known = Known::default();
    for &kind in kinds {
        if left == 0 {
            let part = parts.next();
            (left, when) = part.ok_or(Error::Damaged("a chunk has events of no thread"))?;
        }
        left -= 1;
        let kind = Kind::from_number(kind).ok_or(Error::Damaged("an event of an unknown kind"))?;
        let passed = varint::read(&mut times)?;
        when = when
            .checked_add(passed)
            .ok_or(Error::Damaged("a time is too large"))?;
        let mut event = Event::new(when, kind, 0, 0);
        if kind.has_size() {
            event.size = varint::read(&mut sizes)?;
        }
        if kind == Kind::Aligned {
            let (&align, rest) = alignments
                .split_first()
                .ok_or(Error::Damaged("a column ends early"))?;
            if align >= 48 {
                return Err(Error::Damaged("an alignment is too large"));
            }
            (event.align, alignments) = (align, rest);
        }
        if kind.has_address() {
            event.address = known.decode(kind, &mut codes, &mut addresses)? << shift;
        }
        events.push(event);
    }
    let left = [times, sizes, alignments, codes, addresses];
    if left.iter().any(|column| !column.is_empty()) {
        return Err(Error::Damaged("a column is longer than its events"));
    }
    Ok(events)
}

/// How many events a chunk has, how far their addresses are shifted, and its columns.
fn split(mut bytes: &[u8]) -> Result<(usize, u32, [&[u8]; COLUMN_COUNT])> {
    let count = varint::read(&mut bytes)?;
    let count = usize::try_from(count).ok().filter(|n| *n <= EVENTS_MAX);
    let count = count.ok_or(Error::Damaged("a chunk has too many events"))?;
    let (&shift, rest) = bytes
        .split_first()
        .ok_or(Error::Damaged("a chunk ends early"))?;
    let shift = u32::from(shift);
    if shift > SHIFT_BITS_MAX {
        return Err(Error::Damaged("addresses are shifted too far"));
    }
    bytes = rest;
    let mut lengths = [0; COLUMN_COUNT];
    for length in &mut lengths {
        *length = varint::read(&mut bytes)?;
    }
    let mut columns = [&[][..]; COLUMN_COUNT];
    for (column, length) in columns.iter_mut().zip(lengths) {
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= bytes.len());
        let length = length.ok_or(Error::Damaged("a column is longer than its chunk"))?;
        (*column, bytes) = bytes.split_at(length);
    }
    let [kinds, ..] = columns;
    if kinds.len() != count || !bytes.is_empty() {
        return Err(Error::Damaged("a column has another length than its chunk"));
    }
    Ok((count, shift, columns))
}

/// The addresses of blocks that began and ended in this chunk so far.
#[derive(Default)]
struct Known {
    begun: Side,
    ended: Side,
    /// The last new address of each kind of event.
    last: [u64; 16],
}

#[derive(Default)]
struct Side {
    addresses: Vec<u64>,
    /// Where in `addresses` each was last; only for encoding.
    places: Addresses<usize>,
}

impl Side {
    fn clear(&mut self) {
        self.addresses.clear();
        self.places.clear();
    }

    fn push(&mut self, address: u64) {
        self.addresses.push(address);
    }

    fn note(&mut self, address: u64) {
        self.places.insert(address, self.addresses.len());
        self.push(address);
    }

    /// How far back the address is: 1 for the last.
    fn distance(&self, address: u64) -> Option<u64> {
        let place = self.places.get(&address)?;
        Some((self.addresses.len() - place) as u64)
    }
}

impl Known {
    fn clear(&mut self) {
        self.begun.clear();
        self.ended.clear();
        self.last = Default::default();
    }

    /// Where an event of this kind finds its address, and where it leaves it.
    fn sides(&mut self, kind: Kind) -> (&mut Side, Option<&mut Side>) {
        if kind.begins() {
            (&mut self.ended, Some(&mut self.begun))
        } else if kind.ends() {
            (&mut self.begun, Some(&mut self.ended))
        } else {
            (&mut self.begun, None)
        }
    }

    fn encode(&mut self, kind: Kind, address: u64, codes: &mut Vec<u8>, new: &mut Vec<u8>) {
        let (from, to) = self.sides(kind);
        let distance = from.distance(address);
        if let Some(to) = to {
            to.note(address);
        }
        varint::write(distance.unwrap_or(0), codes);
        if distance.is_none() {
            let last = &mut self.last[kind as usize];
            let difference = address.wrapping_sub(*last) as i64;
            *last = address;
            varint::write(varint::zigzag(difference), new);
        }
    }

    fn decode(&mut self, kind: Kind, codes: &mut &[u8], new: &mut &[u8]) -> Result<u64> {
        let distance = varint::read(codes)?;
        let address = if distance == 0 {
            let difference = varint::unzigzag(varint::read(new)?);
            let last = &mut self.last[kind as usize];
            *last = last.wrapping_add(difference as u64);
            *last
        } else {
            let from = &self.sides(kind).0.addresses;
            let place = usize::try_from(distance)
                .ok()
                .and_then(|distance| from.len().checked_sub(distance));
            from[place.ok_or(Error::Damaged("an address refers to no block"))?]
        };
        if let Some(to) = self.sides(kind).1 {
            to.push(address);
        }
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::KINDS;
    use proptest::prelude::*;

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let one = (0..15_usize, 0..5_000_u64, 0..40_u64, any::<u64>(), 0..48_u8);
        let address = |index: u64, wild: u64| match index {
            0..35 => index * 48,
            35 => 0,
            _ => wild & 0xffff_ffff_ffff,
        };
        proptest::collection::vec(one, 0..300).prop_map(move |all| {
            let mut when = 77;
            all.into_iter()
                .map(|(kind, passed, index, wild, align)| {
                    when += passed;
                    let kind = KINDS[kind];
                    let mut event = Event::new(when, kind, 0, 0);
                    if kind.has_address() {
                        event.address = address(index, wild);
                    }
                    if kind.has_size() {
                        event.size = wild >> (wild % 64);
                    }
                    if kind == Kind::Aligned {
                        event.align = align;
                    }
                    event
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn events_are_read_as_they_were_written(events in events()) {
            let bytes = encode(&events, 77);
            prop_assert_eq!(decode(&bytes, 77).unwrap(), events);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, first: u64) {
            if let Ok(events) = decode(&bytes, first) {
                prop_assert_eq!(decode(&encode(&events, first), first).unwrap(), events);
            }
        }

        #[test]
        fn a_changed_byte_is_read_or_refused(events in events(), place: usize, value: u8) {
            let mut bytes = encode(&events, 77);
            let place = place % bytes.len();
            bytes[place] = value;
            let _ = decode(&bytes, 77);
        }
    }

    #[test]
    fn pairs_take_two_bytes_of_addresses() {
        let events: Vec<Event> = (0..1000)
            .flat_map(|i| {
                [
                    Event::new(2 * i, Kind::Malloc, 0x7f00_0000_1000, 64),
                    Event::new(2 * i + 1, Kind::Free, 0x7f00_0000_1000, 0),
                ]
            })
            .collect();
        // kind, time, code for each; a size for every other.
        assert!(encode(&events, 0).len() < 7_100);
    }
}
