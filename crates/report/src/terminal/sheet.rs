//! A table for the terminal that never exceeds the width it is given.
//!
//! A [`Sheet`] has some leading columns that name a line (the axis, what is measured) and any
//! number of others. Where the others do not fit beside each other they continue in a further
//! block below that repeats the leading ones, since a wrapped or clipped figure is no figure.

use comfy_table::{Attribute, Cell, CellAlignment, Color, LineStyle, Table, TableStyle};
use unicode_width::UnicodeWidthStr;

/// What a text is, for those who see colours.
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

    /// A figure; the best of its row carries a star, with or without colours.
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

/// Rows of fields below a header; the first `leading` columns are aligned left and repeated in
/// every block.
pub struct Sheet {
    pub leading: usize,
    pub header: Vec<Field>,
    pub rows: Vec<Vec<Field>>,
}

/// Blanks that a column takes besides its widest field: one before it and the one between columns.
const GAP: usize = 2;

const RULED: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

impl Sheet {
    /// Columns that the sheet takes when it is not split.
    pub fn width(&self) -> usize {
        (0..self.header.len())
            .map(|column| self.column_width(column))
            .sum()
    }

    fn column_width(&self, column: usize) -> usize {
        let fields = std::iter::once(&self.header)
            .chain(&self.rows)
            .filter_map(|row| row.get(column));
        fields.map(Field::width).max().unwrap_or(0) + GAP
    }

    /// The lines of the sheet in blocks of at most `width` columns (more only where a single column
    /// beside the leading ones is wider), with a blank line between blocks.
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
        // In a block of its own, a line may have nothing to say.
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
