//! One colour and one shape per allocator, the same in every plot and table of a report.
//!
//! Colour alone cannot distinguish nine or more lines, least of all for colour-blind readers. So
//! each allocator has a colour and a shape, and plots label their lines. The style sheet has the
//! actual colours, for light and for dark pages; this module only assigns slots. Mallard, the
//! subject, and glibc, the reference, have the same colour and shape in every report. The others
//! get theirs in the order of the request.

use crate::arithmetic::stats::{BASELINE, SUBJECT, took_part};
use crate::model::Results;

/// The number of colour slots in the style sheet, not counting the subject's and the reference's.
const COLOUR_SLOTS: usize = 10;

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

/// The appearance of an allocator.
#[derive(Debug, Clone)]
pub struct Look {
    pub name: String,
    /// The class that sets the colour.
    pub class: String,
    pub shape: Shape,
}

/// The look of what a replayed program had allocated, which is no allocator's.
pub fn live() -> Look {
    Look {
        name: "live".to_owned(),
        class: "k-live".to_owned(),
        shape: Shape::Circle,
    }
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
                        format!("k-{}", others % COLOUR_SLOTS),
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

    /// The look of an allocator. Every name in a cell of the report has one.
    pub fn look(&self, name: &str) -> &Look {
        self.looks
            .iter()
            .find(|l| l.name == name)
            .expect("every allocator of the report has a look")
    }
}
