//! Writes the report: values and tables, either as text or as JSON.
//!
//! A caller describes everything once; calls for the other form are ignored. Text goes out in
//! zero-terminated pieces, as the C callback expects.

// Nothing here is inlined into its many callers: size matters more than speed for a report.

use crate::ctl::Value;
use crate::sys::label::Label;
use core::ffi::CStr;
use core::fmt::{self, Write};

const ROOM_BYTES: usize = 4096;

/// A buffer that is passed on when full.
pub(super) struct Out<'a> {
    to: &'a mut dyn FnMut(&CStr),
    text: [u8; ROOM_BYTES],
    len: usize,
}

impl<'a> Out<'a> {
    pub fn new(to: &'a mut dyn FnMut(&CStr)) -> Self {
        Out {
            to,
            text: [0; ROOM_BYTES],
            len: 0,
        }
    }

    #[inline(never)]
    pub fn flush(&mut self) {
        self.text[self.len] = 0;
        // There is no zero byte in the middle: texts come from C strings and formats.
        if let Ok(text) = CStr::from_bytes_until_nul(&self.text[..=self.len])
            && self.len > 0
        {
            (self.to)(text);
        }
        self.len = 0;
    }

    #[inline(never)]
    fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.len == ROOM_BYTES - 1 {
                self.flush();
            }
            self.text[self.len] = byte;
            self.len += 1;
        }
    }
}

impl Write for Out<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.push(s.as_bytes());
        Ok(())
    }
}

/// A cell in a row of a table.
#[derive(Clone, Copy)]
pub enum Cell<'a> {
    Number(u64),
    Text(&'a str),
}

/// A column: its title and its width, negative for left alignment.
pub type Column = (Label, i8);

pub const fn column(title: &str, width: i8) -> Column {
    (Label::of(title), width)
}

pub struct Emitter<'a> {
    out: Out<'a>,
    json: bool,
    /// Whether a comma goes before the next member.
    comma: bool,
    indent: usize,
}

impl<'a> Emitter<'a> {
    pub fn new(json: bool, to: &'a mut dyn FnMut(&CStr)) -> Self {
        Emitter {
            out: Out::new(to),
            json,
            comma: false,
            indent: 0,
        }
    }

    pub fn is_json(&self) -> bool {
        self.json
    }

    pub fn begin(&mut self) {
        if self.json {
            self.out.push(b"{\"jemalloc\":{");
        } else {
            self.out.push(b"___ Begin jemalloc statistics ___\n");
        }
    }

    pub fn end(&mut self) {
        if self.json {
            self.out.push(b"}}\n");
        } else {
            self.out.push(b"--- End jemalloc statistics ---\n");
        }
        self.out.flush();
    }

    #[inline(never)]
    fn write(&mut self, args: fmt::Arguments<'_>) {
        // Writing to the buffer cannot fail.
        let _ = self.out.write_fmt(args);
    }

    /// Writes text; ignored in JSON.
    #[inline(never)]
    pub fn text(&mut self, args: fmt::Arguments<'_>) {
        if !self.json {
            self.write(args);
        }
    }

    /// Begins a member of the current object, or an element of the array.
    #[inline(never)]
    fn member(&mut self, key: Option<&str>) {
        if self.comma {
            self.out.push(b",");
        }
        self.comma = true;
        if let Some(key) = key {
            self.write(format_args!("\"{key}\":"));
        }
    }

    #[inline(never)]
    fn open(&mut self, key: Option<&str>, with: &[u8]) {
        if self.json {
            self.member(key);
            self.out.push(with);
            self.comma = false;
        }
    }

    #[inline(never)]
    fn close(&mut self, with: &[u8]) {
        if self.json {
            self.out.push(with);
            self.comma = true;
        }
    }

    /// Begins an object as a member; JSON only.
    #[inline(never)]
    pub fn object(&mut self, key: &str) {
        self.open(Some(key), b"{");
    }

    /// Begins an object as an element of an array; JSON only.
    #[inline(never)]
    pub fn element(&mut self) {
        self.open(None, b"{");
    }

    #[inline(never)]
    pub fn end_object(&mut self) {
        self.close(b"}");
    }

    #[inline(never)]
    pub fn array(&mut self, key: &str) {
        self.open(Some(key), b"[");
    }

    #[inline(never)]
    pub fn end_array(&mut self) {
        self.close(b"]");
    }

    /// Begins an object in JSON, a title with indented lines in text.
    #[inline(never)]
    pub fn section(&mut self, key: &str, title: &str) {
        self.object(key);
        self.text(format_args!("{title}\n"));
        self.indent += 2;
    }

    #[inline(never)]
    pub fn end_section(&mut self) {
        self.end_object();
        self.indent -= 2;
    }

    /// Writes a value in both forms.
    #[inline(never)]
    pub fn both(&mut self, key: &str, label: fmt::Arguments<'_>, value: Value) {
        self.noted(key, label, value, None);
    }

    /// Like [`Emitter::both`], with another value beside it in the text.
    #[inline(never)]
    pub fn noted(
        &mut self,
        key: &str,
        label: fmt::Arguments<'_>,
        value: Value,
        note: Option<(&str, Value)>,
    ) {
        if self.json {
            self.member(Some(key));
            return self.value(value);
        }
        let indent = self.indent;
        self.write(format_args!("{:indent$}{label}: ", ""));
        self.value(value);
        if let Some((name, value)) = note {
            self.write(format_args!(" ({name}: "));
            self.value(value);
            self.out.push(b")");
        }
        self.out.push(b"\n");
    }

