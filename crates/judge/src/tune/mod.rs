//! The search of `mallard tune`: a short option string, or "keep the defaults".
//!
//! [`space`] has the options that are worth trying, [`goal`] what to improve, and [`search`] the
//! way from the one to the other with [`model`]. The [`search::Lab`] runs the settings.

pub mod goal;
pub mod model;
pub mod search;
pub mod space;
