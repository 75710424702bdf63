//! pprof's form of a heap profile: the protocol buffer of `profile.proto`, gzipped.
//!
//! The values of a sample are objects and bytes allocated, objects and bytes in use, bytes at the
//! peak, bytes in use that rounding up wastes, objects freed, the nanoseconds that those lived, and
//! the free bytes in pages that objects in use keep from being returned. What was ever allocated
//! and the peak are known by call stack; what is in use, by block too, so that those samples have
//! labels: the size of the block, the thread and the arena. Without memory for that, or with very
//! many samples, or in changes, it is known by call stack alone, and a comment says so. The address
//! of a location is its number. Names of functions are left to the reader.

use super::file::Sink;
use super::gzip::Gzip;
use super::maps;
use super::snapshot::Snapshot;
use super::strings;
use super::text::HEX_DIGITS;
use crate::prof::history;
use crate::prof::samples::{self, SampleGroup, SampleGroups};
use crate::prof::sites::{self, Amount, Site, SiteTotals};
use crate::prof::sort::Numbers;
use crate::space::meta;
use crate::sys::spread::SPREAD_FACTOR;
use crate::sys::time;
use core::ptr::NonNull;
use mallard_formats::profile;
use mallard_formats::records::FRACTION_BITS;

/// Fields of the messages of `profile.proto`.
mod field {
    pub const SAMPLE_TYPE: u64 = 1;
    pub const SAMPLE: u64 = 2;
    pub const MAPPING: u64 = 3;
    pub const LOCATION: u64 = 4;
    pub const STRING: u64 = 6;
    pub const TIME_NANOS: u64 = 9;
    pub const PERIOD_TYPE: u64 = 11;
    pub const PERIOD: u64 = 12;
    pub const COMMENT: u64 = 13;
    pub const DEFAULT_SAMPLE_TYPE: u64 = 14;
}

const BYTES: u64 = strings::number_of(profile::BYTES);
const SPACE: u64 = strings::number_of(profile::SPACE);
const THREAD: u64 = strings::number_of(profile::THREAD);
const ARENA: u64 = strings::number_of(profile::ARENA);
const THREAD_NAME: u64 = strings::number_of(profile::THREAD_NAME);
/// The comment in profiles without what is known by block.
const BY_STACK_ALONE: u64 = strings::number_of(profile::BY_STACK_ALONE);
/// The sample types: the number of the name, and of the unit.
const TYPES: [(u64, u64); profile::TYPES.len()] = {
    let mut types = [(0, 0); profile::TYPES.len()];
    let mut i = 0;
    while i < types.len() {
        let (name, unit) = profile::TYPES[i];
        types[i] = (strings::number_of(name), strings::number_of(unit));
        i += 1;
    }
    types
};

type Values = [u64; TYPES.len()];

/// Which of its figures a profile shows at first: the number of the name of their type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    Live = strings::number_of(profile::INUSE_SPACE) as isize,
    Allocs = strings::number_of(profile::ALLOC_SPACE) as isize,
    Peak = strings::number_of(profile::PEAK_SPACE) as isize,
    Lifetime = strings::number_of(profile::LIFETIME) as isize,
    Frag = strings::number_of(profile::FRAG_SPACE) as isize,
}

/// Bytes of the longest varint.
const VARINT_MAX: usize = 10;
/// Bytes of the longest message: a sample with its frames, values and labels.
const MESSAGE_MAX: usize = (crate::prof::capture::FRAMES_MAX + 32) * VARINT_MAX;

/// A message under construction, in metadata memory.
struct Message {
    bytes: NonNull<[u8; MESSAGE_MAX]>,
    len: usize,
}

impl Message {
    fn new() -> Option<Message> {
        let bytes = meta::take(MESSAGE_MAX)?.cast();
        Some(Message { bytes, len: 0 })
    }

