//! Which arena serves a request: the arenas of CPUs (`percpu`), the spreading of threads over
//! arenas (`join`), the arena of oversize requests (`oversize`), and arenas that the program makes
//! (`manual`) and sets up (`settings`).
//! `destination` chooses the arena whose transfer cache takes a batch that a thread cache flushes.
//! `interval` counts what arenas hand out, for periodic reports.

pub(in crate::arena) mod destination;
pub mod interval;
pub(in crate::arena) mod join;
pub mod manual;
pub mod oversize;
pub mod percpu;
pub mod settings;
