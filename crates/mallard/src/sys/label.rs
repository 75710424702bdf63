//! Texts by where they lie.
//!
//! A [`Label`] is a short one that lies in the table it is used in: that has no addresses then,
//! which a loader would have to write into a page of every process, from a list that it reads in
//! every process. A [`Named`] one is a C string that has a symbol: small programs' kernels read it,
//! and the library's order of constants (`crates/mallard-c/layout.ld`) has it apart from those of
//! which hardly a program reads any.

use core::ffi::CStr;

/// A C string of `N` bytes, its end included.
pub struct Named<const N: usize>([u8; N]);

impl<const N: usize> Named<N> {
    /// Fails to compile, in a constant, where the length is another.
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
        // SAFETY: the bytes are a C string's, its end included.
        unsafe { CStr::from_bytes_with_nul_unchecked(&self.0) }
    }
}

/// A text of up to [`Label::MOST`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    len: u8,
    text: [u8; Label::MOST],
}

impl Label {
    pub const MOST: usize = 22;

    /// Fails to compile, in a constant, where the text is too long.
    pub const fn of(text: &str) -> Label {
        let mut label = Label {
            len: text.len() as u8,
            text: [0; Label::MOST],
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
        core::str::from_utf8(text).unwrap_or("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_says_what_it_was_made_of() {
        for text in ["", "ctl", "ä", "exactly twenty-two byt"] {
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
        Label::of("more than twenty-two by");
    }
}