    fn get(&self) -> &[u8] {
        // SAFETY: the record belongs to this message, and this many bytes are written.
        unsafe { core::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len) }
    }

    fn push(&mut self, byte: u8) {
        // SAFETY: the record belongs to this message.
        let bytes = unsafe { self.bytes.as_mut() };
        if let Some(at) = bytes.get_mut(self.len) {
            *at = byte;
            self.len += 1;
        }
    }

    #[inline(never)]
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.push(n as u8);
    }

    /// A number, unless it is 0.
    #[inline(never)]
    fn number(&mut self, field: u64, n: u64) {
        if n != 0 {
            self.varint(field << 3);
            self.varint(n);
        }
    }

    /// Begins a part whose length is `len`.
    #[inline(never)]
    fn part(&mut self, field: u64, len: usize) {
        self.varint(field << 3 | 2);
        self.varint(len as u64);
    }

    fn numbers(&mut self, field: u64, numbers: impl Iterator<Item = u64> + Clone) {
        self.part(field, numbers.clone().map(varint_len).sum());
        numbers.for_each(|n| self.varint(n));
    }

    #[inline(never)]
    fn label(&mut self, key: u64, n: u64, unit: u64) {
        let unit_len = if unit == 0 { 0 } else { 1 + varint_len(unit) };
        self.part(3, 2 + varint_len(key) + varint_len(n) + unit_len);
        self.varint(1 << 3);
        self.varint(key);
        self.varint(3 << 3);
        self.varint(n);
        self.number(4, unit);
    }

    /// A label whose value is a string.
    #[inline(never)]
    fn text_label(&mut self, key: u64, text: u64) {
        self.part(3, 2 + varint_len(key) + varint_len(text));
        self.number(1, key);
        self.number(2, text);
    }

    /// Appends the message to the profile as one of its fields, and begins the next.
    #[inline(never)]
    fn end(&mut self, field: u64, out: &mut dyn Sink) {
        part(out, field, self.get());
        self.len = 0;
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: taken with this size.
        unsafe { meta::give(self.bytes.cast(), MESSAGE_MAX) };
    }
}

/// Two varints.
#[derive(Default)]
struct Varints {
    bytes: [u8; 2 * VARINT_MAX],
    len: usize,
}

impl Varints {
    #[inline(never)]
    fn push(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.byte(n as u8 | 0x80);
            n >>= 7;
        }
        self.byte(n as u8);
    }

    fn byte(&mut self, byte: u8) {
        if let Some(to) = self.bytes.get_mut(self.len) {
            *to = byte;
            self.len += 1;
        }
    }

    fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

fn varint_len(n: u64) -> usize {
    (u64::BITS - (n | 1).leading_zeros()).div_ceil(7) as usize
}

#[inline(never)]
fn number(out: &mut dyn Sink, field: u64, n: u64) {
    let mut both = Varints::default();
    both.push(field << 3);
    both.push(n);
    out.put(both.get());
}

/// A part of the profile: a message or a string.
#[inline(never)]
fn part(out: &mut dyn Sink, field: u64, bytes: &[u8]) {
    let mut head = Varints::default();
    head.push(field << 3 | 2);
    head.push(bytes.len() as u64);
    out.put(head.get());
    out.put(bytes);
}

fn string(out: &mut dyn Sink, text: &[u8]) {
    part(out, field::STRING, text);
}

/// The addresses of all frames, each once: a hash set in metadata memory.
struct Addresses {
    slots: NonNull<usize>,
    /// A power of two.
    count: usize,
    used: usize,
}

impl Addresses {
    fn with(count: usize) -> Option<Addresses> {
        let slots = meta::take_apart(count * size_of::<usize>())?.cast();
        Some(Addresses {
            slots,
            count,
            used: 0,
        })
    }

    fn slots(&mut self) -> &mut [usize] {
        // SAFETY: the record belongs to this set, has this many words, and was zero at first.
        unsafe { core::slice::from_raw_parts_mut(self.slots.as_ptr(), self.count) }
    }

    /// Enters an address; false when memory is out.
    fn enter(&mut self, address: usize) -> bool {
        if self.used * 2 >= self.count {
            let Some(mut more) = Addresses::with(self.count * 2) else {
                return false;
            };
            for &mut old in self.slots() {
                more.enter_in_room(old);
            }
            *self = more;
        }
        self.enter_in_room(address);
        true
    }

    fn enter_in_room(&mut self, address: usize) {
        if address == 0 {
            return;
        }
        let mask = self.count - 1;
        let mut at = address.wrapping_mul(SPREAD_FACTOR as usize) >> 24 & mask;
        // Never full: at most half of the slots are used.
        while let Some(slot) = self.slots().get_mut(at) {
            if *slot == address {
                return;
            }
            if *slot == 0 {
                *slot = address;
                self.used += 1;
                return;
            }
            at = (at + 1) & mask;
        }
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: taken with this size.
        unsafe { meta::give(self.slots.cast(), self.count * size_of::<usize>()) };
    }
}

/// Executable mappings by address, so that locations find theirs.
struct Ranges {
    first: NonNull<(u64, u64)>,
    len: usize,
}

impl Ranges {
    /// More than any process should have; locations of later mappings have none.
    const RANGES_MAX: usize = 4096;
    const BYTES: usize = Self::RANGES_MAX * size_of::<(u64, u64)>();

    fn new() -> Option<Ranges> {
        let first = meta::take(Self::BYTES)?.cast();
        Some(Ranges { first, len: 0 })
    }

    fn push(&mut self, start: u64, end: u64) {
        if self.len < Self::RANGES_MAX {
            // SAFETY: the record belongs to this list and has room for this many.
            unsafe { self.first.add(self.len).write((start, end)) };
            self.len += 1;
        }
    }

