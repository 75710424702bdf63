//! A profile on the screen, as JSON and as one HTML file.
//!
//! A [`ProfilePage`] is what all forms share: the profile or a pair of profiles, the question, and
//! what was found out about names.

mod html;
mod json;
mod table;

use std::time::Duration;

use crate::model::Profile;
use crate::names::NamingOutcome;
use crate::view::rows::By;
use crate::view::{Absent, View};

pub use html::html;
pub use json::json;
pub use table::{Layout, table};

/// A profile with its name.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    pub name: &'a str,
    pub profile: &'a Profile,
}

/// What to show.
#[derive(Debug, Clone, Copy)]
pub struct ProfilePage<'a> {
    pub subject: Named<'a>,
    /// The earlier profile, to be compared.
    pub before: Option<Named<'a>>,
    pub view: View,
    pub by: By,
    pub names: &'a NamingOutcome,
    /// Notes on how the profile came about, one sentence each.
    pub notes: &'a [String],
    /// The time between two profiles of one process.
    pub apart: Option<Duration>,
}

impl ProfilePage<'_> {
    /// Checks that the question can be answered.
    ///
    /// # Errors
    /// A profile lacks the figures.
    pub fn check(&self) -> Result<(), Absent> {
        self.view.figures(self.subject.profile)?;
        if let Some(before) = self.before {
            self.view.figures(before.profile)?;
        }
        Ok(())
    }
}
