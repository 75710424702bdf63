//! Text values: validated, then stored as given.

use super::line::LineBuffer;
use super::plain::{Kept, Plain, Shape};
use super::value::{Format, integer};

/// A short string stored inside the options, because the program may change the environment it came
/// from. Invariant: all bytes from `len` on are zero, and `len < N`, so that the text is also a C
/// string.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize> {
    len: u16,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// The text up to the first NUL, or `None` if it does not fit.
    pub const fn new(text: &[u8]) -> Option<Self> {
        let mut new = Text {
            len: 0,
            bytes: [0; N],
        };
        let mut i = 0;
        while i < text.len() && text[i] != 0 {
            if i + 1 >= N || i >= u16::MAX as usize {
                return None;
            }
            new.bytes[i] = text[i];
            i += 1;
        }
        new.len = i as u16;
        Some(new)
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn as_c_str(&self) -> &core::ffi::CStr {
        core::ffi::CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

impl<const N: usize> Kept for Text<N> {
    const SHAPE: Shape = Shape::Text;
    fn plain(&self) -> Plain<'_> {
        Plain::Text(self.as_c_str())
    }
}

impl<const N: usize> core::fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

/// Any text that fits; empty is allowed.
pub(super) struct AnyText<const N: usize>;

impl<const N: usize> Format for AnyText<N> {
    type Value = Text<N>;

    fn read(&self, text: &[u8]) -> Option<Text<N>> {
        // Not `contains`, here and below: it is long, because it searches words at once.
        if text.iter().all(|&byte| byte != 0) {
            Text::new(text)
        } else {
            None
        }
    }

    fn show(&self, value: &Text<N>, out: &mut LineBuffer) {
        out.raw(value.as_bytes());
    }

    fn valid(&self, out: &mut LineBuffer) {
        out.text("a text of at most ")
            .number(N as i128 - 1)
            .text(" bytes");
    }
}

/// Letters from a set, each stored once.
pub(super) struct Letters<const N: usize>(pub &'static str);

impl<const N: usize> Format for Letters<N> {
    type Value = Text<N>;

    fn read(&self, text: &[u8]) -> Option<Text<N>> {
        let mut kept = [0u8; N];
        let mut used = 0;
        for letter in text {
            let is_in = |letters: &[u8]| !letters.iter().all(|given| given != letter);
            if !is_in(self.0.as_bytes()) {
                return None;
            }
            if !is_in(&kept) {
                *kept.get_mut(used)? = *letter;
                used += 1;
            }
        }
        Text::new(&kept)
    }

    fn show(&self, value: &Text<N>, out: &mut LineBuffer) {
        out.raw(value.as_bytes());
    }

    fn valid(&self, out: &mut LineBuffer) {
        out.text("letters out of ").text(self.0);
    }
}

/// jemalloc's settings by size class, `8-64:2|128-128:4`, or `default`.
pub(super) struct Classes<const N: usize>;

/// The numbers of `SIZE-SIZE:NUMBER`, with the sizes in order; a number that is too large for its
/// type becomes the maximum.
pub fn range(item: &[u8]) -> Option<[usize; 3]> {
    let mut parts = item.splitn(2, |&byte| byte == b':');
    let (sizes, number) = (parts.next()?, parts.next()?);
    let mut ends = sizes.splitn(2, |&byte| byte == b'-');
    let mut numbers = [0; 3];
    for (slot, text) in (numbers.iter_mut()).zip([ends.next()?, ends.next()?, number]) {
        let n = integer(text, false).filter(|n| *n >= 0)?;
        *slot = usize::try_from(n).unwrap_or(usize::MAX);
    }
    (numbers[0] <= numbers[1]).then_some(numbers)
}

impl<const N: usize> Format for Classes<N> {
    type Value = Text<N>;

    fn read(&self, text: &[u8]) -> Option<Text<N>> {
        if text == b"default" {
            return Text::new(b"");
        }
        let all = text
            .split(|&byte| byte == b'|')
            .all(|item| range(item).is_some());
        if all { Text::new(text) } else { None }
    }

    fn show(&self, value: &Text<N>, out: &mut LineBuffer) {
        if value.is_empty() {
            out.text("default");
        } else {
            out.raw(value.as_bytes());
        }
    }

    fn valid(&self, out: &mut LineBuffer) {
        out.text("default or SIZE-SIZE:NUMBER, several with bars between them");
    }
}
