//! The gzip format (RFC 1952) without compression: stored blocks (RFC 1951, 3.2.4) and a checksum.
//!
//! pprof's files are compressed by their specification. Stored blocks satisfy it, and the library
//! needs no compressor.

use super::file::Sink;

/// The longest stored block.
const BLOCK_MAX: usize = 0xffff;
/// The CRC-32 of four bits, reflected polynomial 0xEDB88320.
const NIBBLES: [u32; 16] = {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 4 {
            crc = if crc & 1 != 0 {
                crc >> 1 ^ 0xedb8_8320
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

/// Wraps what is put into it.
pub struct Gzip<'a> {
    out: &'a mut dyn Sink,
    crc: u32,
    len: u32,
}

impl<'a> Gzip<'a> {
    pub fn new(out: &'a mut dyn Sink) -> Self {
        // Magic, deflate, no flags, no time, no extra flags, Unix.
        out.put(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);
        Gzip {
            out,
            crc: u32::MAX,
            len: 0,
        }
    }

    /// Ends the stream.
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
        for &byte in bytes {
            self.crc ^= u32::from(byte);
            self.crc = self.crc >> 4 ^ NIBBLES[self.crc as usize & 15];
            self.crc = self.crc >> 4 ^ NIBBLES[self.crc as usize & 15];
        }
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

    #[test]
    fn the_checksum_is_the_standard_one() {
        let mut out = Bytes(Vec::new());
        let mut gzip = Gzip::new(&mut out);
        gzip.put(b"1234");
        gzip.put(b"56789");
        gzip.finish();
        let tail = &out.0[out.0.len() - 8..];
        assert_eq!(tail[..4], 0xcbf4_3926_u32.to_le_bytes());
        assert_eq!(tail[4..], 9u32.to_le_bytes());
    }
}
