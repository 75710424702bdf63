//! Processes as lines of JSON. The names stay; further ones may be added.

use mallard_inspect::snapshot::{Arena, Class, Lock};
use serde_json::{Map, Value, json};

use crate::processes::row::Row;

/// A process on one line.
pub fn line(row: &Row) -> String {
    let snapshot = &row.snapshot;
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("pid", row.pid().into());
    put("name", row.about.name.clone().into());
    put("command", row.command.clone().into());
    put("state", row.about.state.to_string().into());
    let version = snapshot.version.map(|part| part.to_string()).join(".");
    put("version", version.into());
    put("uptime_seconds", snapshot.uptime.as_secs_f64().into());
    put("age_seconds", snapshot.age.as_secs_f64().into());
    put("cpu_seconds_since", row.cpu.as_secs_f64().into());
    put("publications", snapshot.count.into());
    put("takes_requests", row.is_shared.into());
    put("rss", row.rss.into());
    for (name, value) in snapshot.totals.each() {
        // Milliseconds may be -1.
        let value = if name.ends_with("decay_ms") {
            (value as i64).into()
        } else {
            value.into()
        };
        put(name, value);
    }
    put("fragmentation", snapshot.totals.fragmentation().into());
    put(
        "taken_per_second",
        row.rates.map(|rates| rates.taken).into(),
    );
    put(
        "returned_per_second",
        row.rates.map(|rates| rates.returned).into(),
    );
    put("classes", snapshot.classes.iter().map(class).collect());
    put("arena_rows", snapshot.arenas.iter().map(arena).collect());
    put("locks", snapshot.locks.iter().map(lock).collect());
    Value::Object(object).to_string()
}

fn class(class: &Class) -> Value {
    json!({
        "size": class.size,
        "allocated": class.allocated,
        "blocks": class.blocks,
        "thread_cached": class.thread_cached,
        "transfer_cached": class.transfer_cached,
        "pages": class.pages,
        "utilization": class.utilization(),
        "taken": class.taken,
        "given": class.given,
    })
}

fn arena(arena: &Arena) -> Value {
    json!({
        "number": arena.number,
        "threads": arena.threads,
        "taken": arena.taken,
        "transfer_cached": arena.transfer_cached,
        "pages": arena.pages,
        "heap": arena.heap,
        "dirty": arena.dirty,
        "muzzy": arena.muzzy,
    })
}

fn lock(lock: &Lock) -> Value {
    json!({
        "name": lock.name,
        "taken": lock.taken,
        "waits": lock.waits,
        "waited_ns": lock.waited_ns,
        "longest_ns": lock.longest_ns,
    })
}
