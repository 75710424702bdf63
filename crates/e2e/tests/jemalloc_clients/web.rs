//! The backend of a proxy: a minimal web server that a test runs in its own process, and a client
//! that requests one page. A path that ends in a number returns that many bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A web server on a port of its own, until it is dropped.
pub struct Backend {
    pub port: u16,
    requests: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Backend {
    pub fn start() -> Result<Backend, String> {
        let fail = |error| format!("cannot start the web server behind the proxy: {error}");
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(fail)?;
        let port = listener.local_addr().map_err(fail)?.port();
        let requests = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (counter, stopped) = (Arc::clone(&requests), Arc::clone(&stop));
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let counter = Arc::clone(&counter);
                // If a connection breaks off, only its thread ends.
                std::thread::spawn(move || serve(connection, &counter));
            }
        });
        Ok(Backend {
            port,
            requests,
            stop,
        })
    }

    /// The number of requests that reached it.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Answers the requests of one connection in turn.
fn serve(connection: TcpStream, counter: &AtomicUsize) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut writer = connection.try_clone()?;
    let mut reader = BufReader::new(connection);
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let mut header = String::new();
        while reader.read_line(&mut header)? > 2 {
            header.clear();
        }
        counter.fetch_add(1, Ordering::Relaxed);
        let path = request.split(' ').nth(1).unwrap_or_default();
        let size = path
            .rsplit('/')
            .next()
            .and_then(|last| last.parse().ok())
            .unwrap_or(0);
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=600\r\n\
             Content-Length: {size}\r\n\r\n"
        )
        .into_bytes();
        answer.resize(answer.len() + size, b'x');
        writer.write_all(&answer)?;
    }
}

/// The body of a page.
pub fn get(port: u16, path: &str) -> Result<String, String> {
    let fail = |error| format!("cannot get {path} from port {port}: {error}");
    let mut connection = TcpStream::connect(("127.0.0.1", port)).map_err(fail)?;
    connection
        .set_read_timeout(Some(Duration::from_secs(240)))
        .map_err(fail)?;
    write!(
        connection,
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    )
    .map_err(fail)?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).map_err(fail)?;
    let answer = String::from_utf8_lossy(&answer);
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => Err(format!("port {port} answered to {path}: {answer}")),
    }
}
