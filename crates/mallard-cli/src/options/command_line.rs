//! The command line that leads to what is being done, as results and messages show it.

use std::ffi::{OsStr, OsString};
use std::sync::Mutex;

/// The command line with the defaults, for the results.
static WORDS: Mutex<Vec<OsString>> = Mutex::new(Vec::new());

/// Notes the command that is run instead of the one that was typed.
pub fn keep(words: Vec<OsString>) {
    *WORDS.lock().expect("nothing panics with the lock") = words;
}

/// The command line that leads to what is being done.
pub fn words() -> Vec<String> {
    let words = WORDS.lock().expect("nothing panics with the lock");
    let words = words.iter();
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// The command as a user would type it.
pub fn typed(words: &[impl AsRef<OsStr>]) -> String {
    let words = words.iter().map(|word| word.as_ref().to_string_lossy());
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let quoted = words.map(|word| {
        if word.chars().all(plain) && !word.is_empty() {
            word.into_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_shown_as_it_would_be_typed() {
        let words = ["sh", "-c", "echo it's", ""].map(OsString::from);
        assert_eq!(typed(&words), r"sh -c 'echo it'\''s' ''");
    }
}
