//! One colour and one mark per allocator, the same in every plot and table of a report.
//!
//! Nine or more lines cannot be told apart by colour alone, least of all by those who see fewer of
//! them. So an allocator has a colour *and* a shape of its own, and plots label their lines. The
//! colours themselves are in the style sheet, once for light and once for dark pages; here they are
//! only slots. Mallard and glibc, the subject and the reference, keep theirs in every report; the
//! others take theirs in the order in which they were asked for.

use crate::model::Results;
use crate::stats::{BASELINE, SUBJECT, took_part};

/// Colour slots in the style sheet besides those of the subject and the reference.
const SLOTS: usize = 10;

/// The shape of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    Wedge,
    Cross,
}

const SHAPES: [Shape; 6] = [
    Shape::Square,
    Shape::Triangle,
    Shape::Diamond,
    Shape::Wedge,
    Shape::Cross,
    Shape::Circle,
];

/// How an allocator looks.
#[derive(Debug, Clone)]
pub struct Look {
    pub name: String,
    /// The class that sets the colour.
    pub class: String,
    pub shape: Shape,
}

/// The looks of all allocators of a report.
pub struct Palette {
    looks: Vec<Look>,
}

impl Palette {
    pub fn new(r: &Results) -> Palette {
        let mut names: Vec<&str> = r.allocators.iter().map(|a| a.name.as_str()).collect();
        let rows = r.experiments.iter().flat_map(|e| &e.rows);
        for cell in rows.flat_map(|row| &row.cells).filter(|c| took_part(c)) {
            if !names.contains(&cell.allocator.as_str()) {
                names.push(&cell.allocator);
            }
        }
        let mut others = 0;
        let look = |name: &&str| {
            let (class, shape) = match *name {
                SUBJECT => ("k-subject".to_owned(), Shape::Circle),
                BASELINE => ("k-reference".to_owned(), Shape::Cross),
                _ => {
                    let slot = (
                        format!("k-{}", others % SLOTS),
                        SHAPES[others % SHAPES.len()],
                    );
                    others += 1;
                    slot
                }
            };
            Look {
                name: (*name).to_owned(),
                class,
                shape,
            }
        };
        Palette {
            looks: names.iter().map(look).collect(),
        }
    }

    /// The look of an allocator. Every name that a cell of the report carries has one.
    pub fn look(&self, name: &str) -> &Look {
        self.looks
            .iter()
            .find(|l| l.name == name)
            .expect("every allocator of the report has a look")
    }
}
