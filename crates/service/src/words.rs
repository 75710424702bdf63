//! Commands of a description, and the placeholders in them.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A command: a list of words that runs as it is, or one text for the shell.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Words {
    List(Vec<String>),
    Shell(String),
}

/// Where a run takes place: what the placeholders stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholders {
    /// `{folder}`: emptied before each run.
    pub folder: PathBuf,
    /// `{base}`: what `setup` made once for all runs.
    pub base: PathBuf,
    /// `{port}`: a free port of 127.0.0.1.
    pub port: u16,
    /// `{seconds}`: how long the load should take.
    pub seconds: u32,
    /// The folder in which all commands run.
    pub here: PathBuf,
}

impl Words {
    /// The words with the placeholders filled; the first is the program.
    pub fn filled(&self, place: &Placeholders) -> Vec<String> {
        match self {
            Words::List(words) => words.iter().map(|word| place.fill(word)).collect(),
            Words::Shell(script) => ["sh", "-c", &place.fill(script)]
                .map(str::to_owned)
                .to_vec(),
        }
    }

    /// The program that a list starts; a text starts the shell.
    pub fn program(&self) -> Option<&str> {
        match self {
            Words::List(words) => words.first().map(String::as_str),
            Words::Shell(_) => None,
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Words::List(words) => words.first().is_none_or(String::is_empty),
            Words::Shell(script) => script.trim().is_empty(),
        }
    }

    /// The command in a line, as the description has it.
    pub fn shown(&self) -> String {
        match self {
            Words::List(words) => words.join(" "),
            Words::Shell(script) => script.trim().to_owned(),
        }
    }
}

impl Placeholders {
    pub fn fill(&self, text: &str) -> String {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        text.replace("{folder}", &path(&self.folder))
            .replace("{base}", &path(&self.base))
            .replace("{port}", &self.port.to_string())
            .replace("{seconds}", &self.seconds.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_and_other_braces_stay() {
        let place = Placeholders {
            folder: "/f".into(),
            base: "/b".into(),
            port: 7,
            seconds: 1,
            here: "/".into(),
        };
        let list = Words::List(vec!["a".into(), "--dir={folder}/x".into(), "{port}".into()]);
        assert_eq!(list.filled(&place), ["a", "--dir=/f/x", "7"]);
        let shell = Words::Shell("awk '{print $1}' {base}/log".into());
        assert_eq!(
            shell.filled(&place),
            ["sh", "-c", "awk '{print $1}' /b/log"]
        );
        assert_eq!(shell.program(), None);
    }
}
