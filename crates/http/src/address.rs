//! Where the server listens, as the option `http` says it.

use crate::socket::Address;
use mallard_core::sys::proc;

/// The longest name of a socket.
const NAME_BYTES_MAX: usize = 107;
const LOOPBACK: [u8; 4] = [127, 0, 0, 1];

/// What the option can be, for a message.
pub const VALID: &str = "PORT, ADDRESS:PORT, unix:PATH or @NAME";

/// The address; `None` if it is none.
pub fn parse(text: &[u8], process: u32) -> Option<Address> {
    if let Some(path) = text.strip_prefix(b"unix:") {
        let mut name = Name::new();
        name.expand(path, process);
        return name.address();
    }
    if let [b'@', rest @ ..] = text {
        let mut name = Name::new();
        name.push(0);
        name.expand(rest, process);
        return name.address();
    }
    let colon = text.iter().rposition(|&byte| byte == b':');
    let (host, port) = match colon {
        Some(at) => (text.get(..at)?, text.get(at + 1..)?),
        None => (&b""[..], text),
    };
    let port = u16::try_from(proc::number(port, 10)?).ok()?;
    let host = match host {
        b"" | b"localhost" => LOOPBACK,
        host => four(host)?,
    };
    (port > 0).then(|| Address::ip(host, port))
}

/// Whether each process has an address of its own.
pub fn is_of_one_process(text: &[u8]) -> bool {
    text.windows(2).any(|two| two == b"%p")
}

/// The name that tells a family that the address is taken.
pub fn mark(text: &[u8]) -> Option<Address> {
    let mut name = Name::new();
    name.expand(b"\0mallard.http:", 0);
    name.expand(text, 0);
    name.address()
}

/// The file with the variables that a process was started with; a C string.
pub fn environment_of(process: u32) -> [u8; NAME_BYTES_MAX] {
    let mut name = Name::new();
    name.expand(b"/proc/%p/environ", process);
    name.bytes
}

fn four(host: &[u8]) -> Option<[u8; 4]> {
    let (mut four, mut parts) = ([0; 4], host.split(|&byte| byte == b'.'));
    for slot in &mut four {
        *slot = u8::try_from(proc::number(parts.next()?, 10)?).ok()?;
    }
    parts.next().is_none().then_some(four)
}

/// The name of a socket under construction.
struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    len: usize,
}

impl Name {
    fn new() -> Name {
        Name {
            bytes: [0; NAME_BYTES_MAX],
            len: 0,
        }
    }

    fn push(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.len) {
            *slot = byte;
        }
        self.len += 1;
    }

    fn expand(&mut self, text: &[u8], process: u32) {
        let mut rest = text;
        while let [byte, behind @ ..] = rest {
            if let [b'%', b'p', behind @ ..] = rest {
                self.number(process);
                rest = behind;
                continue;
            }
            self.push(*byte);
            rest = behind;
        }
    }

    fn number(&mut self, n: u32) {
        if n >= 10 {
            self.number(n / 10);
        }
        self.push(b'0' + (n % 10) as u8);
    }

    #[inline(always)]
    fn address(&self) -> Option<Address> {
        Address::unix(self.bytes.get(..self.len)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_of_the_own_machine_unless_written_otherwise() {
        for text in ["6060", ":6060", "localhost:6060", "127.0.0.1:6060"] {
            let address = Address::ip([127, 0, 0, 1], 6060);
            assert_eq!(parse(text.as_bytes(), 7), Some(address), "{text}");
        }
        assert_eq!(parse(b"0.0.0.0:80", 7), Some(Address::ip([0; 4], 80)));
        for text in [
            "",
            "0",
            "65536",
            "x:80",
            "1.2.3:80",
            "1.2.3.4.5:80",
            "1.2.3.256:80",
            "1.2.3.4:",
            "[::1]:80",
        ] {
            assert_eq!(parse(text.as_bytes(), 7), None, "{text}");
        }
    }

    #[test]
    fn names_have_the_process_in_them_and_a_limit() {
        for (text, name) in [
            ("unix:/run/%p-%p.s", "/run/4711-4711.s"),
            ("unix:/a%b%", "/a%b%"),
            ("@mallard.%p", "\0mallard.4711"),
        ] {
            let address = Address::unix(name.as_bytes());
            assert!(address.is_some());
            assert_eq!(parse(text.as_bytes(), 4711), address, "{text}");
        }
        let long = |n| parse(format!("unix:/{}", "x".repeat(n)).as_bytes(), 7);
        assert!(long(106).is_some() && long(107).is_none());
        assert_eq!((parse(b"unix:", 7), parse(b"@", 7)), (None, None));
        assert!(is_of_one_process(b"@a.%p") && !is_of_one_process(b"@a.p%"));
    }

    proptest! {
        #[test]
        fn any_text_is_an_address_or_none(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&text, 1);
        }
    }
}
