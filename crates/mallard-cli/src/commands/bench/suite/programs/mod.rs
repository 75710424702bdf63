//! Rows of real programs: interpreters, a compiler, a solver, a database and two servers.
//!
//! [`once`] has the programs that do their work and end. [`redis`] and [`nginx`] have the servers
//! and their drivers; [`server`] has the code that they share. The input files in `bench/programs`
//! were written for the suite; the lab embeds them and writes them to the row's folder. Only the
//! program itself runs on the allocator, never its driver. Before the first run,
//! [`crate::allocators::preload`] checks that the loader really binds the program to the allocator.

mod installed;
mod nginx;
mod once;
mod redis;
mod server;

use super::{Group, Program, SuiteRow};
use crate::workloads::setting::Setting;

const MIB: u64 = 1 << 20;

/// The defaults of the rows below.
const ROW: SuiteRow = SuiteRow {
    name: "",
    group: Group::Programs,
    title: "",
    description: "",
    seconds_are: None,
    program: Program::Real(&once::LUA),
    threads: 1,
    seconds: [1.0, 0.3],
    peak_bytes: [0, 0],
    setting: Setting::Default,
    nodes: 1,
};

pub static ROWS: &[SuiteRow] = &[
    SuiteRow {
        name: "redis",
        title: "redis under redis-benchmark",
        description: "An in-memory store on a Unix socket with sixteen clients: strings are written, \
            read and overwritten by longer ones; then lists, hashes and sets. The latency is that of the \
            command with the highest P99. The RSS at the end is taken one second after FLUSHALL.",
        seconds_are: Some(redis::SECONDS_ARE),
        program: Program::Real(&redis::REDIS),
        peak_bytes: [64 * MIB, 32 * MIB],
        seconds: [3.0, 1.6],
        ..ROW
    },
    SuiteRow {
        name: "nginx",
        title: "nginx under wrk",
        description: "One process assembles pages and compresses each response, over 32 connections. \
            The RSS at the end is taken one second after the last request.",
        seconds_are: Some(nginx::SECONDS_ARE),
        program: Program::Real(&nginx::NGINX),
        peak_bytes: [32 * MIB, 32 * MIB],
        seconds: [2.2, 1.5],
        ..ROW
    },
    SuiteRow {
        name: "sqlite3",
        title: "sqlite3, an in-memory database",
        description: "A table is filled, indexed, joined, grouped, sorted, changed and emptied, \
            with JSON and long strings.",
        program: Program::Real(&once::SQLITE),
        peak_bytes: [64 * MIB, 32 * MIB],
        ..ROW
    },
    SuiteRow {
        name: "lua",
        title: "Lua 5.4, nested tables",
        description: "Documents of nested tables are built, copied, printed, parsed and searched; a \
            sliding window of them stays alive.",
        program: Program::Real(&once::LUA),
        peak_bytes: [16 * MIB, 16 * MIB],
        ..ROW
    },
    SuiteRow {
        name: "python3",
        title: "python3, PYTHONMALLOC=malloc",
        description: "Records are created, grouped, written as JSON, parsed, counted and sorted. Python's \
            own pools are off (PYTHONMALLOC=malloc), so every object comes from malloc.",
        program: Program::Real(&once::PYTHON),
        peak_bytes: [32 * MIB, 32 * MIB],
        ..ROW
    },
    SuiteRow {
        name: "ruby",
        title: "Ruby, text",
        description: "Lines are split, indexed, sorted, formatted and rewritten. Ruby keeps objects \
            on its own heap and takes their contents from malloc.",
        program: Program::Real(&once::RUBY),
        peak_bytes: [32 * MIB, 32 * MIB],
        ..ROW
    },
    SuiteRow {
        name: "perl",
        title: "Perl, records",
        description: "Lines are split into records, grouped in hashes of lists, sorted, printed and \
            rewritten by a regular expression.",
        program: Program::Real(&once::PERL),
        peak_bytes: [32 * MIB, 32 * MIB],
        ..ROW
    },
    SuiteRow {
        name: "cxx",
        title: "g++ on templates",
        description: "A C++17 file of templates and containers is compiled to assembly without \
            optimization; the compiler itself, cc1plus, runs on the allocator.",
        program: Program::Real(&once::CXX),
        peak_bytes: [256 * MIB, 128 * MIB],
        seconds: [1.2, 0.6],
        ..ROW
    },
    SuiteRow {
        name: "z3",
        title: "z3, plans and factors",
        description: "The shortest plans of a job shop, in arithmetic, and the factors of products, in \
            bit-vectors.",
        program: Program::Real(&once::Z3),
        peak_bytes: [64 * MIB, 64 * MIB],
        ..ROW
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::suite::WorkPlace;

    #[test]
    fn every_row_can_write_its_files_and_names_its_command() {
        for row in ROWS {
            let Program::Real(real) = row.program else {
                panic!("{} is not a real program", row.name);
            };
            for quick in [false, true] {
                let folder = tempfile::tempdir().unwrap();
                let place = WorkPlace {
                    folder: folder.path().to_owned(),
                    quick,
                };
                real.prepare(&place).unwrap();
                real.reset(&place).unwrap();
                let command = real.command(&place);
                assert!(!command.program.is_empty(), "{}", row.name);
                for entry in std::fs::read_dir(folder.path()).unwrap() {
                    let path = entry.unwrap().path();
                    if path.is_file() {
                        let text = std::fs::read_to_string(&path).unwrap();
                        assert!(
                            !text.contains("@ROWS@") && !text.contains("@PORT@"),
                            "{path:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn names_are_unique_and_descriptions_are_not_empty() {
        let mut names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
        assert!(ROWS.iter().all(|row| row.description.ends_with('.')));
    }
}