    /// The number of the mapping of an address, from 1; 0 for none.
    fn number_of(&self, address: u64) -> u64 {
        // SAFETY: this many are written.
        let ranges = unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) };
        let after = ranges.partition_point(|range| range.0 <= address);
        match after.checked_sub(1).and_then(|i| ranges.get(i)) {
            Some(&(_, end)) if address < end => after as u64,
            _ => 0,
        }
    }
}

impl Drop for Ranges {
    fn drop(&mut self) {
        // SAFETY: taken with this size.
        unsafe { meta::give(self.first.cast(), Self::BYTES) };
    }
}

const NS_PER_MS: u64 = 1_000_000;
/// Frames of the first set of addresses.
const FIRST_ADDRESSES: usize = 4096;

/// The mean bytes between samples, from which readers compute how far a profile may be off: more
/// than asked for where samples of fast threads were thinned out.
#[inline(never)]
fn period(groups: &SampleGroups, lg_sample: u32) -> u64 {
    let asked = 1u64 << lg_sample.min(62);
    let (mut sum, mut all) = (0.0, 0.0);
    for group in groups.iter() {
        if let Some((distance, chance)) = group.weight.distance(group.requested) {
            let bytes = chance * (group.requested as f64 + 1.0) * f64::from(group.count);
            sum += distance * bytes;
            all += bytes;
        }
    }
    // Weights are rounded.
    let has_thinned = sum > 1.1 * all * asked as f64;
    if has_thinned {
        (sum / all) as u64
    } else {
        asked
    }
}

/// The figures of a site, as far as they are not given by sample.
fn values_of(figures: &SiteTotals, by_sample: bool) -> Values {
    let waste = figures.live.bytes().saturating_sub(figures.requested);
    let (live, waste) = if by_sample {
        (Amount::NONE, 0)
    } else {
        (figures.live, waste)
    };
    [
        figures.ever.blocks(),
        figures.ever.bytes(),
        live.blocks(),
        live.bytes(),
        figures.peak.bytes(),
        waste,
        figures.freed,
        figures.lived_ms.saturating_mul(NS_PER_MS),
        0,
    ]
}

/// Writes the profile, or what has changed since a snapshot, which may be less than nothing.
/// `ENOMEM` when memory is out.
#[inline(never)]
pub fn write(
    out: &mut dyn Sink,
    lg_sample: u32,
    shown: Shown,
    since: Option<&Snapshot>,
) -> Result<(), i32> {
    let mut writer = Writer {
        out: Gzip::new(out).ok_or(libc::ENOMEM)?,
        message: Message::new().ok_or(libc::ENOMEM)?,
        addresses: Addresses::with(FIRST_ADDRESSES).ok_or(libc::ENOMEM)?,
        rest: 0,
        named: Numbers::new(),
    };
    // Without memory for the groups, what is in use is given by call stack, too; so are changes.
    let groups = match since {
        None => samples::groups(samples::resets()),
        Some(_) => None,
    };
    let mut done = true;
    for group in groups.iter().flat_map(SampleGroups::iter) {
        if history::name_of(group.thread) != [0; history::NAME_MAX] {
            done &= writer.named.push(group.thread as usize);
        }
    }
    writer.named.make_unique();
    let period = groups
        .as_ref()
        .map_or(1 << lg_sample.min(62), |groups| period(groups, lg_sample));
    writer.head(period, shown);
    if groups.is_none() {
        number(&mut writer.out, field::COMMENT, BY_STACK_ALONE);
    }
    let mut number = 0;
    sites::each(&mut |site, figures| {
        let mut values = values_of(figures, groups.is_some());
        if let Some(before) = since.and_then(|since| since.figures(number)) {
            let before = values_of(before, false);
            (values.iter_mut().zip(before))
                .for_each(|(value, before)| *value = value.wrapping_sub(before));
        }
        number += 1;
        done &= writer.sample(site, values, None);
    });
    for group in groups.iter().flat_map(SampleGroups::iter) {
        done &= writer.group(group);
    }
    if !done {
        return Err(libc::ENOMEM);
    }
    writer.tail()
}

struct Writer<'a> {
    out: Gzip<'a>,
    message: Message,
    addresses: Addresses,
    /// The fraction of a block that the groups so far had beyond what was written.
    rest: u128,
    /// The threads that have names, sorted; the names are strings in this order.
    named: Numbers,
}

