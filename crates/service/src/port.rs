//! Ports for servers.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::TcpListener;

/// The first port for servers.
const FIRST_PORT: u16 = 10_000;
/// The first port that Linux gives to connections, where it does not say.
const FIRST_GIVEN_PORT: u16 = 32_768;
/// Ports that are tried, one after the other.
const TRIED_MAX: usize = 100;

/// A port at which nothing listens now. If possible it is none of those that the system gives to
/// connections, as one of these may begin before the server listens.
pub fn free_port() -> Result<u16, String> {
    let given = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    // Elsewhere in each call: several such commands may run at a time.
    let random = RandomState::new().build_hasher().finish();
    let port = candidates(&given, random).find_map(|port| listen(port).ok());
    port.map_or_else(|| listen(0), Ok)
        .map_err(|error| format!("there is no free port: {error}"))
}

/// The ports to try, from a random one on, before the range that the system gives to connections.
fn candidates(given: &str, random: u64) -> impl Iterator<Item = u16> {
    let first_given = given.split_whitespace().next().map(str::parse);
    let first_given = first_given.and_then(Result::ok).unwrap_or(FIRST_GIVEN_PORT);
    let ports = FIRST_PORT..first_given;
    let count = ports.len().max(1);
    let from = random as usize % count;
    let from_there = ports.clone().skip(from).chain(ports.take(from));
    from_there.take(TRIED_MAX)
}

/// Listens for a moment; returns the port.
fn listen(port: u16) -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", port))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_lie_before_those_of_connections() {
        let ports = |given, random| candidates(given, random).collect::<Vec<_>>();
        assert_eq!(ports("10003\t60999\n", 4), [10_001, 10_002, 10_000]);
        assert!(ports("1024 65535", 7).is_empty());
        assert_eq!(ports("", 7)[0], 10_007);
        assert_eq!(ports("", u64::MAX).len(), TRIED_MAX);
    }

    #[test]
    fn a_port_that_is_taken_is_not_free() {
        let port = free_port().unwrap();
        let held = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let taken = held.local_addr().unwrap().port();
        assert!(port != 0 && listen(taken).is_err());
    }
}
