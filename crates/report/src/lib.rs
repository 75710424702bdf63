//! The results of a run of the lab: as data ([`model`]), and (to come) as tables, CSV, JSON and HTML.
pub mod model;