    /// Writes a fixed-point number with 16 binary places as quoted text; all ones mean none.
    #[inline(never)]
    pub fn share(&mut self, key: &str, label: fmt::Arguments<'_>, value: Value) {
        let Value::Unsigned(n) = value else { return };
        if self.json {
            self.member(Some(key));
        } else {
            let indent = self.indent;
            self.write(format_args!("{:indent$}{label}: ", ""));
        }
        let hundredths = (n * 100 + (1 << 15)) >> 16;
        match n {
            0xffff_ffff => self.write(format_args!("\"-1\"")),
            _ => self.write(format_args!(
                "\"{}.{:02}\"",
                hundredths / 100,
                hundredths % 100
            )),
        }
        self.text(format_args!("\n"));
    }

    /// Writes a number; JSON only.
    #[inline(never)]
    pub fn number(&mut self, key: &str, n: u64) {
        if self.json {
            self.member(Some(key));
            self.write(format_args!("{n}"));
        }
    }

    /// Writes a number that may be negative; JSON only.
    #[inline(never)]
    pub fn signed(&mut self, key: &str, n: i64) {
        if self.json {
            self.member(Some(key));
            self.write(format_args!("{n}"));
        }
    }

    #[inline(never)]
    fn value(&mut self, value: Value) {
        match value {
            Value::Bool(on) => self.write(format_args!("{on}")),
            Value::Unsigned(n) => self.write(format_args!("{n}")),
            Value::Signed(n) => self.write(format_args!("{n}")),
            Value::Text(text) => self.quoted(text.to_bytes()),
        }
    }

    /// Writes a quoted text. In JSON special characters are escaped, and non-ASCII bytes are
    /// written as the characters with their numbers, so that the output is always valid.
    #[inline(never)]
    fn quoted(&mut self, text: &[u8]) {
        self.out.push(b"\"");
        for &byte in text {
            match byte {
                _ if !self.json => self.out.push(&[byte]),
                b'"' | b'\\' => self.out.push(&[b'\\', byte]),
                b' '..=b'~' => self.out.push(&[byte]),
                _ => self.write(format_args!("\\u{byte:04x}")),
            }
        }
        self.out.push(b"\"");
    }

    /// Writes the titles of a table. After a label, the first column is narrower by `shift`.
    pub fn titles<'c>(&mut self, columns: impl Iterator<Item = &'c Column>, shift: usize) {
        let mut columns = columns;
        self.title_row(&mut columns, shift);
    }

    #[inline(never)]
    fn title_row(&mut self, columns: &mut dyn Iterator<Item = &Column>, shift: usize) {
        let mut shift = shift as i8;
        for (title, width) in columns {
            self.cell(width - shift, Cell::Text(title.as_str()));
            shift = 0;
        }
        self.text(format_args!("\n"));
    }

    /// Writes a row of a table.
    pub fn row<'c>(
        &mut self,
        columns: impl Iterator<Item = &'c Column>,
        cells: impl Iterator<Item = Cell<'c>>,
    ) {
        let (mut columns, mut cells) = (columns, cells);
        self.cell_row(&mut columns, &mut cells);
    }

    #[inline(never)]
    fn cell_row(
        &mut self,
        columns: &mut dyn Iterator<Item = &Column>,
        cells: &mut dyn Iterator<Item = Cell<'_>>,
    ) {
        for (&(_, width), cell) in columns.zip(cells) {
            self.cell(width, cell);
        }
        self.text(format_args!("\n"));
    }

    #[inline(never)]
    fn cell(&mut self, width: i8, cell: Cell<'_>) {
        let wide = width.unsigned_abs() as usize;
        match cell {
            Cell::Number(n) => self.text(format_args!("{n:>wide$}")),
            Cell::Text(text) if width < 0 => self.text(format_args!("{text:<wide$}")),
            Cell::Text(text) => self.text(format_args!("{text:>wide$}")),
        }
    }
}

/// A number as text.
pub struct Digits {
    text: [u8; 20],
    len: usize,
}

impl Digits {
    pub fn new() -> Self {
        Digits {
            text: [0; 20],
            len: 0,
        }
    }

    #[inline(never)]
    pub fn of(&mut self, n: usize) -> &str {
        self.len = 0;
        // Twenty digits are enough for any number.
        let _ = write!(self, "{n}");
        self.get()
    }

    fn get(&self) -> &str {
        let text = self.text.get(..self.len).unwrap_or(&[]);
        // SAFETY: only digits and points are written.
        unsafe { core::str::from_utf8_unchecked(text) }
    }

    /// A fraction with three decimals; `whole` may be 0.
    #[inline(never)]
    pub fn share(&mut self, part: u64, whole: u64) -> &str {
        self.len = 0;
        let _ = match part.saturating_mul(1000).checked_div(whole) {
            None | Some(1000) => write!(self, "1"),
            Some(thousandths) => write!(self, "0.{thousandths:03}"),
        };
        self.get()
    }
}

impl Write for Digits {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let end = self.len + s.len();
        let room = self.text.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(s.as_bytes());
        self.len = end;
        Ok(())
    }
}
