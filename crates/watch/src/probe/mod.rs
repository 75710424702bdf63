//! What the probe and the lab share: the [`folder`], and in it the [`segments`] of processes. The
//! probe's own files, [`chunks`] and [`layout`], define the layout of that memory.

#[path = "../../../probe/src/shared_memory/chunks.rs"]
pub mod chunks;
pub mod folder;
#[path = "../../../probe/src/shared_memory/layout.rs"]
pub mod layout;
pub mod segments;
