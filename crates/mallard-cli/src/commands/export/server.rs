//! HTTP: takes connections and lets [`Site`] answer.
//!
//! One thread runs all connections, and a few more make the answers. A client can cost no more than
//! its connection: there are [`CONNECTIONS_MAX`] at once, each with one request, whose head must
//! come within [`HEAD_TIMEOUT`] and whose answer must be taken within [`CONNECTION_TIMEOUT`].
//! Further clients wait in the system's queue.

use std::convert::Infallible;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HOST, HeaderValue, ORIGIN};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task;
use tokio::time::{sleep, timeout};

use super::answer::{Question, Reply, SYMBOL};
use super::site::Site;

const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of what a request carries: 50,000 addresses.
const BODY_BYTES_MAX: usize = 1 << 20;
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Threads that make answers.
const ANSWER_THREADS_MAX: usize = 8;
/// Profiles that are read and get names at the same time; further requests wait.
const PROFILES_MAX: usize = 2;
/// The pause after a failure to take a connection: there may be too many open files.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Serves until the process is ended.
///
/// # Errors
/// The system has no threads or no files left at the beginning.
pub fn serve(listener: TcpListener, site: Site) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(ANSWER_THREADS_MAX)
        .build()
        .context("cannot start to serve")?;
    runtime.block_on(accept(listener, Arc::new(site)))
}

async fn accept(listener: TcpListener, site: Arc<Site>) -> Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let profiles = Arc::new(Semaphore::new(PROFILES_MAX));
    loop {
        let place = Arc::clone(&room).acquire_owned().await?;
        let Ok((stream, _)) = listener.accept().await else {
            sleep(RETRY_INTERVAL).await;
            continue;
        };
        let (site, profiles) = (Arc::clone(&site), Arc::clone(&profiles));
        task::spawn(async move {
            let waits = Arc::new(AtomicU64::new(0));
            let served = connection(stream, site, profiles, Arc::clone(&waits));
            // A client that is too slow is the client's failure.
            in_time(served, &waits).await;
            drop(place);
        });
    }
}

/// Serves a connection for the time that it may take, which grows by the seconds that it asks for.
async fn in_time(served: impl Future<Output = ()>, waits: &AtomicU64) {
    let (mut served, begun) = (pin!(served), Instant::now());
    let mut allowed = CONNECTION_TIMEOUT;
    while timeout(allowed.saturating_sub(begun.elapsed()), served.as_mut())
        .await
        .is_err()
    {
        let longer = CONNECTION_TIMEOUT + Duration::from_secs(waits.load(Ordering::Relaxed));
        if longer == allowed {
            return;
        }
        allowed = longer;
    }
}

async fn connection(
    stream: TcpStream,
    site: Arc<Site>,
    profiles: Arc<Semaphore>,
    waits: Arc<AtomicU64>,
) {
    let service = service_fn(move |request| {
        let (site, profiles, waits) =
            (Arc::clone(&site), Arc::clone(&profiles), Arc::clone(&waits));
        async move { Ok::<_, Infallible>(respond(request, site, &profiles, &waits).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    // The client went away or spoke another language: nothing can be reported to it.
    drop(served);
}

async fn respond(
    request: Request<Incoming>,
    site: Arc<Site>,
    profiles: &Semaphore,
    waits: &AtomicU64,
) -> Response<Full<Bytes>> {
    let Some(question) = question(request).await else {
        let why = format!("the body is longer than {BODY_BYTES_MAX} bytes, or no text");
        return response(Reply::failure(StatusCode::PAYLOAD_TOO_LARGE, why));
    };
    let question = Arc::new(question);
    let of_profiles = question.is_profile().then_some(profiles);
    let mut before = None;
    if let (Some(_), Some(Some(seconds))) = (of_profiles, question.seconds()) {
        let (site, question) = (Arc::clone(&site), Arc::clone(&question));
        before = match made(of_profiles, move || site.begin(&question)).await {
            Ok(Some(Ok(before))) => Some(before),
            Ok(Some(Err(refusal))) | Err(refusal) => return response(refusal),
            Ok(None) => None,
        };
        if before.is_some() {
            waits.store(seconds, Ordering::Relaxed);
            sleep(Duration::from_secs(seconds)).await;
        }
    }
    let answer = made(of_profiles, move || site.answer(&question, before.as_ref())).await;
    response(answer.unwrap_or_else(|failure| failure))
}

/// Makes a part of an answer on a thread for that, when there is room if it takes long.
async fn made<T: Send + 'static>(
    room: Option<&Semaphore>,
    make: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Reply> {
    let place = match room {
        Some(room) => room.acquire().await.ok(),
        None => None,
    };
    let made = task::spawn_blocking(make).await;
    drop(place);
    made.map_err(|_| {
        Reply::failure(
            StatusCode::INTERNAL_SERVER_ERROR,
            "this request cannot be answered",
        )
    })
}

/// What an answer depends on; `None` if it carries too much.
async fn question(request: Request<Incoming>) -> Option<Question> {
    let header = |name| {
        let value = request.headers().get(name)?.to_str().ok()?;
        Some(value.to_owned())
    };
    let mut question = Question {
        is_post: request.method() == Method::POST,
        is_known: matches!(*request.method(), Method::GET | Method::HEAD | Method::POST),
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        accept: header(ACCEPT).unwrap_or_default(),
        host: header(HOST),
        is_of_a_page: request.headers().contains_key(ORIGIN),
        body: String::new(),
    };
    if question.is_post && question.path.ends_with(SYMBOL) {
        let body = Limited::new(request.into_body(), BODY_BYTES_MAX)
            .collect()
            .await;
        question.body = String::from_utf8(body.ok()?.to_bytes().into()).ok()?;
    }
    Some(question)
}

fn response(answer: Reply) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(answer.body)));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, answer.content_type);
    if !answer.status.is_success() {
        // With this header pprof shows the text, which otherwise only says that it failed.
        headers.insert("x-go-pprof", HeaderValue::from_static("1"));
    }
    if let Some(allowed) = answer.allow {
        headers.insert(ALLOW, allowed);
    }
    response
}
