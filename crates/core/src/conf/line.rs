//! One line of text in a fixed buffer, and what sinks for finished lines do.
//!
//! The option reader prints messages before anything can be allocated, so every message and every
//! formatted value is built in a [`LineBuffer`]: a kilobyte on the stack, which truncates longer
//! text with `...`. External text enters a message through [`LineBuffer::quoted`] or
//! [`LineBuffer::escaped`], which escape everything that would garble a terminal; nothing here
//! assumes UTF-8.

/// The capacity of a line. Enough for any message of this module; only the strings that
/// `confirm_conf` repeats can be longer.
const CAPACITY: usize = 1024;

/// Marks a line or a quotation as truncated.
const ELLIPSIS: &[u8] = b"...";

/// A line under construction. Invariant: `len <= CAPACITY`, and once `full` is set the text ends in
/// `...` and no longer grows.
pub struct LineBuffer {
    bytes: [u8; CAPACITY],
    len: usize,
    full: bool,
}

impl LineBuffer {
    pub const fn new() -> Self {
        LineBuffer {
            bytes: [0; CAPACITY],
            len: 0,
            full: false,
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    pub fn text(&mut self, text: &str) -> &mut Self {
        self.raw(text.as_bytes())
    }

    /// Appends bytes as they are.
    // Not inlined: messages are built with dozens of calls, and speed does not matter.
    #[inline(never)]
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        for &byte in bytes {
            self.push(byte);
        }
        self
    }

    #[inline(never)]
    pub fn number(&mut self, value: i128) -> &mut Self {
        if value < 0 {
            self.push(b'-');
        }
        let mut rest = value.unsigned_abs();
        // 39 digits are enough for any u128.
        let mut digits = [0u8; 39];
        let mut start = digits.len();
        for slot in digits.iter_mut().rev() {
            *slot = b'0' + (rest % 10) as u8;
            rest /= 10;
            start -= 1;
            if rest == 0 {
                break;
            }
        }
        self.raw(digits.get(start..).unwrap_or(&[]))
    }

    /// Appends `bytes` in double quotes, at most `limit` of them, with everything but printable
    /// ASCII escaped.
    #[inline(never)]
    pub fn quoted(&mut self, bytes: &[u8], limit: usize) -> &mut Self {
        self.push(b'"');
        let shown = bytes.get(..limit).unwrap_or(bytes);
        self.escaped(shown);
        if shown.len() < bytes.len() {
            self.raw(ELLIPSIS);
        }
        self.push(b'"');
        self
    }

    /// Appends `bytes` with everything but printable ASCII escaped.
    #[inline(never)]
    pub fn escaped(&mut self, bytes: &[u8]) -> &mut Self {
        for &byte in bytes {
            self.escape(byte);
        }
        self
    }

    fn escape(&mut self, byte: u8) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        match byte {
            b'"' | b'\\' => {
                self.push(b'\\');
                self.push(byte);
            }
            b'\n' => {
                self.raw(b"\\n");
            }
            b' '..=b'~' => self.push(byte),
            _ => {
                self.raw(&[
                    b'\\',
                    b'x',
                    HEX[usize::from(byte >> 4)],
                    HEX[usize::from(byte & 15)],
                ]);
            }
        }
    }

    fn push(&mut self, byte: u8) {
        if self.full {
            return;
        }
        match self.bytes.get_mut(self.len) {
            Some(slot) => {
                *slot = byte;
                self.len += 1;
            }
            None => {
                self.full = true;
                self.bytes[CAPACITY - ELLIPSIS.len()..].copy_from_slice(ELLIPSIS);
            }
        }
    }
}

impl Default for LineBuffer {
    fn default() -> Self {
        LineBuffer::new()
    }
}

/// Where the reader's messages go. Each call carries one whole line without its line feed.
pub trait Sink {
    fn line(&mut self, line: &[u8]);
}
