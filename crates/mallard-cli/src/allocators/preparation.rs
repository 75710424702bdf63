//! Prepares allocators: builds them if they are missing, and checks that they work.

use anyhow::Result;
use mallard_allocators::{Allocator, Catalog, State, Unavailable};

use crate::terminal::progress::Spinner;

/// A requested allocator, or why it is not available.
pub type Prepared = Result<Allocator, Unavailable>;

/// Prepares one allocator, and shows a line on the terminal meanwhile.
pub fn prepare(catalog: &Catalog, name: &str) -> Result<Prepared> {
    let spinner = Spinner::new();
    prepare_beside(catalog, name, &spinner)
}

/// The same with the line of the caller.
pub fn prepare_beside(catalog: &Catalog, name: &str, spinner: &Spinner) -> Result<Prepared> {
    let mut announced = false;
    let prepared = catalog.prepare(name, &mut |progress| match progress.state {
        State::Building => {
            if !announced {
                announced = true;
                spinner.say(&format!(
                    "Building {} (only the first time)",
                    progress.allocator
                ));
            }
            spinner.show(format!("{}: {}", progress.allocator, progress.line));
        }
        State::Probing => spinner.show(format!("Checking {}", progress.allocator)),
        State::Ready | State::Unavailable => {}
    })?;
    Ok(prepared)
}
