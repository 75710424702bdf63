//! What a client asks: the head of a request of HTTP/1, as far as this server cares.

/// What is known of a request so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed<'a> {
    /// The end of the head has not come yet.
    More,
    /// The text is no request.
    Bad,
    Whole(Request<'a>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    pub verb: Verb,
    pub path: &'a [u8],
    /// What follows a question mark; empty if there is none.
    pub query: &'a [u8],
    /// Whether the client understands OpenMetrics.
    pub takes_openmetrics: bool,
    /// Whether a page of some site made a browser send it.
    pub is_of_browser: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    Get,
    Post,
    Other,
}

/// Reads the head of a request out of what has come so far.
pub fn parse(text: &[u8]) -> Parsed<'_> {
    let mut lines = Lines(text);
    let Some(first) = lines.next() else {
        return Parsed::More;
    };
    let Some(mut request) = first_line(first) else {
        return Parsed::Bad;
    };
    loop {
        let Some(line) = lines.next() else {
            return Parsed::More;
        };
        if line.is_empty() {
            return Parsed::Whole(request);
        }
        let Some((name, value)) = cut(line, b':') else {
            return Parsed::Bad;
        };
        if name.eq_ignore_ascii_case(b"accept") {
            let wanted = b"application/openmetrics-text";
            request.takes_openmetrics |= has(value, wanted);
        } else if name.eq_ignore_ascii_case(b"origin") {
            request.is_of_browser = true;
        }
    }
}

fn first_line(line: &[u8]) -> Option<Request<'_>> {
    let (verb, rest) = cut(line, b' ')?;
    let (target, version) = cut(rest, b' ')?;
    let (path, query) = cut(target, b'?').unwrap_or((target, &[]));
    let is_printable = target.iter().all(|byte| (b'!'..=b'~').contains(byte));
    let is_http = version.starts_with(b"HTTP/1.") && path.starts_with(b"/");
    (is_printable && is_http).then_some(Request {
        verb: match verb {
            b"GET" => Verb::Get,
            b"POST" => Verb::Post,
            _ => Verb::Other,
        },
        path,
        query,
        takes_openmetrics: false,
        is_of_browser: false,
    })
}

/// Whole lines, without their ends.
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (line, rest) = cut(self.0, b'\n')?;
        self.0 = rest;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

/// What is before and after the first `mark`.
fn cut(text: &[u8], mark: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&byte| byte == mark)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Whether a query asks for text (`debug=N`, where `N` is not 0).
pub fn wants_text(query: &[u8]) -> bool {
    let mut items = query.split(|&byte| byte == b'&');
    let level = items.find_map(|item| item.strip_prefix(b"debug="));
    level.is_some_and(|level| level != b"" && level != b"0")
}

/// The longest time that a query may ask for, in seconds.
pub const SECONDS_MAX: u32 = 3600;

/// How many seconds a query asks for (`seconds=N`): none, from 1 to [`SECONDS_MAX`], or an error.
pub fn seconds(query: &[u8]) -> Result<Option<u32>, ()> {
    let mut items = query.split(|&byte| byte == b'&');
    let Some(digits) = items.find_map(|item| item.strip_prefix(b"seconds=")) else {
        return Ok(None);
    };
    let mut sum = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        sum = sum * 10 + u32::from(digit);
        if digit > 9 || sum > SECONDS_MAX {
            return Err(());
        }
    }
    if sum == 0 { Err(()) } else { Ok(Some(sum)) }
}

#[cfg(test)]
#[path = "checks.rs"]
mod checks;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SCRAPE: &[u8] = b"GET /metrics?a=1&b HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text;version=1.0.0,text/plain\r\n\r\n";

    #[test]
    fn a_scrape_is_understood() {
        let request = Request {
            verb: Verb::Get,
            path: b"/metrics",
            query: b"a=1&b",
            takes_openmetrics: true,
            is_of_browser: false,
        };
        assert_eq!(parse(SCRAPE), Parsed::Whole(request));
    }

    #[test]
    fn a_query_asks_for_text_by_a_level_above_zero() {
        for (query, expected) in [
            ("", false),
            ("gc=1", false),
            ("debug", false),
            ("debug=", false),
            ("debug=0&gc=1", false),
            ("debug=1", true),
            ("gc=1&debug=2", true),
        ] {
            assert_eq!(wants_text(query.as_bytes()), expected, "{query}");
        }
    }

    #[test]
    fn a_request_is_whole_with_its_last_byte_and_not_before() {
        for n in 0..SCRAPE.len() {
            assert_eq!(parse(&SCRAPE[..n]), Parsed::More, "{n} bytes");
        }
    }

    #[test]
    fn what_is_no_request_is_told_at_its_first_line() {
        for text in [
            "\r\n",
            "GET\r\n",
            "GET / \r\n",
            "GET / HTTP/2\r\n",
            "GET metrics HTTP/1.1\r\n",
            "GET /\x01 HTTP/1.1\r\n",
            "\x16\x03\x01\x02\n",
            "GET / HTTP/1.1\r\nno colon\r\n",
        ] {
            assert_eq!(parse(text.as_bytes()), Parsed::Bad, "{text:?}");
        }
    }

    #[test]
    fn a_time_has_its_bounds() {
        for (query, expected) in [
            ("", Ok(None)),
            ("debug=1", Ok(None)),
            ("debug=1&seconds=30", Ok(Some(30))),
            ("seconds=3600", Ok(Some(3600))),
            ("seconds=3601", Err(())),
            ("seconds=0", Err(())),
            ("seconds=", Err(())),
            ("seconds=-1", Err(())),
            ("seconds=99999999999999999999", Err(())),
        ] {
            assert_eq!(seconds(query.as_bytes()), expected, "{query}");
        }
    }

    #[test]
    fn a_browser_says_where_its_page_is_from() {
        let text = b"POST /prof/start HTTP/1.1\nORIGIN: http://evil\n\n";
        let Parsed::Whole(request) = parse(text) else {
            panic!("whole");
        };
        assert!(request.is_of_browser && request.verb == Verb::Post);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_fault(text in prop::collection::vec(any::<u8>(), 0..600)) {
            super::checks::request(&text);
        }

        #[test]
        fn nearly_requests_are_read_without_a_fault(
            at in 0..SCRAPE.len(), byte in any::<u8>(), cut in 0..SCRAPE.len(), more in "[\r\n: a-z]{0,40}",
        ) {
            let mut text = SCRAPE.to_vec();
            text[at] = byte;
            text.truncate(cut);
            text.extend(more.as_bytes());
            super::checks::request(&text);
        }
    }
}
