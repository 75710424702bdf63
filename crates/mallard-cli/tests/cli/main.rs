//! The lab as users run it: the command itself, its output and its files.

mod advice;
mod around;
mod baseline;
mod bench;
mod diagnose;
mod diff;
mod errors;
mod export;
mod forks;
mod keys;
mod leak;
mod newcomer;
mod place;
mod profile;
mod programs;
mod real;
mod record;
mod replay;
mod report;
mod running;
mod services;
mod suite;
mod top;
mod tune;
mod verdicts;
