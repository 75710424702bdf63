//! A Rust program on Mallard that profiles a part of its run: which function holds the memory that
//! the part leaves behind. Sampling is off before and after, and costs nothing then.
//!
//! ```console
//! $ cargo run --release --bin profile -- session.heap
//! $ mallard profile session.heap
//! ```

use std::ffi::CString;
use std::process::ExitCode;

use mallard::profile;

#[global_allocator]
static ALLOCATOR: mallard::Mallard = mallard::Mallard;

fn main() -> ExitCode {
    let file = std::env::args().nth(1).unwrap_or("session.heap".into());
    let Ok(name) = CString::new(file.as_str()) else {
        eprintln!("a file's name has no zero in it");
        return ExitCode::FAILURE;
    };
    profile::start();
    let sessions = open_sessions();
    serve();
    // On failure, a line on standard error has said why.
    let written = profile::dump(Some(&name));
    profile::stop();
    drop(sessions);
    if written.is_err() {
        return ExitCode::FAILURE;
    }
    println!("wrote {file}");
    ExitCode::SUCCESS
}

/// These stay.
#[inline(never)]
fn open_sessions() -> Vec<Box<[u8]>> {
    let mut sessions = Vec::with_capacity(20_000);
    for _ in 0..20_000 {
        sessions.push(vec![b's'; 1000].into_boxed_slice());
    }
    sessions
}

/// These are freed at once.
#[inline(never)]
fn serve() {
    for _ in 0..200_000 {
        drop(std::hint::black_box(vec![b'a'; 500]));
    }
}
