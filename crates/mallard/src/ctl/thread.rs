//! `thread.*`: the calling thread.

use super::Node;

pub(super) static NAMES: &[Node] = &[];
