//! Memory that comes from extent hooks of the program: the hooks themselves (`hooks`), and the
//! extents that they provided, cut into runs (`memory`).

pub mod hooks;
pub(in crate::heap) mod memory;
