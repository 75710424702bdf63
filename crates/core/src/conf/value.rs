//! The kinds of values of options: how each is parsed, printed, and described in error messages.
//!
//! A row of the option table (`options.rs`) pairs a field with one of the [`Format`]s below. `read`
//! parses the output of `show` to the same value: the configuration that one process confirms can
//! be pasted into `MALLOC_CONF` of the next.

use super::line::LineBuffer;
use super::plain::{Kept, Plain, Shape};
use core::ffi::CStr;

/// How one kind of value is written in an option string.
pub(super) trait Format {
    type Value: Copy;

    /// The value of `text`, or `None` if it is invalid.
    fn read(&self, text: &[u8]) -> Option<Self::Value>;
    fn show(&self, value: &Self::Value, out: &mut LineBuffer);
    /// What `read` accepts, for an error message and for the reference.
    fn valid(&self, out: &mut LineBuffer);
}

/// `true` or `false`.
pub(super) struct Switch;

impl Format for Switch {
    type Value = bool;

    fn read(&self, text: &[u8]) -> Option<bool> {
        match text {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    fn show(&self, value: &bool, out: &mut LineBuffer) {
        out.text(if *value { "true" } else { "false" });
    }

    fn valid(&self, out: &mut LineBuffer) {
        out.text("true or false");
    }
}

/// The integer types of options.
pub(super) trait Integer: Copy {
    const MAX: i128;
    fn widen(self) -> i128;
    fn narrow(wide: i128) -> Option<Self>;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Integer for $type {
            const MAX: i128 = <$type>::MAX as i128;
            fn widen(self) -> i128 {
                self as i128
            }
            fn narrow(wide: i128) -> Option<Self> {
                Self::try_from(wide).ok()
            }
        }
    )*};
}
integers!(u32 u64 usize i64);

/// How a number above the maximum is handled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Above {
    Refused,
    /// Silently capped at the maximum, as jemalloc does for some options, so that strings written
    /// for it keep working.
    Clipped,
}

/// A whole number between two bounds.
pub(super) struct Number<T> {
    pub min: T,
    pub max: T,
    pub above: Above,
    /// Counts bytes, so suffixes as in `64k` and `2m` are allowed.
    pub bytes: bool,
}

pub(super) const fn number<T>(min: T, max: T) -> Number<T> {
    Number {
        min,
        max,
        above: Above::Refused,
        bytes: false,
    }
}

pub(super) const fn clipped<T>(min: T, max: T) -> Number<T> {
    Number {
        min,
        max,
        above: Above::Clipped,
        bytes: false,
    }
}

pub(super) const fn bytes<T>(min: T, max: T) -> Number<T> {
    Number {
        min,
        max,
        above: Above::Refused,
        bytes: true,
    }
}

pub(super) const fn clipped_bytes<T>(min: T, max: T) -> Number<T> {
    Number {
        min,
        max,
        above: Above::Clipped,
        bytes: true,
    }
}

impl<T: Integer> Number<T> {
    fn range(&self) -> Range {
        let max = self.max.widen();
        Range {
            min: self.min.widen(),
            max,
            unbounded: max == T::MAX,
            above: self.above,
            bytes: self.bytes,
        }
    }
}

impl<T: Integer> Format for Number<T> {
    type Value = T;

    fn read(&self, text: &[u8]) -> Option<T> {
        T::narrow(self.range().read(text)?)
    }

    fn show(&self, value: &T, out: &mut LineBuffer) {
        out.number(value.widen());
    }

    fn valid(&self, out: &mut LineBuffer) {
        self.range().valid(out);
    }
}

/// A [`Number`] without its type, to have only one copy of the code.
struct Range {
    min: i128,
    max: i128,
    /// The maximum is that of the type: not worth mentioning.
    unbounded: bool,
    above: Above,
    bytes: bool,
}

impl Range {
    #[inline(never)]
    fn read(&self, text: &[u8]) -> Option<i128> {
        let value = integer(text, self.bytes)?;
        if value < self.min {
            None
        } else if value <= self.max {
            Some(value)
        } else {
            (self.above == Above::Clipped).then_some(self.max)
        }
    }

