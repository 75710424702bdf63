//! Reads a history from bytes. Any bytes are a history, and a small change to them is a small
//! change to it: a fuzzer can lengthen one step by step. Where the bytes end, all numbers are 0.

pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Bytes(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&first, rest)) => {
                self.0 = rest;
                first
            }
            None => 0,
        }
    }

    /// Two bytes.
    pub fn pair(&mut self) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// A size of up to 16 MiB: mostly small ones, and those beside powers of two.
    pub fn size(&mut self) -> usize {
        let (kind, n) = (self.byte(), self.pair());
        match kind % 16 {
            0..7 => n % 1025,
            7..10 => n % 16_385,
            10..12 => n * 5,
            12..14 => {
                let near = (1usize << (n % 23)) + ((n >> 8) % 4) * ((1 << (n % 23)) / 4);
                (near + (n >> 12) % 3).saturating_sub(1)
            }
            14 => n * 64,
            _ => n * 256,
        }
    }

    /// An alignment: mostly up to a page, rarely up to 8 MiB.
    pub fn align(&mut self) -> usize {
        let n = self.byte();
        match n % 8 {
            0..5 => 1 << (n / 8 % 7),
            5 | 6 => 1 << (7 + n / 8 % 6),
            _ => 1 << (13 + n / 8 % 11),
        }
    }
}
