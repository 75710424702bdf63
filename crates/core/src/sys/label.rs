//! Texts chosen by where they are stored.
//!
//! A [`Label`] is a short text stored inside the table that uses it. The table then holds no
//! addresses, which the loader would have to relocate in every process. A [`Named`] is a C string
//! with a symbol of its own: small programs use it, and the library's layout
//! (`crates/mallard-c/layout.ld.in`) keeps it apart from texts that hardly any program reads.

use core::ffi::CStr;

/// A C string of `N` bytes, including its null byte.
pub struct Named<const N: usize>([u8; N]);

impl<const N: usize> Named<N> {
    /// In a constant, fails to compile if the length differs from `N`.
    pub const fn of(text: &CStr) -> Named<N> {
        let text = text.to_bytes_with_nul();
        assert!(text.len() == N);
        let mut named = Named([0; N]);
        let mut i = 0;
        while i < N {
            named.0[i] = text[i];
            i += 1;
        }
        named
    }

    pub fn get(&self) -> &CStr {
        // SAFETY: the bytes are those of a C string, including its null byte.
        unsafe { CStr::from_bytes_with_nul_unchecked(&self.0) }
    }
}

/// A text of up to [`Label::BYTES_MAX`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    len: u8,
    text: [u8; Label::BYTES_MAX],
}

impl Label {
    /// Bytes of the longest label.
    pub const BYTES_MAX: usize = 17;

    /// In a constant, fails to compile if the text is too long.
    pub const fn of(text: &str) -> Label {
        let mut label = Label {
            len: text.len() as u8,
            text: [0; Label::BYTES_MAX],
        };
        let mut i = 0;
        while i < text.len() {
            label.text[i] = text.as_bytes()[i];
            i += 1;
        }
        label
    }

    pub fn as_str(&self) -> &str {
        let text = self.text.get(..self.len as usize).unwrap_or(&[]);
        // SAFETY: it begins with all of a string, and its length is that of the string.
        unsafe { core::str::from_utf8_unchecked(text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_says_what_it_was_made_of() {
        for text in ["", "ctl", "ä", "exactly seventeen"] {
            assert_eq!(Label::of(text).as_str(), text);
        }
    }

    #[test]
    fn a_c_string_with_a_name_is_the_same_string() {
        static NAMED: Named<4> = Named::of(c"ctl");
        assert_eq!(NAMED.get(), c"ctl");
    }

    #[test]
    #[should_panic]
    fn a_text_that_is_too_long_is_no_label() {
        Label::of("more than seventeen");
    }
}
