//! The text of a report, in a buffer that is there from the start; and where code lies in files.

use crate::prof::dump::maps;
use crate::sys::proc;
use core::ffi::CStr;

const ROOM: usize = 16 << 10;

/// What does not fit is left out. Zeros are an empty text.
pub struct Text {
    bytes: [u8; ROOM],
    len: usize,
}

impl Text {
    pub fn clear(&mut self) {
        self.len = 0;
    }

    #[inline(never)]
    pub fn bytes(&mut self, bytes: &[u8]) {
        // One byte is left for the end.
        let room = self
            .bytes
            .iter_mut()
            .skip(self.len)
            .take(ROOM - 1 - self.len);
        for (to, &from) in room.zip(bytes) {
            *to = from;
            self.len += 1;
        }
    }

    #[inline(never)]
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// A number in decimal.
    #[inline(never)]
    pub fn number(&mut self, n: usize) {
        self.bytes(proc::digits(n, &mut [0; proc::DIGITS]));
    }

    pub fn signed(&mut self, n: isize) {
        if n < 0 {
            self.text("-");
        }
        self.number(n.unsigned_abs());
    }

    /// A number in hexadecimal, with `0x`.
    #[inline(never)]
    pub fn address(&mut self, n: usize) {
        self.text("0x");
        let digits = (usize::BITS - n.leading_zeros()).div_ceil(4).max(1);
        (0..digits)
            .rev()
            .for_each(|at| self.digit((n >> (4 * at)) as u8 & 15));
    }

    fn digit(&mut self, digit: u8) {
        self.bytes(&[if digit < 10 {
            b'0' + digit
        } else {
            b'a' - 10 + digit
        }]);
    }

    /// Bytes in hexadecimal.
    #[inline(never)]
    pub fn hexadecimal(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.digit(byte >> 4);
            self.digit(byte & 15);
        }
    }

    /// The text as a string of C.
    pub fn end(&mut self) -> &CStr {
        if let Some(end) = self.bytes.get_mut(self.len) {
            *end = 0;
        }
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

/// How a frame is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `FILE+OFFSET (build id ID)`
    Line,
    Json,
}

impl Text {
    /// Writes where the code at a return address lies in its file; the address if it is in none.
    #[inline(never)]
    pub fn frame(&mut self, frame: usize, form: Form) {
        let mut search = Search {
            text: self,
            // The return address of a call may be the first one behind a mapping.
            at: (frame as u64).wrapping_sub(1),
            form,
            is_found: false,
        };
        maps::each(&mut search, Search::look_at);
        if search.is_found {
            return;
        }
        if form == Form::Line {
            self.address(frame);
        } else {
            self.text("{\"address\":\"");
            self.address(frame);
            self.text("\"}");
        }
    }

    /// A file's name in a string of JSON.
    fn quoted(&mut self, name: &[u8]) {
        for &byte in name {
            match byte {
                b'"' | b'\\' => self.bytes(&[b'\\', byte]),
                ..b' ' => self.text("?"),
                _ => self.bytes(&[byte]),
            }
        }
    }
}

/// The search for the mapping of an address.
struct Search<'a> {
    text: &'a mut Text,
    at: u64,
    form: Form,
    is_found: bool,
}

impl Search<'_> {
    /// Writes the mapping if the address is in it.
    fn look_at(&mut self, mapping: &maps::Mapping<'_>) {
        if self.is_found || !(mapping.start..mapping.end).contains(&self.at) {
            return;
        }
        self.is_found = true;
        let offset = (self.at + 1 - mapping.start + mapping.offset) as usize;
        let (text, is_line) = (&mut *self.text, self.form == Form::Line);
        if is_line {
            text.bytes(mapping.name);
            text.text("+");
            text.address(offset);
        } else {
            text.text("{\"file\":\"");
            text.quoted(mapping.name);
            text.text("\",\"offset\":");
            text.number(offset);
        }
        if let Some(id) = mapping.build_id {
            text.text(if is_line {
                " (build id "
            } else {
                ",\"build_id\":\""
            });
            text.hexadecimal(id);
            text.text(if is_line { ")" } else { "\"" });
        }
        if !is_line {
            text.text("}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;
    use std::string::String;

    fn text(write: impl FnOnce(&mut Text)) -> String {
        let mut text = Box::new(Text {
            bytes: [0; ROOM],
            len: 0,
        });
        write(&mut text);
        text.end().to_str().unwrap().into()
    }

    #[test]
    fn numbers_addresses_and_names_are_written() {
        let written = text(|text| {
            text.number(0);
            text.text(" ");
            text.signed(-12);
            text.text(" ");
            text.signed(7);
            text.text(" ");
            text.address(0);
            text.address(0x1f0);
            text.text(" ");
            text.hexadecimal(&[0, 0xa5, 0x3c]);
            text.quoted(b" a\"b\\c\n");
        });
        assert_eq!(written, "0 -12 7 0x00x1f0 00a53c a\\\"b\\\\c?");
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let written = text(|text| {
            for _ in 0..ROOM {
                text.text("ab");
            }
        });
        assert_eq!(written.len(), ROOM - 1);
    }

    #[test]
    fn a_frame_is_in_its_file_or_an_address() {
        let code = text as fn(fn(&mut Text)) -> String as usize;
        let written = text(|text| text.frame(code, Form::Line));
        assert!(
            written.starts_with('/') && written.contains("+0x"),
            "{written}"
        );
        let written = text(|text| text.frame(code, Form::Json));
        assert!(written.starts_with("{\"file\":\"/"), "{written}");
        assert_eq!(text(|text| text.frame(8, Form::Line)), "0x8");
        assert_eq!(
            text(|text| text.frame(8, Form::Json)),
            "{\"address\":\"0x8\"}"
        );
    }
}
