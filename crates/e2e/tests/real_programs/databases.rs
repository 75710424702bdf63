//! Databases: sqlite in one process, and redis as a server that runs a benchmark, forks to save
//! while it serves, and shuts down.

use std::os::unix::net::UnixStream;
use std::process::{Child, Command};

use mallard_e2e::Sandbox;
use mallard_e2e::service::poll;

use crate::{Case, Transcript, piece};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "sqlite3",
            needs: &["sqlite3"],
            served: &["sqlite3"],
            own_allocator: &[],
            run: sqlite3,
        },
        Case {
            name: "redis",
            needs: &["redis-server", "redis-benchmark", "redis-cli"],
            served: &["redis-server", "redis-benchmark", "redis-cli"],
            own_allocator: &[],
            run: redis,
        },
    ]
}

const SQL: &str = r#"
PRAGMA journal_mode = MEMORY;
PRAGMA cache_size = -20000;
PRAGMA threads = 4;
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL, tags TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
  INSERT INTO item SELECT i, printf('item-%x', i * 7919 % 120011), (i * 37 % 1000) / 10.0,
    json_array(i % 7, printf('t%d', i % 13), hex(i * 31)) FROM n;
CREATE INDEX item_name ON item(name);
CREATE INDEX item_price ON item(price, name);
CREATE TABLE sale AS SELECT id AS item, id % 365 AS day, id * 17 % 97 AS amount FROM item WHERE id % 3 <> 0;
SELECT count(*), sum(amount), max(name) FROM sale JOIN item ON item.id = sale.item;
SELECT day, sum(amount * price), group_concat(substr(name, 6, 2), '') FROM sale JOIN item ON item.id = sale.item
  WHERE day < 20 GROUP BY day ORDER BY day;
SELECT name, price, rank() OVER (PARTITION BY id % 5 ORDER BY price DESC, name) AS r FROM item WHERE id < 10000
  ORDER BY r, name LIMIT 50;
