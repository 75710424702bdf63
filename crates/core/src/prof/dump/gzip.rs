//! The gzip format (RFC 1952) without compression: stored blocks (RFC 1951, 3.2.4) and a checksum.
//!
//! pprof's files are compressed by their specification. Stored blocks satisfy it, and the library
//! needs no compressor.

use super::file::Sink;
use crate::space::meta;
use core::hint::black_box;
use core::ptr::NonNull;

/// The longest stored block.
const BLOCK_MAX: usize = 0xffff;
/// Bytes that the checksum takes at once.
const STEP_BYTES: usize = 8;

/// The CRC-32 (reflected polynomial 0xEDB88320) of each byte with up to seven zeros behind it:
/// with these, the checksum takes eight bytes at once ("slicing", Kounavis and Berry 2008). Made
/// for each file: the library has no room for them.
struct Tables(NonNull<[[u32; 256]; STEP_BYTES]>);

impl Tables {
    #[inline(never)]
    fn new() -> Option<Tables> {
        let tables = Tables(meta::take(size_of::<[[u32; 256]; STEP_BYTES]>())?.cast());
        // SAFETY: the record belongs to this value and has this size; any bits are numbers.
        let all = unsafe { &mut *tables.0.as_ptr() }.as_flattened_mut();
        for i in 0..all.len() {
            // The table before has the checksum of one zero less.
            let mut crc = match i.checked_sub(256) {
                Some(before) => all[before],
                None => i as u32,
            };
            for _ in 0..8 {
                // Hidden from the compiler, which would know the sum and put a table into the
                // library.
                let bit = black_box(crc) & 1;
                crc = crc >> 1 ^ (bit * 0xedb8_8320);
            }
            all[i] = crc;
        }
        Some(tables)
    }

    fn get(&self) -> &[[u32; 256]; STEP_BYTES] {
        // SAFETY: the record belongs to this value, has this size, and was written by `new`.
        unsafe { self.0.as_ref() }
    }

    /// The checksum after these bytes.
    fn after(&self, crc: u32, bytes: &[u8]) -> u32 {
        let tables = self.get();
        let (steps, rest) = bytes.as_chunks::<STEP_BYTES>();
        let crc = steps.iter().fold(crc, |crc, step| {
            let word = u64::from_le_bytes(*step) ^ u64::from(crc);
            let bytes = word.to_be_bytes();
            let parts = tables.iter().zip(bytes);
            parts.fold(0, |crc, (table, byte)| crc ^ table[usize::from(byte)])
        });
        let [first, ..] = tables;
        rest.iter().fold(crc, |crc, &byte| {
            crc >> 8 ^ first[usize::from(crc as u8 ^ byte)]
        })
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        // SAFETY: taken with this size.
        unsafe { meta::give(self.0.cast(), size_of::<[[u32; 256]; STEP_BYTES]>()) };
    }
}

/// A sink that wraps its input in the gzip format without compressing it.
pub struct Gzip<'a> {
    out: &'a mut dyn Sink,
    tables: Tables,
    crc: u32,
    len: u32,
}

impl<'a> Gzip<'a> {
    /// Begins the stream; `None` when memory is out.
    pub fn new(out: &'a mut dyn Sink) -> Option<Self> {
        let tables = Tables::new()?;
        // Magic, deflate, no flags, no time, no extra flags, Unix.
        out.put(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);
        Some(Gzip {
            out,
            tables,
            crc: u32::MAX,
            len: 0,
        })
    }

    /// Writes the last block, the checksum and the length.
    pub fn finish(self) {
        // An empty last block.
        self.out.put(&[1, 0, 0, 0xff, 0xff]);
        self.out.put(&(!self.crc).to_le_bytes());
        self.out.put(&self.len.to_le_bytes());
    }
}

impl Sink for Gzip<'_> {
    #[inline(never)]
    fn put(&mut self, bytes: &[u8]) {
        self.crc = self.tables.after(self.crc, bytes);
        self.len = self.len.wrapping_add(bytes.len() as u32);
        for block in bytes.chunks(BLOCK_MAX) {
            let len = (block.len() as u16).to_le_bytes();
            self.out.put(&[0, len[0], len[1], !len[0], !len[1]]);
            self.out.put(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl Sink for Bytes {
        fn put(&mut self, bytes: &[u8]) {
            self.0.extend(bytes);
        }
    }

    /// The stream's end of these pieces.
    fn end_of(pieces: &[&[u8]]) -> [u8; 8] {
        let mut out = Bytes(Vec::new());
        let mut gzip = Gzip::new(&mut out).expect("there is memory");
        pieces.iter().for_each(|piece| gzip.put(piece));
        gzip.finish();
        *out.0.last_chunk().expect("it has an end")
    }

    #[test]
    fn the_checksum_is_the_standard_one() {
        let end = end_of(&[b"1234", b"56789"]);
        assert_eq!(end[..4], 0xcbf4_3926_u32.to_le_bytes());
        assert_eq!(end[4..], 9u32.to_le_bytes());
    }

    #[test]
    fn the_checksum_does_not_depend_on_the_pieces() {
        let text: Vec<u8> = (0..200_u32).map(|n| (n * n) as u8).collect();
        // The expected checksum comes from Python's zlib.crc32.
        let whole = end_of(&[&text]);
        assert_eq!(whole[..4], 0x29fc_86a2_u32.to_le_bytes());
        for cut in 0..text.len() {
            let (first, second) = text.split_at(cut);
            assert_eq!(end_of(&[first, second]), whole, "{cut}");
        }
    }
}
