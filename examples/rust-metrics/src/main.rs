//! Serves the allocator's metrics to Prometheus through the program's own server: here one of the
//! standard library, with a thread for each client.
//!
//! ```console
//! $ cargo run --release -- 127.0.0.1:9701 &
//! $ curl http://127.0.0.1:9701/metrics
//! ```

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mallard::Mallard = mallard::Mallard;

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1);
    let server = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    println!("http://{}/metrics", server.local_addr()?);
    // What the program is there for.
    let work = vec![1u8; 3 << 20];
    for client in server.incoming() {
        let client = client?;
        std::thread::spawn(|| answer(client));
    }
    drop(work);
    Ok(())
}

fn answer(mut client: TcpStream) -> io::Result<()> {
    // A client that says nothing is not waited for.
    client.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut lines = BufReader::new(client.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    if !request.starts_with("GET /metrics ") {
        return client.write_all(
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
    }
    let figures = mallard::metrics();
    eprintln!(
        "{} bytes allocated, {} resident",
        figures.allocated(),
        figures.resident()
    );
    let body = figures.to_string();
    write!(
        client,
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\
         Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n\r\n{body}",
        body.len()
    )
}
