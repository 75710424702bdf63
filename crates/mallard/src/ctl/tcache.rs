//! `tcache.*`: caches by hand.

use super::Node;

pub(super) static NAMES: &[Node] = &[];
