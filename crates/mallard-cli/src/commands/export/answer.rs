//! Requests and answers, without the connection.

use hyper::StatusCode;
use hyper::header::HeaderValue;

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    pub is_post: bool,
    /// GET, HEAD or POST.
    pub is_known: bool,
    pub path: String,
    pub query: String,
    /// The forms that the client takes.
    pub accept: String,
    /// How the client calls this server.
    pub host: Option<String>,
    /// Whether a page in a browser asks.
    pub is_of_a_page: bool,
    /// What a POST to [`SYMBOL`] carries.
    pub body: String,
}

/// The longest time that a profile may cover.
pub const SECONDS_MAX: u64 = 3600;

/// How paths end that answer with names of addresses.
pub const SYMBOL: &str = "/debug/pprof/symbol";

impl Question {
    /// Whether this takes long.
    pub fn is_profile(&self) -> bool {
        self.path.contains("/debug/pprof/") && !self.path.ends_with('/')
    }

    /// How many seconds the query asks for (`seconds=N`), if any. `None` for a number that is none
    /// or too large.
    pub fn seconds(&self) -> Option<Option<u64>> {
        let mut words = self.query.split('&');
        let Some(text) = words.find_map(|word| word.strip_prefix("seconds=")) else {
            return Some(None);
        };
        let seconds = text.parse().ok()?;
        (1..=SECONDS_MAX)
            .contains(&seconds)
            .then_some(Some(seconds))
    }

    /// Whether the query has this word.
    pub fn has(&self, word: &str) -> bool {
        let words = self.query.split('&');
        words
            .map(|part| part.split_once('=').map_or(part, |(name, _)| name))
            .any(|name| name == word)
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub content_type: HeaderValue,
    pub allow: Option<HeaderValue>,
    pub body: Vec<u8>,
}

pub const PLAIN: &str = "text/plain; charset=utf-8";
pub const HTML: &str = "text/html; charset=utf-8";

impl Reply {
    pub fn of(content_type: &'static str, body: impl Into<Vec<u8>>) -> Reply {
        Reply {
            status: StatusCode::OK,
            content_type: HeaderValue::from_static(content_type),
            allow: None,
            body: body.into(),
        }
    }

    /// One line that says why not.
    pub fn failure(status: StatusCode, why: impl std::fmt::Display) -> Reply {
        Reply {
            status,
            ..Reply::of(PLAIN, format!("{why}\n"))
        }
    }

    pub fn not_found(why: impl std::fmt::Display) -> Reply {
        Reply::failure(StatusCode::NOT_FOUND, why)
    }

    /// The path is for another method.
    pub fn other_method(allowed: &'static str) -> Reply {
        Reply {
            allow: Some(HeaderValue::from_static(allowed)),
            ..Reply::failure(
                StatusCode::METHOD_NOT_ALLOWED,
                format_args!("this path takes {allowed}"),
            )
        }
    }
}
