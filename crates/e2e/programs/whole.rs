//! A Rust program whose blocks come from many places: collections, closures, threads, and a panic
//! that unwinds. Its stacks have to be whole (tests/profiles).

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc;
use std::thread;

trait Shape {
    fn name(&self, n: usize) -> String;
}

struct Square;
struct Circle(usize);

impl Shape for Square {
    fn name(&self, n: usize) -> String {
        "s".repeat(20 + n % 50)
    }
}

impl Shape for Circle {
    fn name(&self, n: usize) -> String {
        format!("{:>40}", self.0 * n)
    }
}

fn deep(n: usize) -> Vec<usize> {
    if n == 0 {
        panic!("the bottom");
    }
    let mut below = deep(n - 1);
    below.push(n);
    below
}

fn work(seed: usize) -> usize {
    let mut words = BTreeMap::new();
    let mut counts: HashMap<String, usize> = HashMap::new();
    let mut shapes: Vec<Box<dyn Shape>> = Vec::new();
    for i in 0..3000 {
        let word = ((i * 7919 + seed) % 997).to_string();
        *counts.entry(word.clone()).or_default() += 1;
        words.insert(word, i);
        shapes.push(if i % 2 == 0 { Box::new(Square) } else { Box::new(Circle(i)) });
    }
    let mut names: Vec<String> = shapes.iter().enumerate().map(|(n, s)| s.name(n)).collect();
    names.sort_by_key(|name| name.chars().rev().collect::<String>());
    let failed = std::panic::catch_unwind(|| deep(30)).is_err();
    names.len() + words.len() + counts.len() + usize::from(failed)
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let (sender, receiver) = mpsc::channel();
    for i in 0..3 {
        let sender = sender.clone();
        thread::spawn(move || sender.send(work(i)).unwrap());
    }
    drop(sender);
    println!("{}", work(99) + receiver.iter().sum::<usize>());
}
