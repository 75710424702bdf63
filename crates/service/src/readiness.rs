//! When a server is ready for its load.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use regex_lite::Regex;

use crate::command;
use crate::words::{Placeholders, Words};

/// The sign of a server that is ready.
#[derive(Debug, Clone)]
pub enum Ready {
    /// It accepts connections at this address.
    Tcp(String),
    /// It accepts connections at this Unix socket.
    Socket(String),
    /// Its output has this.
    Log(Regex),
    /// The command succeeds, and its output has this.
    Command {
        command: Words,
        expect: Option<Regex>,
    },
}

impl Ready {
    /// Whether the sign is there. A command has these variables, and `left` to answer in; `log`
    /// reads what the server has written so far.
    pub fn is_there(
        &self,
        place: &Placeholders,
        variables: &[(String, String)],
        left: Duration,
        log: impl Fn() -> String,
    ) -> bool {
        match self {
            Ready::Tcp(address) => TcpStream::connect(place.fill(address)).is_ok(),
            Ready::Socket(socket) => UnixStream::connect(place.fill(socket)).is_ok(),
            Ready::Log(regex) => regex.is_match(&log()),
            Ready::Command { command, expect } => command::run(command, place, variables, left)
                .is_ok_and(|ended| {
                    let said = &ended.stdout;
                    let as_expected = expect.as_ref().is_none_or(|regex| regex.is_match(said));
                    ended.status.is_some_and(|status| status.success()) && as_expected
                }),
        }
    }

    /// What is waited for, for messages.
    pub fn shown(&self, place: &Placeholders) -> String {
        match self {
            Ready::Tcp(address) => {
                format!("it does not accept connections at {}", place.fill(address))
            }
            Ready::Socket(path) => {
                format!("it does not accept connections at {}", place.fill(path))
            }
            Ready::Log(regex) => format!("its output does not have '{regex}'"),
            Ready::Command { command, expect } => match expect {
                Some(regex) => format!("'{}' does not answer '{regex}'", command.shown()),
                None => format!("'{}' does not succeed", command.shown()),
            },
        }
    }
}
