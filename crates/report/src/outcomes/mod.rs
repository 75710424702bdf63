//! The outcomes of single commands, each as data, as text and as a page.

pub mod diagnosis;
pub mod history;
pub mod sites;
pub mod tuning;