impl Writer<'_> {
    #[inline(never)]
    fn head(&mut self, period: u64, shown: Shown) {
        for text in strings::TEXT.split(|&byte| byte == strings::BETWEEN) {
            string(&mut self.out, text);
        }
        for &thread in self.named.get() {
            let name = history::name_of(thread as u32);
            string(&mut self.out, history::trimmed(&name));
        }
        // The length is hidden from the compiler, which would unroll the loop.
        for &(name, unit) in core::hint::black_box(&TYPES[..]).iter() {
            self.message.number(1, name);
            self.message.number(2, unit);
            self.message.end(field::SAMPLE_TYPE, &mut self.out);
        }
        self.message.number(1, SPACE);
        self.message.number(2, BYTES);
        self.message.end(field::PERIOD_TYPE, &mut self.out);
        number(&mut self.out, field::PERIOD, period);
        number(&mut self.out, field::DEFAULT_SAMPLE_TYPE, shown as u64);
        number(&mut self.out, field::TIME_NANOS, time::wall_ns());
    }

    /// Writes a sample, unless all its values are 0. Returns false when memory is out.
    fn sample(&mut self, site: &Site, values: Values, group: Option<&SampleGroup>) -> bool {
        if values.iter().all(|&value| value == 0) {
            return true;
        }
        let frames = site.frames();
        if !frames.iter().all(|&frame| self.addresses.enter(frame)) {
            return false;
        }
        let message = &mut self.message;
        message.numbers(1, frames.iter().map(|&frame| frame as u64));
        message.numbers(2, values.into_iter());
        if let Some(group) = group {
            message.label(BYTES, group.usable as u64, BYTES);
            message.label(THREAD, group.thread.into(), 0);
            let place = self.named.place(group.thread as usize);
            if self.named.get().get(place) == Some(&(group.thread as usize)) {
                message.text_label(THREAD_NAME, strings::COUNT + place as u64);
            }
            message.label(ARENA, group.arena.into(), 0);
        }
        message.end(field::SAMPLE, &mut self.out);
        true
    }

    /// Writes what equal samples of one site stand for.
    fn group(&mut self, group: &SampleGroup) -> bool {
        // Weights are fractions: what rounding leaves goes to the next group.
        let blocks = group.weight.times(group.count as usize) + self.rest;
        let whole = blocks >> FRACTION_BITS;
        self.rest = blocks & ((1 << FRACTION_BITS) - 1);
        let one = Amount::of(group.weight, group.usable).bytes();
        let bytes = one * u64::from(group.count);
        let requested = Amount::of(group.weight, group.requested).bytes() * u64::from(group.count);
        let values = [
            0,
            0,
            whole as u64,
            bytes,
            0,
            bytes.saturating_sub(requested),
            0,
            0,
            group.pinned_bytes(),
        ];
        self.sample(group.site, values, Some(group))
    }

    fn tail(mut self) -> Result<(), i32> {
        let mut ranges = Ranges::new().ok_or(libc::ENOMEM)?;
        let next_string = strings::COUNT + self.named.get().len() as u64;
        let mut context = (&mut self, &mut ranges, next_string);
        maps::each(&mut context, |(this, ranges, next_string), mapping| {
            ranges.push(mapping.start, mapping.end);
            let mut text = |out: &mut dyn Sink, text: &[u8]| {
                if text.is_empty() {
                    return 0;
                }
                string(out, text);
                *next_string += 1;
                *next_string - 1
            };
            let name = text(&mut this.out, mapping.name);
            let mut hex = [0; 2 * BUILD_ID_MAX];
            let build_id = text(
                &mut this.out,
                in_hex(mapping.build_id.unwrap_or(&[]), &mut hex),
            );
            let message = &mut this.message;
            message.number(1, ranges.len as u64);
            message.number(2, mapping.start);
            message.number(3, mapping.end);
            message.number(4, mapping.offset);
            message.number(5, name);
            message.number(6, build_id);
            message.end(field::MAPPING, &mut this.out);
        });
        for i in 0..self.addresses.count {
            let address = self.addresses.slots().get(i).map_or(0, |&slot| slot as u64);
            if address == 0 {
                continue;
            }
            // The call, not the instruction after it.
            let call = address - 1;
            let message = &mut self.message;
            message.number(1, address);
            message.number(2, ranges.number_of(call));
            message.number(3, call);
            message.end(field::LOCATION, &mut self.out);
        }
        self.out.finish();
        Ok(())
    }
}

/// Bytes of the longest build id that is written: SHA-512.
const BUILD_ID_MAX: usize = 64;

fn in_hex<'a>(bytes: &[u8], text: &'a mut [u8; 2 * BUILD_ID_MAX]) -> &'a [u8] {
    let (pairs, _) = text.as_chunks_mut::<2>();
    for (byte, digits) in bytes.iter().zip(pairs) {
        *digits = [byte >> 4, byte & 15].map(|digit| HEX_DIGITS[usize::from(digit & 15)]);
    }
    text.get(..2 * bytes.len()).unwrap_or(text)
}
