//! What the probe and the lab share: the [`folder`], and in it the [`segments`] of processes. The
//! memory has the form that the probe's own files say.

#[path = "../../../probe/src/shared_memory/chunks.rs"]
pub mod chunks;
pub mod folder;
#[path = "../../../probe/src/shared_memory/layout.rs"]
pub mod layout;
pub mod segments;
