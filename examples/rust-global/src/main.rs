//! A Rust program on Mallard, which takes just one static. It does not need Mallard's C library,
//! and C code that it links keeps glibc's malloc.
//!
//! ```console
//! $ cargo run --release
//! ```

use std::collections::BTreeMap;

#[global_allocator]
static ALLOCATOR: mallard::Mallard = mallard::Mallard;

fn main() {
    let counts: Vec<BTreeMap<String, usize>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|part| scope.spawn(move || count(part)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"))
            .collect()
    });
    let mut total = BTreeMap::new();
    for (word, count) in counts.into_iter().flatten() {
        *total.entry(word).or_insert(0) += count;
    }
    println!(
        "{} words, {} times",
        total.len(),
        total.values().sum::<usize>()
    );

    let mut buffer = vec![0u8; 1 << 20];
    buffer.resize(64 << 20, 1);
    println!("{} bytes", buffer.len());
    // Only Mallard's own blocks have an arena.
    let is_ours = mallard::arena_of(buffer.as_ptr()).is_some();
    println!("on Mallard: {is_ours}");
}

fn count(part: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for number in 0..50_000 {
        *counts
            .entry(format!("word-{}", number * (part + 1) % 9973))
            .or_insert(0) += 1;
    }
    counts
}
