//! What judges: figures in, answers out.
//!
//! Nothing here runs, measures, prints or reads a command line. [`statistics`] has the estimates
//! and their intervals, [`schedule`] the order in which candidates take turns, [`figures`] what a
//! run gives. Above them are the judges of three commands: [`tune`] searches for the options of an
//! allocator, [`baseline`] decides whether a change made something worse, and [`diagnose`] whether
//! malloc is a program's bottleneck, and why.
//!
//! Answers have reasons, and reasons have types. The command makes sentences of them.

pub mod baseline;
pub mod diagnose;
pub mod figures;
pub mod limit;
pub mod schedule;
pub mod statistics;
pub mod tune;
