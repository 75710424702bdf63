//! `arena.<i>.*`: one arena, or all.

use super::Node;

pub(super) static NAMES: &[Node] = &[];
