//! What the server answers. An answer goes out while it is made, so that nothing is kept, and ends
//! with the connection.

use super::request::{self, Request, Verb, wants_text};
use crate::socket::Socket;
use core::ffi::CStr;
use mallard_core::api::{
    self, profile,
    profile::{Shown, Sink, Snapshot},
};
use mallard_core::stats_print;
use mallard_core::sys::{proc, time};
use mallard_formats::metrics::Format;

/// Milliseconds in which a client has to read an answer.
const ANSWER_TIMEOUT_MS: u64 = 5000;
/// Bytes that are sent at once.
const BUFFER_BYTES: usize = 4096;

/// What there is, at `/` and `/debug/pprof/`.
const INDEX: &str = "\
/metrics
/stats
/stats.json
/debug/pprof/heap
/debug/pprof/heap?debug=1
/debug/pprof/heap?seconds=30
/debug/pprof/allocs
/debug/pprof/peak
/debug/pprof/lifetime
/debug/pprof/frag
/debug/pprof/cmdline
/debug/pprof/symbol
";

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: ";

pub struct Answer<'a> {
    client: &'a Socket,
    text: [u8; BUFFER_BYTES],
    len: usize,
    /// When the client must have read all of it.
    until_ms: u64,
    is_given_up: bool,
}

impl<'a> Answer<'a> {
    pub fn to(client: &'a Socket) -> Answer<'a> {
        Answer {
            client,
            text: [0; BUFFER_BYTES],
            len: 0,
            until_ms: time::now_ms_exact() + ANSWER_TIMEOUT_MS,
            is_given_up: false,
        }
    }

    pub fn flush(&mut self) {
        let left = self.until_ms.saturating_sub(time::now_ms_exact());
        let text = self.text.get(..self.len).unwrap_or(&[]);
        self.is_given_up = self.is_given_up || !self.client.write(text, left);
        self.len = 0;
    }

    /// Writes the head of an answer with this type of contents.
    fn head(&mut self, content_type: &str) {
        self.put(HEAD);
        self.put(content_type.as_bytes());
        self.put(b"\r\n\r\n");
    }

    /// Refuses a request, with the status and its meaning.
    pub fn refuse(&mut self, status: &str) {
        self.put(b"HTTP/1.1 ");
        self.put(status.as_bytes());
        // With this header pprof shows the text, which otherwise only says that it failed.
        self.put(b"\r\nConnection: close\r\nX-Go-Pprof: 1\r\nContent-Type: text/plain\r\n\r\n");
        self.put(status.as_bytes());
        self.put(b"\n");
    }

    /// Answers a request.
    pub fn give(&mut self, request: &Request<'_>) {
        if request.is_of_browser {
            return self.refuse("403 Forbidden");
        }
        match request.verb {
            Verb::Get => self.get(request),
            Verb::Post => self.post(request.path),
            Verb::Other => self.refuse("405 Method Not Allowed"),
        }
    }

    fn get(&mut self, request: &Request<'_>) {
        match request.path {
            b"/" | b"/debug/pprof/" | b"/debug/pprof" => self.text(INDEX.as_bytes()),
            SYMBOL => self.text(b"num_symbols: 0\n"),
            b"/metrics" => {
                let format = if request.takes_openmetrics {
                    Format::OpenMetrics
                } else {
                    Format::Text
                };
                self.print(format.content_type(), Err(format));
            }
            b"/stats" => self.print("text/plain", Ok(b"")),
            b"/stats.json" => self.print("application/json", Ok(b"J")),
            b"/debug/pprof/cmdline" => {
                self.head("text/plain");
                let mut room = [0; 256];
                proc::read(c"/proc/self/cmdline", &mut room, |piece| self.put(piece));
            }
            path => match shown(path) {
                Some(shown) => self.profile(shown, request.query),
                None => self.refuse("404 Not Found: / lists what there is"),
            },
        }
    }

    fn text(&mut self, text: &[u8]) {
        self.head("text/plain");
        self.put(text);
    }

    /// Prints the report with these letters, or metrics.
    fn print(&mut self, content_type: &str, what: Result<&[u8], Format>) {
        self.head(content_type);
        // One closure, because each has a table of addresses.
        let mut out = |text: &CStr| self.put(text.to_bytes());
        match what {
            Ok(letters) => stats_print::print(letters, &mut out),
            Err(format) => stats_print::print_metrics(format, &mut out),
        }
    }

    /// Answers with a profile of now. One of a time comes later ([`Later`]).
    fn profile(&mut self, shown: Shown, query: &[u8]) {
        if request::seconds(query) != Ok(None) {
            return self.refuse("400 Bad Request: seconds are from 1 to 3600, and without debug=1");
        }
        if !wants_text(query) {
            return self.pass(shown, None);
        }
        // The text has no other figures.
        if shown != Shown::Live && shown != Shown::Allocs {
            return self.refuse("400 Bad Request: debug=1 is for heap and allocs");
        }
        self.head("text/plain");
        let _ = profile::pass(false, self);
    }

    /// Passes a profile; with a snapshot, what has changed since.
    pub fn pass(&mut self, shown: Shown, since: Option<&Snapshot>) {
        self.head("application/octet-stream");
        // Without memory the profile ends early, which its reader notices.
        let _ = profile::pass_shown(shown, since, self);
    }

    /// Says that addresses have no names, or controls sampling, if the options allow that.
    fn post(&mut self, path: &[u8]) {
        if path == SYMBOL {
            return self.text(b"");
        }
        if !api::options().http_control {
            return self.refuse("403 Forbidden: http_control is false");
        }
        match path {
            b"/prof/start" => profile::set_active(true),
            b"/prof/stop" => profile::set_active(false),
            b"/prof/reset" => {
                let _ = profile::reset(profile::lg_sample());
            }
            _ => return self.refuse("404 Not Found"),
        }
        self.text(b"done\n");
    }
}

/// Where pprof asks for the names of addresses that it finds in no file. The process has none
/// either. An answer without a line says so; where nothing answers, pprof ends with an error.
const SYMBOL: &[u8] = b"/debug/pprof/symbol";

/// What a path under `/debug/pprof` shows.
fn shown(path: &[u8]) -> Option<Shown> {
    match path.strip_prefix(b"/debug/pprof/")? {
        b"heap" => Some(Shown::Live),
        b"allocs" => Some(Shown::Allocs),
        b"peak" => Some(Shown::Peak),
        b"lifetime" => Some(Shown::Lifetime),
        b"frag" => Some(Shown::Frag),
        _ => None,
    }
}

/// A profile of what changes from a request on, which is due at a time.
pub struct Later {
    pub at_ms: u64,
    pub shown: Shown,
    pub since: Snapshot,
}

impl Later {
    /// What a request asks for, if it is that; `None` also when memory is out.
    pub fn asked_by(request: &Request<'_>, now_ms: u64) -> Option<Later> {
        let shown = shown(request.path)?;
        let seconds = request::seconds(request.query).ok()??;
        let is_meant =
            request.verb == Verb::Get && !request.is_of_browser && !wants_text(request.query);
        Some(Later {
            at_ms: now_ms + 1000 * u64::from(seconds),
            shown,
            since: is_meant.then(profile::snapshot)??,
        })
    }
}

impl Sink for Answer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.len == BUFFER_BYTES {
                self.flush();
            }
            if let Some(slot) = self.text.get_mut(self.len) {
                *slot = byte;
                self.len += 1;
            }
        }
    }
}
