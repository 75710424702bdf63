//! The command line of `mallard export`.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result};
use mallard_profile::names;

/// Serve metrics and heap profiles of the processes on Mallard over HTTP
///
/// For Prometheus, and for continuous profilers such as Parca and Pyroscope. Serves all processes
/// that `mallard top` shows, and named heap profiles of those that sample. There is no encryption
/// and no password: anyone who can reach the address can read everything. By default, only this
/// machine can.
///
///   /metrics                      all processes, for Prometheus
///   /targets                      one target for each process (http_sd_configs of Prometheus)
///   /pid/N/metrics                one process
///   /pid/N/debug/pprof/heap       what it holds (gzipped pprof); also allocs, peak, lifetime, frag
///   …/heap?seconds=30             what changes in 30 seconds
///   /pid/N/debug/pprof/           a list of these
///   /pid/N/debug/pprof/symbol     names of addresses (POST 0x1000+0x2000)
///   /                             the same for people
///   /healthz                      whether this command serves
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, verbatim_doc_comment)]
pub struct Options {
    /// Where to listen: HOST:PORT, or :PORT for all addresses of this machine
    #[arg(short, long, value_name = "ADDR", default_value = "127.0.0.1:9700")]
    pub listen: Address,

    /// Only processes whose name or command line has this text
    #[arg(short, long = "match", value_name = "TEXT")]
    pub matching: Option<String>,

    /// Only these processes
    #[arg(short, long = "pid", value_name = "PID")]
    pub pids: Vec<u32>,

    /// Serve POST /pid/N/prof/start and /pid/N/prof/stop as well, which switch sampling in
    /// processes that were started with MALLOC_CONF=export_stats:true
    #[arg(long)]
    pub control: bool,

    /// A program or library to use for names instead of the one with its build id or name (may be
    /// repeated)
    #[arg(long = "binary", value_name = "FILE")]
    pub binaries: Vec<PathBuf>,

    /// A folder with debug files, as /usr/lib/debug is (may be repeated)
    #[arg(long = "debug", value_name = "FOLDER")]
    pub debug_folders: Vec<PathBuf>,
}

impl Options {
    /// Where names are looked for.
    pub fn names(&self) -> names::Options {
        names::Options {
            debug_folders: self.debug_folders.clone(),
            files: self.binaries.clone(),
            ..names::Options::default()
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  mallard export
  mallard export --listen :9700 --match server
  curl http://127.0.0.1:9700/metrics
  go tool pprof http://127.0.0.1:9700/pid/4711/debug/pprof/heap

The exit code is 2 if the address is not valid, and 1 if the command cannot listen on it.";

/// Where to listen, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Empty for all addresses.
    host: String,
    port: u16,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let (host, port) = text
            .rsplit_once(':')
            .ok_or("expected HOST:PORT, such as 127.0.0.1:9700, or :9700")?;
        let port = port
            .parse()
            .map_err(|_| format!("`{port}` is not a port; expected 0 to 65535"))?;
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        if inner.is_none() && host.contains(':') {
            return Err(format!("an IPv6 address needs brackets: [{host}]:{port}"));
        }
        let host = inner.unwrap_or(host).to_owned();
        Ok(Address { host, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

impl Address {
    /// Listens there.
    pub fn listen(&self) -> Result<TcpListener> {
        let listener = if self.host.is_empty() {
            // Where the system has IPv6, this one takes connections of both.
            TcpListener::bind(("::", self.port)).or_else(|error| match error.kind() {
                io::ErrorKind::AddrInUse => Err(error),
                _ => TcpListener::bind(("0.0.0.0", self.port)),
            })
        } else {
            (self.host.as_str(), self.port)
                .to_socket_addrs()
                .map(Vec::from_iter)
                .and_then(|all: Vec<SocketAddr>| TcpListener::bind(&all[..]))
        };
        listener.with_context(|| format!("cannot listen on {self}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_and_perhaps_a_host() {
        let shown = |text: &str| text.parse::<Address>().map(|address| address.to_string());
        for text in ["127.0.0.1:9700", ":9700", "[::1]:80", "localhost:0"] {
            assert_eq!(shown(text).as_deref(), Ok(text));
        }
        for text in ["9700", "localhost", "a:b", "::1:80", ":70000", ""] {
            assert!(shown(text).is_err(), "{text}");
        }
    }
}
