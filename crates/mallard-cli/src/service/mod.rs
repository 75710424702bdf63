//! Services as subjects: `--service` and the options that describe a server on the command line.
//!
//! [`Subject`] is what the user gave. [`work`] is a service in a race: it drives each run and turns
//! it into figures.

pub mod work;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use mallard_service::{Loop, Metric, Service, file, presets};
use serde::{Deserialize, Serialize};

use crate::options::values::duration;
use crate::terminal::exit::usage;

/// A server as the subject, instead of a program that ends by itself.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
#[serde(default)]
#[command(next_help_heading = "Services")]
pub struct Subject {
    /// Measure a server under its load: a preset (see `mallard service`) or a TOML file
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = ["start", "program"])]
    pub service: Option<String>,

    /// Command that starts the server, in the foreground. `{port}` is a free port and `{folder}` an
    /// empty folder
    #[arg(
        long,
        value_name = "COMMAND",
        requires = "ready",
        requires = "load",
        conflicts_with = "program"
    )]
    pub start: Option<String>,

    /// When the server is ready: tcp:ADDRESS, socket:PATH, log:REGEX, or a command that succeeds
    #[arg(long, value_name = "SIGN", requires = "start")]
    pub ready: Option<String>,

    /// Command that loads the server
    #[arg(long, value_name = "COMMAND", requires = "start")]
    pub load: Option<String>,

    /// Signal that stops the server [default: TERM]
    #[arg(long = "stop", value_name = "SIGNAL", requires = "start")]
    pub stop_signal: Option<String>,

    /// Figure in the output of the load, or of a program that is compared: NAME=regex:…,
    /// NAME=column:TITLE[@ROW] or NAME=json:/… (can be repeated)
    #[arg(long = "metric", value_name = "NAME=SOURCE")]
    pub metrics: Vec<String>,

    /// Idle time before the memory at the end is read [default: the description's, or 1s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub settle: Option<Duration>,

    /// How long the load takes: `{seconds}` in its command [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: Option<u32>,
}

impl Subject {
    /// The service, if the user gave one.
    pub fn service(&self) -> Result<Option<Service>> {
        let mut service = match (&self.service, &self.start) {
            (Some(name), _) => named(name)?,
            (None, Some(start)) => self.described(start)?,
            (None, None) => {
                let given = [
                    ("--metric", !self.metrics.is_empty()),
                    ("--settle", self.settle.is_some()),
                    ("--seconds", self.seconds.is_some()),
                ];
                return refuse(&given).map(|()| None);
            }
        };
        for text in &self.metrics {
            let metric = file::metric_of(text).map_err(usage)?;
            service.metrics.retain(|known| known.name != metric.name);
            service.metrics.push(metric);
        }
        service.settle = self.settle.unwrap_or(service.settle);
        Ok(Some(service))
    }

    /// The figures in the output of a program that ends by itself.
    pub fn printed(&self) -> Result<Vec<Metric>> {
        refuse(&[
            ("--settle", self.settle.is_some()),
            ("--seconds", self.seconds.is_some()),
        ])?;
        let metric = |text: &String| file::metric_of(text).map_err(usage);
        self.metrics.iter().map(metric).collect()
    }

    fn described(&self, start: &str) -> Result<Service> {
        let (Some(ready), Some(load)) = (&self.ready, &self.load) else {
            return Err(usage("--start needs --ready and --load"));
        };
        let program = start.split_whitespace().next().unwrap_or("service");
        let name = Path::new(program).file_name().unwrap_or_default();
        let ready = file::ready_of(ready).map_err(usage)?;
        let mut service = file::of_commands(&name.to_string_lossy(), start, ready, load);
        if let Some(signal) = &self.stop_signal {
            service.stop.signal = file::signal(signal).map_err(usage)?;
        }
        Ok(service)
    }

    /// Whether the user named a service.
    pub fn is_given(&self) -> bool {
        self.service.is_some() || self.start.is_some()
    }

    /// The seconds of a load.
    pub fn seconds(&self) -> u32 {
        self.seconds.unwrap_or(file::LOAD_SECONDS)
    }

    /// The seconds of a load that may take `time` (`--for`).
    pub fn seconds_within(&self, time: Option<Duration>) -> Result<u32> {
        match (time, self.seconds) {
            (Some(_), Some(_)) => Err(usage("--for and --seconds both set the time of the load")),
            (Some(time), None) => Ok(time.as_secs_f64().ceil().clamp(1.0, 86_400.0) as u32),
            (None, _) => Ok(self.seconds()),
        }
    }

    /// The options as a user would type them again.
    pub fn typed(&self, service: &Service) -> String {
        match &self.service {
            Some(name) => format!("--service {name}"),
            None => format!("--start … ({})", service.name),
        }
    }
}

/// Refuses what is only for a service.
fn refuse(given: &[(&str, bool)]) -> Result<()> {
    match given.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(usage(format!(
            "{flag} is for a service (--service, --start)"
        ))),
        None => Ok(()),
    }
}

/// A preset, or the description in a file.
pub fn named(name: &str) -> Result<Service> {
    if let Some(service) = presets::service(name) {
        return Ok(service);
    }
    if name.contains('/') || name.ends_with(".toml") || Path::new(name).is_file() {
        return Service::read(Path::new(name)).map_err(usage);
    }
    let known: Vec<&str> = presets::ALL.iter().map(|(known, _)| *known).collect();
    let near = known
        .iter()
        .filter(|known| strsim::damerau_levenshtein(name, known) <= 2)
        .min_by_key(|known| strsim::damerau_levenshtein(name, known));
    let hint = near.map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
    Err(usage(format!(
        "there is no service `{name}`{hint}: expected {}, or a TOML file",
        known.join(", ")
    )))
}

/// What a reader must know about the latencies of a load.
pub fn about_loop(service: &Service) -> String {
    match service.closed {
        Loop::Closed => "The load is a closed loop: each client waits for an answer before its next \
             request, so a stall delays requests instead of queueing them, and the latencies look better \
             than those of users who do not wait. wrk2, oha -q, vegeta and pgbench -R send at a fixed rate."
            .to_owned(),
        Loop::Open => "The load is an open loop: it sends at a fixed rate, so its latencies include \
             queueing."
            .to_owned(),
        Loop::Unknown => "It is not known whether the load is a closed loop (each client waits for an \
             answer before its next request), which would make latencies look better than they are; \
             `loop` in the description says it."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_a_preset_or_a_file_and_a_mistake_names_the_nearest() {
        assert_eq!(named("redis").unwrap().name, "redis");
        let error = named("radis").unwrap_err().to_string();
        assert!(error.contains("did you mean `redis`?"), "{error}");
        let error = named("/nowhere/web.toml").unwrap_err().to_string();
        assert!(error.contains("cannot read /nowhere/web.toml"), "{error}");
    }

    #[test]
    fn options_for_services_need_a_service() {
        let subject = Subject {
            seconds: Some(1),
            ..Subject::default()
        };
        let error = subject.service().unwrap_err().to_string();
        assert!(error.contains("--seconds is for a service"), "{error}");
        let error = subject.printed().unwrap_err().to_string();
        assert!(error.contains("--seconds is for a service"), "{error}");
    }
}
