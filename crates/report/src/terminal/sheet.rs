//! A table for the terminal that never exceeds its width.
//!
//! A [`Sheet`] has some leading columns that name a line (the axis, the figure) and any number of
//! others. Columns that do not fit continue in another block, which repeats the leading columns:
//! wrapping or clipping would make figures unreadable.

use comfy_table::{Attribute, Cell, CellAlignment, Color, LineStyle, Table, TableStyle};
use unicode_width::UnicodeWidthStr;

/// The meaning of a text, shown as its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Strong,
    Faint,
    Best,
    Bad,
}

/// One field of a sheet.
#[derive(Debug, Clone)]
pub struct Field {
    pub text: String,
    pub tone: Tone,
}

impl Field {
    pub fn new(text: impl Into<String>, tone: Tone) -> Field {
        Field {
            text: text.into(),
            tone,
        }
    }

    pub fn plain(text: impl Into<String>) -> Field {
        Field::new(text, Tone::Plain)
    }

    /// A figure, with a star if it is the best of its row, with or without colours.
    pub fn figure(text: impl Into<String>, best: bool) -> Field {
        let text = text.into();
        if best {
            Field::new(format!("*{text}"), Tone::Best)
        } else {
            Field::plain(text)
        }
    }

    fn width(&self) -> usize {
        self.text.width()
    }
}

/// Rows of fields below a header. The first `leading` columns are left-aligned and repeated in
/// every block.
pub struct Sheet {
    pub leading: usize,
    pub header: Vec<Field>,
    pub rows: Vec<Vec<Field>>,
}

/// The blanks of a column besides its widest field: one before it and one between columns.
const GAP_COLUMNS: usize = 2;

const RULED: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

impl Sheet {
    /// The width of the sheet in one block.
    pub fn width(&self) -> usize {
        (0..self.header.len())
            .map(|column| self.column_width(column))
            .sum()
    }

    fn column_width(&self, column: usize) -> usize {
        let fields = std::iter::once(&self.header)
            .chain(&self.rows)
            .filter_map(|row| row.get(column));
        fields.map(Field::width).max().unwrap_or(0) + GAP_COLUMNS
    }

    /// The sheet's lines in blocks of at most `width` columns, with a blank line between blocks. A
    /// block is wider only if a single column does not fit beside the leading ones.
    pub fn render(&self, width: usize, color: bool) -> String {
        let blocks: Vec<String> = self
            .blocks(width)
            .iter()
            .map(|columns| self.render_block(columns, color))
            .collect();
        blocks.join("\n")
    }

    fn blocks(&self, width: usize) -> Vec<Vec<usize>> {
        let leading: Vec<usize> = (0..self.leading).collect();
        let reserved: usize = leading.iter().map(|c| self.column_width(*c)).sum();
        let mut blocks = Vec::new();
        let (mut block, mut used) = (leading.clone(), reserved);
        for column in self.leading..self.header.len() {
            let wide = self.column_width(column);
            if used + wide > width && block.len() > self.leading {
                blocks.push(std::mem::replace(&mut block, leading.clone()));
                used = reserved;
            }
            block.push(column);
            used += wide;
        }
        blocks.push(block);
        blocks
    }

    fn render_block(&self, columns: &[usize], color: bool) -> String {
        let mut table = Table::new();
        table.load_style(RULED);
        if color {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        let line = |row: &[Field]| -> Vec<Cell> {
            columns
                .iter()
                .map(|&c| self.cell(c, row.get(c), color))
                .collect()
        };
        table.set_header(line(&self.header));
        // A line may be empty in this block.
        let says = |row: &&Vec<Field>| {
            let mut figures = columns[self.leading..].iter().filter_map(|&c| row.get(c));
            figures.any(|field| !field.text.is_empty())
        };
        for row in self.rows.iter().filter(says) {
            table.add_row(line(row));
        }
        for column in table.column_iter_mut() {
            column.set_padding((1, 0));
        }
        let mut text = String::new();
        for line in table.lines() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn cell(&self, column: usize, field: Option<&Field>, color: bool) -> Cell {
        let Some(field) = field else {
            return Cell::new("");
        };
        let side = if column < self.leading {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        };
        let cell = Cell::new(&field.text).set_alignment(side);
        if !color {
            return cell;
        }
        match field.tone {
            Tone::Plain => cell,
            Tone::Strong => cell.add_attribute(Attribute::Bold),
            Tone::Faint => cell.add_attribute(Attribute::Dim),
            Tone::Best => cell.fg(Color::Green).add_attribute(Attribute::Bold),
            Tone::Bad => cell.fg(Color::Red),
        }
    }
}
