//! A server as the subject of a measurement: how it is started, when it is ready, what loads it,
//! how it is stopped, and which figures its load reports.
//!
//! [`Service`] is the description, read from a TOML file ([`mod@file`]) or made by the caller, and
//! [`presets`] has files for common servers. [`words`] fills the placeholders of commands with the
//! [`Placeholders`] of a run. [`run`] is one run, beside the process that
//! [`mallard_runner::Launcher`] started: it waits until the server is ready ([`readiness`]), runs
//! the load, watches the memory of the server's processes ([`memory`]), reads the figures
//! ([`metrics`]) and stops the server. A failure is a [`Trouble`]: a sentence, and the last lines
//! of whatever failed.
//!
//! This crate knows nothing about allocators and does no statistics. The load always runs on the
//! caller's own environment, never on the measured allocator.

mod command;
pub mod file;
pub mod memory;
pub mod metrics;
mod port;
pub mod presets;
mod readiness;
pub mod run;
mod words;

pub use file::{Loop, Service, Stop};
pub use metrics::{Better, Metric, Source};
pub use readiness::Ready;
pub use run::{Driven, Trouble};
pub use words::{Placeholders, Words};
