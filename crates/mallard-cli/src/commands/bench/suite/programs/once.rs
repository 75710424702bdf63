//! Programs that do their work and end. The row's figure is their wall time, and every run must
//! write the same to standard output as under glibc.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use super::installed::{self, Needed};
use crate::commands::bench::suite::{Command, Real, WorkPlace};

/// A program and its one input file.
#[derive(Debug)]
pub struct Once {
    needed: [Needed; 1],
    /// Finds the program where `PATH` is not enough.
    program: Option<fn() -> PathBuf>,
    /// A second program that the allocator must serve.
    worker: Option<fn() -> PathBuf>,
    file: &'static str,
    content: &'static str,
    /// Returns the full or the quick version of the content.
    fitted: fn(&'static str, quick: bool) -> Cow<'static, str>,
    /// In full and with `--quick`; `@FILE@` stands for the file's path.
    arguments: [&'static [&'static str]; 2],
    /// Whether it reads the file from standard input.
    reads_input: bool,
    environment: &'static [(&'static str, &'static str)],
}

macro_rules! input {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/programs/", $name))
    };
}
pub(super) use input;

const LUA_NEEDED: Needed = Needed {
    name: "lua5.4",
    package: "lua5.4",
};

/// The defaults of the programs below.
const PLAIN: Once = Once {
    needed: [LUA_NEEDED],
    program: None,
    worker: None,
    file: "",
    content: "",
    fitted: |content, _| content.into(),
    arguments: [&[], &[]],
    reads_input: false,
    environment: &[],
};

pub static LUA: Once = Once {
    file: "documents.lua",
    content: input!("documents.lua"),
    arguments: [&["@FILE@", "80"], &["@FILE@", "16"]],
    ..PLAIN
};

pub static PYTHON: Once = Once {
    needed: [Needed {
        name: "python3",
        package: "python3",
    }],
    program: Some(installed::python),
    file: "objects.py",
    content: input!("objects.py"),
    arguments: [&["@FILE@", "12"], &["@FILE@", "2"]],
    environment: &[("PYTHONMALLOC", "malloc"), ("PYTHONHASHSEED", "0")],
    ..PLAIN
};

pub static RUBY: Once = Once {
    needed: [Needed {
        name: "ruby",
        package: "ruby",
    }],
    file: "text.rb",
    content: input!("text.rb"),
    arguments: [&["@FILE@", "25"], &["@FILE@", "5"]],
    ..PLAIN
};

pub static PERL: Once = Once {
    needed: [Needed {
        name: "perl",
        package: "perl",
    }],
    file: "records.pl",
    content: input!("records.pl"),
    arguments: [&["@FILE@", "20"], &["@FILE@", "4"]],
    environment: &[("PERL_HASH_SEED", "0")],
    ..PLAIN
};

pub static SQLITE: Once = Once {
    needed: [Needed {
        name: "sqlite3",
        package: "sqlite3",
    }],
    file: "queries.sql",
    content: input!("queries.sql"),
    fitted: |content, quick| {
        let rows = if quick { "5000" } else { "25000" };
        content.replace("@ROWS@", rows).into()
    },
    // The user's own settings file must not be read.
    arguments: [&["-init", "/dev/null", "-batch", "-bail", ":memory:"]; 2],
    reads_input: true,
    ..PLAIN
};

pub static CXX: Once = Once {
    needed: [Needed {
        name: "g++",
        package: "g++",
    }],
    worker: Some(installed::cc1plus),
    file: "templates.cpp",
    content: input!("templates.cpp"),
    arguments: [
        &["-std=c++17", "-O0", "-S", "-DWIDTH=1", "-o", "-", "@FILE@"],
        &["-std=c++17", "-O0", "-S", "-DWIDTH=0", "-o", "-", "@FILE@"],
    ],
    ..PLAIN
};

pub static Z3: Once = Once {
    needed: [Needed {
        name: "z3",
        package: "z3",
    }],
    file: "solve.smt2",
    content: input!("solve.smt2"),
    fitted: |content, quick| {
        let quick_end = if quick { content.find("; ---") } else { None };
        content[..quick_end.unwrap_or(content.len())].into()
    },
    arguments: [&["-smt2", "@FILE@"]; 2],
    ..PLAIN
};

impl Once {
    fn path(&self, place: &WorkPlace) -> PathBuf {
        place.folder.join(self.file)
    }
}

impl Real for Once {
    fn missing(&self) -> Option<String> {
        installed::missing(&self.needed)
    }

    fn prepare(&self, place: &WorkPlace) -> Result<(), String> {
        let path = self.path(place);
        let content = (self.fitted)(self.content, place.quick);
        fs::write(&path, content.as_bytes())
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    fn command(&self, place: &WorkPlace) -> Command {
        let path = self.path(place);
        let program = match self.program {
            Some(found) => found(),
            None => installed::path_or_name(self.needed[0].name),
        };
        let argument = |word: &&str| match *word {
            "@FILE@" => path.clone().into_os_string(),
            word => word.into(),
        };
        let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        Command {
            program: program.into(),
            arguments: self.arguments[usize::from(place.quick)]
                .iter()
                .map(argument)
                .collect(),
            environment: self.environment.iter().map(own).collect(),
            input: self.reads_input.then_some(path),
        }
    }

    fn served(&self, place: &WorkPlace) -> Vec<OsString> {
        let worker = self.worker.map(|found| found().into_os_string());
        [self.command(place).program]
            .into_iter()
            .chain(worker)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_versions_are_a_smaller_part_of_the_full_ones() {
        for program in [&SQLITE, &Z3] {
            let full = (program.fitted)(program.content, false);
            let quick = (program.fitted)(program.content, true);
            assert!(!quick.is_empty() && quick != full, "{}", program.file);
        }
        let quick = (Z3.fitted)(Z3.content, true);
        assert!(quick.contains("(check-sat)") && quick.len() < Z3.content.len());
        for program in [&LUA, &PYTHON, &RUBY, &PERL, &CXX] {
            assert_ne!(
                program.arguments[0], program.arguments[1],
                "{}",
                program.file
            );
        }
    }
}
