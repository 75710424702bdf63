//! `mallard export`: metrics and heap profiles of the processes on Mallard, over HTTP.
//!
//! [`server`] takes connections and keeps them within bounds, [`site`] answers a request, with the
//! processes of [`watched`], the profiles of [`profile`] and the [`page`] for people. An [`answer`]
//! knows nothing of the connection. `mallard_inspect` finds and reads the processes and writes the
//! metrics; `mallard_profile` reads profiles and makes names.

mod answer;
mod options;
mod page;
mod profile;
mod server;
mod site;
mod watched;

use std::process::ExitCode;

use anyhow::Result;

use crate::terminal::output::say;
pub use options::Options;
use site::Site;
use watched::Watched;

pub fn run(options: &Options) -> Result<ExitCode> {
    let listener = options.listen.listen()?;
    let address = listener.local_addr()?.to_string();
    say!("serving http://{address}/metrics")?;
    let watched = Watched::of(options.pids.clone(), options.matching.clone());
    let site = Site::new(watched, options.names(), options.control, address);
    server::serve(listener, site)?;
    Ok(ExitCode::SUCCESS)
}
