//! The outcomes of single commands, each as data, as text and as a page.

pub mod diagnosis;
pub mod doctor;
pub mod history;
pub mod misuse;
pub mod sites;
pub mod soak;
pub mod tuning;