SELECT json_extract(tags, '$[1]') AS tag, count(*), sum(length(tags)) FROM item GROUP BY tag ORDER BY tag;
UPDATE item SET name = name || '-' || upper(hex(price)), tags = json_insert(tags, '$[3]', name) WHERE id % 2 = 0;
DELETE FROM item WHERE price < 20 AND id % 5 = 0;
CREATE TABLE blobs (b BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
  INSERT INTO blobs SELECT zeroblob(i * 1000) FROM n;
SELECT sum(length(b)), length(hex(max(b))) FROM blobs;
VACUUM;
PRAGMA integrity_check;
.dump
"#;

fn sqlite3(sandbox: &Sandbox) -> Result<Transcript, String> {
    let output = sandbox.run_with_input(
        sandbox
            .command("sqlite3")
            .args(["-batch", "-bail", "work.db"]),
        SQL.as_bytes(),
    )?;
    Ok(vec![
        piece("the output", output.stdout),
        piece("the error output", output.stderr),
    ])
}

/// A server that is killed if a test gives up on it.
struct Server {
    process: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const REDIS_CONF: &str = "port 0\nunixsocket redis.sock\nsave \"\"\ndaemonize no\nlogfile redis.log\n\
                          enable-debug-command yes\nlazyfree-lazy-user-del yes\n\
                          lazyfree-lazy-user-flush yes\nappendonly no\n";

/// Fills the store with every type, from a script inside the server.
const FILL: &str = "for i = 1, 30000 do \
    local k = i % 3000; \
    redis.call('SET', 'string:' .. i, string.rep('v' .. i, i % 60)); \
    redis.call('HSET', 'hash:' .. k, 'field' .. i, string.rep('h', i % 300)); \
    redis.call('RPUSH', 'list:' .. k % 50, 'element' .. i); \
    redis.call('SADD', 'set:' .. k % 70, i * 7919); \
    redis.call('ZADD', 'sorted:' .. k % 40, i * 31 % 977, 'member' .. i); \
    redis.call('XADD', 'stream:' .. k % 10, i .. '-1', 'f', i); \
    if i % 3 == 0 then redis.call('UNLINK', 'string:' .. (i / 3)) end \
  end return redis.call('DBSIZE')";

fn redis(sandbox: &Sandbox) -> Result<Transcript, String> {
    let config = sandbox.write("redis.conf", REDIS_CONF);
    let mut start = sandbox.command("redis-server");
    let process = start
        .arg(config)
        .spawn()
        .map_err(|error| format!("cannot start redis-server: {error}"))?;
    let mut server = Server { process };
    await_socket(sandbox, &mut server)?;

    let filled = cli(sandbox, &["EVAL", FILL, "0"])?;
    // Without random keys, the benchmark leaves a deterministic state.
    benchmark(
        sandbox,
        &[
            "-n",
            "10000",
            "-c",
            "30",
            "-d",
            "200",
            "-t",
            "set,get,incr,lpush,rpush,sadd,hset,zadd,mset",
        ],
    )?;
    let before_save = cli(sandbox, &["DEBUG", "DIGEST"])?;
    // BGSAVE's child writes the store while the parent goes on allocating.
    cli(sandbox, &["BGSAVE"])?;
    benchmark(
        sandbox,
        &[
            "-n",
            "15000",
            "-c",
            "30",
            "-P",
            "8",
            "-r",
            "5000",
            "--dbnum",
            "1",
            "-t",
            "set,lpush,lpop,sadd,hset,zadd",
        ],
    )?;
    await_save(sandbox)?;
    cli(sandbox, &["-n", "1", "FLUSHDB", "ASYNC"])?;
    cli(sandbox, &["SAVE"])?;
    cli(sandbox, &["DEBUG", "RELOAD"])?;
    let after_reload = cli(sandbox, &["DEBUG", "DIGEST"])?;
    if before_save != after_reload {
        return Err(format!(
            "the store changed by saving and loading: {before_save} became {after_reload}"
        ));
    }
    if !cli(sandbox, &["INFO", "persistence"])?.contains("rdb_last_bgsave_status:ok") {
        return Err("the child of BGSAVE failed".to_owned());
    }
    let _ = cli(sandbox, &["SHUTDOWN", "NOSAVE"]);
    await_end(&mut server)?;
    check_log(sandbox)?;
    Ok(vec![
        piece("the number of keys", filled),
        piece("the digest", after_reload),
    ])
}

fn cli(sandbox: &Sandbox, arguments: &[&str]) -> Result<String, String> {
    let output = sandbox.run(
        sandbox
            .command("redis-cli")
            .args(["-s", "redis.sock"])
            .args(arguments),
    )?;
    let text = output.stdout_text();
    if text.starts_with("ERR") || text.contains("(error)") || text.contains("BUSY") {
        return Err(format!("redis answered to {}: {text}", arguments[0]));
    }
    Ok(text)
}

fn benchmark(sandbox: &Sandbox, arguments: &[&str]) -> Result<(), String> {
    let mut command: Command = sandbox.command("redis-benchmark");
    let output = sandbox.run(command.args(["-s", "redis.sock", "-q"]).args(arguments))?;
    if output.stdout_text().contains("requests per second") {
        Ok(())
    } else {
        Err(format!("the benchmark did nothing: {}", output.account()))
    }
}

fn await_socket(sandbox: &Sandbox, server: &mut Server) -> Result<(), String> {
    poll("redis-server's socket", || {
        if let Ok(Some(status)) = server.process.try_wait() {
            return Err(format!(
                "redis-server ended at its start with {status}: {}",
                log(sandbox)
            ));
        }
        // The file is there a moment before the server accepts clients.
        Ok(UnixStream::connect(sandbox.path("redis.sock")).is_ok())
    })
}

fn await_save(sandbox: &Sandbox) -> Result<(), String> {
    poll("the end of BGSAVE", || {
        Ok(cli(sandbox, &["INFO", "persistence"])?.contains("rdb_bgsave_in_progress:0"))
    })
}

fn await_end(server: &mut Server) -> Result<(), String> {
    let mut ended = None;
    poll("the end of redis-server", || {
        ended = server
            .process
            .try_wait()
            .map_err(|error| format!("cannot wait for redis-server: {error}"))?;
        Ok(ended.is_some())
    })?;
    match ended {
        Some(status) if status.success() => Ok(()),
        other => Err(format!("redis-server ended with {other:?}")),
    }
}

fn log(sandbox: &Sandbox) -> String {
    sandbox
        .read("redis.log")
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

fn check_log(sandbox: &Sandbox) -> Result<(), String> {
    let log = log(sandbox);
    let bad = [
        "BUG REPORT",
        "crashed",
        "Assertion",
        "Out Of Memory",
        "Error",
        "mallard",
    ];
    match bad.iter().find(|word| log.contains(**word)) {
        Some(word) => Err(format!("redis-server's log says '{word}':\n{log}")),
        None if log.contains("bye bye") => Ok(()),
        None => Err(format!("redis-server did not say goodbye:\n{log}")),
    }
}