    #[inline(never)]
    fn valid(&self, out: &mut LineBuffer) {
        if self.bytes {
            out.text(if self.unbounded {
                "a size of "
            } else {
                "a size from "
            });
        }
        self.bound(self.min, out);
        if self.unbounded {
            out.text(" or more");
        } else {
            out.text(" to ");
            self.bound(self.max, out);
        }
        if self.above == Above::Clipped {
            out.text(" (more is taken as that)");
        }
    }

    /// Prints a bound, with the largest exact suffix if it counts bytes.
    #[inline(never)]
    fn bound(&self, value: i128, out: &mut LineBuffer) {
        let mut rest = value;
        let mut suffix = "";
        if self.bytes {
            for larger in ["k", "m", "g", "t"] {
                if rest == 0 || rest % 1024 != 0 {
                    break;
                }
                rest /= 1024;
                suffix = larger;
            }
        }
        out.number(rest).text(suffix);
    }
}

/// Parses a number like C's `strtoimax` with base 0 (`0x` hexadecimal, a leading `0` octal), and
/// with `bytes` the suffixes `k m g t` for powers of 1024. The magnitude fits 64 bits.
#[inline(never)]
pub(super) fn integer(text: &[u8], bytes: bool) -> Option<i128> {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let (shift, text) = match text {
        [rest @ .., last] if bytes => match last {
            b'k' | b'K' => (10, rest),
            b'm' | b'M' => (20, rest),
            b'g' | b'G' => (30, rest),
            b't' | b'T' => (40, rest),
            _ => (0, text),
        },
        _ => (0, text),
    };
    let (base, digits) = match text {
        [b'0', b'x' | b'X', rest @ ..] => (16, rest),
        [b'0', rest @ ..] if !rest.is_empty() => (8, rest),
        _ => (10, text),
    };
    if digits.is_empty() {
        return None;
    }
    let mut magnitude: u64 = 0;
    for &digit in digits {
        let digit = char::from(digit).to_digit(base)?;
        magnitude = magnitude
            .checked_mul(u64::from(base))?
            .checked_add(u64::from(digit))?;
    }
    let magnitude = i128::from(magnitude.checked_mul(1 << shift)?);
    Some(if negative { -magnitude } else { magnitude })
}

/// A value given as its base-2 logarithm: the `lg_` spelling of an option that counts bytes.
pub(super) struct Log2 {
    pub max: u32,
}

impl Format for Log2 {
    type Value = usize;

    fn read(&self, text: &[u8]) -> Option<usize> {
        let exponent = clipped(0, self.max).read(text)?;
        1usize.checked_shl(exponent)
    }

    fn show(&self, value: &usize, out: &mut LineBuffer) {
        out.number(i128::from(value.checked_ilog2().unwrap_or(0)));
    }

    fn valid(&self, out: &mut LineBuffer) {
        clipped(0, self.max).valid(out);
    }
}

/// `default`, for Mallard's own choice at run time, or a value.
pub(super) struct OrDefault<F>(pub F);

impl<F: Format> Format for OrDefault<F> {
    type Value = Option<F::Value>;

    fn read(&self, text: &[u8]) -> Option<Option<F::Value>> {
        match text {
            b"default" => Some(None),
            _ => self.0.read(text).map(Some),
        }
    }

    fn show(&self, value: &Option<F::Value>, out: &mut LineBuffer) {
        match value {
            Some(value) => self.0.show(value, out),
            None => {
                out.text("default");
            }
        }
    }

    fn valid(&self, out: &mut LineBuffer) {
        out.text("default or ");
        self.0.valid(out);
    }
}

/// How options keep fractions: in millionths, of which this many are one.
pub const MILLIONTHS_PER_ONE: u64 = 1_000_000;

/// A fraction or multiple such as `0.25` or `4`, in millionths, or a word for none.
pub(super) struct Fraction {
    none: &'static str,
}

impl Fraction {
    /// Whole numbers must be below this, as in jemalloc.
    const WHOLE: u64 = 1 << 16;

    /// A fraction, or the word `none`.
    pub const fn or(none: &'static str) -> Fraction {
        Fraction { none }
    }
}

impl Format for Fraction {
    type Value = Option<u64>;

