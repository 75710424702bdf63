//! Leaks as JSON.

use std::os::unix::process::ExitStatusExt;

use anyhow::Result;
use mallard_profile::view::View;
use mallard_profile::view::rows::{By, rows};
use serde_json::{Value, json};

use super::Options;
use super::found::{self, Found};
use crate::profiles::members::End;
use crate::profiles::program::Ran;

/// `leaks` are those of all processes together; each process has its own below `processes`. What
/// one holds that does not count is not there.
pub fn json(ran: &Ran, found: &[Found], options: &Options) -> Result<String> {
    let counted = found
        .iter()
        .filter(|found| !found::is_left_out(ran, found.processes[0], options));
    let all = Found::together(ran, &counted.collect::<Vec<_>>(), options)?;
    let processes: Vec<Value> = found
        .iter()
        .map(|found| process(ran, found, options))
        .collect::<Result<_>>()?;
    let every: Vec<usize> = (0..ran.processes.len()).collect();
    let name = ran.processes[0].shown();
    let answer = json!({
        "schema": 1,
        "program": name,
        "leaks": sites(&all)?,
        "processes": processes,
        "notes": ran.notes(&every),
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&answer)?))
}

fn process(ran: &Ran, found: &Found, options: &Options) -> Result<Value> {
    let place = found.processes[0];
    let process = &ran.processes[place];
    let is_left_out = found::is_left_out(ran, place, options);
    let is_known = process.why_not().is_none() && !is_left_out;
    let (code, signal) = match process.end {
        End::Ended(status) => (status.code(), status.signal()),
        End::Unknown | End::Runs => (None, None),
    };
    Ok(json!({
        "pid": process.pid,
        "parent": process.parent,
        "program": process.program,
        "bytes": is_known.then_some(found.bytes() as f64),
        "leaks": sites(found)?,
        "left_out": is_left_out,
        "runs": process.end == End::Runs,
        "exit_code": code,
        "signal": signal,
        "unknown": process.why_not(),
    }))
}

fn sites(found: &Found) -> Result<Vec<Value>> {
    if found.leaks.is_empty() {
        return Ok(Vec::new());
    }
    let figures = View::Live.figures(&found.profile)?;
    let mut sites = Vec::new();
    for row in rows(&found.profile, figures, By::Function) {
        let Some(leak) = found.leaks.iter().find(|leak| leak.key == row.key) else {
            continue;
        };
        let place = row.heaviest.site.as_ref();
        sites.push(json!({
            "site": row.key,
            "bytes": leak.bytes as f64,
            "blocks": row.blocks(figures).map(|blocks| blocks as f64),
            "grows": found.is_growth_known.then_some(leak.grows),
            "file": place.map(|place| &place.file),
            "line": place.map(|place| place.line),
            "callers": row.heaviest.callers.iter().map(|c| c.function.to_string()).collect::<Vec<_>>(),
        }));
    }
    Ok(sites)
}
