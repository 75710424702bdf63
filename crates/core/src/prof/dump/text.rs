//! A text of bounded length on the stack: the name of a file, or a line of a message.

use core::ffi::CStr;
use core::fmt;

/// Bytes of the longest text, with its end: the name that is made from the longest prefix, with
/// what a message says of it.
const TEXT_MAX: usize = super::PREFIX_MAX + 256;

/// The digits of hexadecimal numbers, where `write!` would be too slow or its code too large.
pub const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A text under construction. What does not fit is left out.
pub struct ShortText {
    text: [u8; TEXT_MAX],
    /// Bytes that were put in, those that did not fit too.
    len: usize,
}

impl ShortText {
    pub fn new() -> ShortText {
        ShortText {
            text: [0; TEXT_MAX],
            len: 0,
        }
    }

    #[inline(never)]
    pub fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            // The last byte stays zero.
            if self.len < TEXT_MAX - 1
                && let Some(to) = self.text.get_mut(self.len)
            {
                *to = byte;
            }
            self.len += 1;
        }
    }

    /// The text, if all of it fitted and none of it is a zero.
    pub fn whole(&self) -> Option<&CStr> {
        Some(self.cut()).filter(|text| text.count_bytes() == self.len)
    }

    /// As much as fitted, for a line: if something was left out, it ends here all the same.
    #[inline(never)]
    pub fn line(&mut self) -> &CStr {
        if self.len >= TEXT_MAX {
            let [.., end, _] = &mut self.text;
            *end = b'\n';
        }
        self.cut()
    }

    fn cut(&self) -> &CStr {
        // SAFETY: the last byte is zero.
        unsafe { CStr::from_ptr(self.text.as_ptr().cast()) }
    }
}

impl fmt::Write for ShortText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_does_not_fit_is_no_name_and_still_a_line() {
        let mut text = ShortText::new();
        text.push(&[b'x'; TEXT_MAX - 1]);
        assert_eq!(text.whole().map(CStr::count_bytes), Some(TEXT_MAX - 1));
        text.push(b"y");
        assert_eq!(text.whole(), None);
        let line = text.line().to_bytes();
        assert_eq!((line.len(), line.last()), (TEXT_MAX - 1, Some(&b'\n')));
        let mut zero = ShortText::new();
        zero.push(b"a\0b");
        assert_eq!(zero.whole(), None, "a name ends at a zero");
    }
}