    fn read(&self, text: &[u8]) -> Option<Option<u64>> {
        if text == self.none.as_bytes() {
            return Some(None);
        }
        let mut parts = text.splitn(2, |&byte| byte == b'.');
        let (whole, decimals) = (parts.next()?, parts.next());
        let digit = |byte: &u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
        if decimals.is_some_and(<[u8]>::is_empty) || decimals.is_none() && whole.is_empty() {
            return None;
        }
        let mut value = 0;
        for byte in whole {
            value = value * 10 + digit(byte)?;
            if value >= Self::WHOLE {
                return None;
            }
        }
        value *= MILLIONTHS_PER_ONE;
        // Digits beyond a millionth are ignored.
        let mut unit = MILLIONTHS_PER_ONE;
        for byte in decimals.unwrap_or(&[]) {
            unit /= 10;
            value += digit(byte)? * unit;
        }
        Some(Some(value))
    }

    fn show(&self, value: &Option<u64>, out: &mut LineBuffer) {
        let Some(value) = *value else {
            out.text(self.none);
            return;
        };
        out.number(i128::from(value / MILLIONTHS_PER_ONE));
        let (mut rest, mut unit) = (value % MILLIONTHS_PER_ONE, MILLIONTHS_PER_ONE / 10);
        if rest > 0 {
            out.text(".");
        }
        while rest > 0 {
            out.number(i128::from(rest / unit));
            (rest, unit) = (rest % unit, unit / 10);
        }
    }

    fn valid(&self, out: &mut LineBuffer) {
        out.text(self.none).text(" or a number such as 0.25");
    }
}

/// An enumeration in which each value has one spelling.
pub(super) trait Keyword: Copy + PartialEq + 'static {
    const ALL: &'static [Self];
    /// The value's spelling.
    fn spelling(self) -> &'static CStr;
    /// The spelling of the value at this position.
    fn word_at(i: usize) -> Option<&'static CStr> {
        Some(Self::ALL.get(i)?.spelling())
    }
}

/// One of an enumeration's words.
pub(super) struct OneOf<T>(core::marker::PhantomData<T>);

pub(super) const fn one_of<T: Keyword>() -> OneOf<T> {
    OneOf(core::marker::PhantomData)
}

impl<T: Keyword> Format for OneOf<T> {
    type Value = T;

    fn read(&self, text: &[u8]) -> Option<T> {
        T::ALL.get(position(T::word_at, text)?).copied()
    }

    fn show(&self, value: &T, out: &mut LineBuffer) {
        out.raw(value.spelling().to_bytes());
    }

    fn valid(&self, out: &mut LineBuffer) {
        list(T::word_at, out);
    }
}

/// The words of an enumeration: the one at a position, if there is one.
type Words = fn(usize) -> Option<&'static CStr>;

// Neither is generic: there are a dozen enumerations.
#[inline(never)]
fn position(words: Words, text: &[u8]) -> Option<usize> {
    let mut words = (0..).map_while(words);
    words.position(|word| word.to_bytes() == text)
}

#[inline(never)]
fn list(words: Words, out: &mut LineBuffer) {
    for (i, word) in (0..).map_while(words).enumerate() {
        out.text(match i {
            0 => "",
            _ if words(i + 1).is_none() => " or ",
            _ => ", ",
        });
        out.raw(word.to_bytes());
    }
}

const fn c_word(word: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(word.as_bytes()) {
        Ok(word) => word,
        Err(_) => panic!("a keyword with a NUL inside"),
    }
}

macro_rules! keywords {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant),* }

        impl Keyword for $name {
            const ALL: &'static [Self] = &[$($name::$variant),*];
            fn spelling(self) -> &'static CStr {
                self.word()
            }
        }

        impl $name {
            /// The value's spelling.
            pub const fn word(self) -> &'static CStr {
                match self {
                    $($name::$variant => const { c_word(concat!($word, "\0")) }),*
                }
            }
        }

        impl Kept for $name {
            const SHAPE: Shape = Shape::Text;
            fn plain(&self) -> Plain<'_> {
                Plain::Text(self.word())
            }
        }
    )*};
}

keywords! {
    /// What a process prints of its options at its start.
    ConfirmConf {
        False = "false",
        /// Each source's string, and every setting.
        True = "true",
        /// One line, with the version and the settings that differ from the defaults.
        Short = "short",
    }
    /// Whether arenas follow CPUs instead of threads.
    PercpuArena { Disabled = "disabled", PerCpu = "percpu", PerPhysicalCpu = "phycpu" }
    /// When purging moves to a thread of its own.
    BackgroundThread {
        /// Once the process has a second thread and something to decay.
        Auto = "auto",
        True = "true",
        False = "false",
    }
    /// How transparent huge pages are used for user memory.
    Thp { Auto = "auto", Default = "default", Always = "always", Never = "never" }
    /// How transparent huge pages are used for the allocator's own records.
    MetadataThp { Disabled = "disabled", Auto = "auto", Always = "always" }
    /// Whether `sbrk` is used, before or after `mmap`.
    Dss { Disabled = "disabled", Primary = "primary", Secondary = "secondary" }
    /// Which memory is filled with junk: fresh (0xa5), freed (0x5a), both or none.
    Junk { False = "false", True = "true", Alloc = "alloc", Free = "free" }
    /// What a request of 0 bytes returns.
    ZeroSize { Closed = "closed", Block = "block" }
    /// What `realloc(p, 0)` does.
    ZeroRealloc { Alloc = "alloc", Free = "free", Abort = "abort" }
    /// What follows a finding about a guarded block.
    FamilyMismatch { Off = "off", Warn = "warn", Abort = "abort" }
    GuardAction { Abort = "abort", Report = "report" }
    /// Where a guarded block lies in its pages.
    GuardAlign { Random = "random", Left = "left", Right = "right", Tight = "tight" }
    /// When jemalloc's page allocator asks for huge pages.
    HugifyStyle { Auto = "auto", None = "none", Eager = "eager", Lazy = "lazy" }
    /// The clock of the log of samples.
    ProfTime { Default = "default", High = "high" }
    /// Which processes keep a page of statistics for others.
    ExportStats {
        /// Processes of some size and age, in their own memory.
        Auto = "auto",
        /// All processes, in memory that others of the same user can open.
        True = "true",
        False = "false",
    }
    /// The format of heap profiles.
    ProfFormat { HeapV2 = "heap_v2", Pprof = "pprof" }
}

impl Junk {
    /// Fresh memory is filled.
    pub const fn on_alloc(self) -> bool {
        matches!(self, Junk::True | Junk::Alloc)
    }

    /// Freed memory is filled.
    pub const fn on_free(self) -> bool {
        matches!(self, Junk::True | Junk::Free)
    }
}

/// The cap on free memory that has not been returned yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyMax {
    None,
    Bytes(usize),
    /// Hundredths of the heap's size.
    Percent(u32),
}

/// A size, a share of the heap, or `none`.
pub(super) struct DirtyCap;

impl DirtyCap {
    const SIZE: Number<usize> = bytes(0, usize::MAX);
    const SHARE: Number<u32> = number(0, 100);
}

impl Format for DirtyCap {
    type Value = DirtyMax;

    fn read(&self, text: &[u8]) -> Option<DirtyMax> {
        match text {
            b"none" | b"-1" => Some(DirtyMax::None),
            [share @ .., b'%'] => Self::SHARE.read(share).map(DirtyMax::Percent),
            _ => Self::SIZE.read(text).map(DirtyMax::Bytes),
        }
    }

    fn show(&self, value: &DirtyMax, out: &mut LineBuffer) {
        match value {
            DirtyMax::None => {
                out.text("none");
            }
            DirtyMax::Bytes(size) => Self::SIZE.show(size, out),
            DirtyMax::Percent(share) => {
                Self::SHARE.show(share, out);
                out.text("%");
            }
        }
    }

    fn valid(&self, out: &mut LineBuffer) {
        out.text("none, a size such as 64m, or a share of the heap from 0% to 100%");
    }
}

macro_rules! written {
    ($($type:ty)*) => {$(
        impl Kept for $type {
            const SHAPE: Shape = Shape::Written;
            fn plain(&self) -> Plain<'_> {
                Plain::Written
            }
        }
    )*};
}
// The second stores a fraction.
written! { DirtyMax Option<u64> }
