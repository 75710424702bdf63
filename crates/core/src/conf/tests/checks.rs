//! Properties of arbitrary bytes as an option string, for the property tests beside this file and
//! the fuzzer (`fuzz/`), which includes this file.

extern crate std;

use super::conf::{ConfirmConf, Options, ReadOptions, Sink, Source, Sources, TABLE, read_from};
use std::string::String;
use std::vec::Vec;

/// Records the reader's messages.
#[derive(Default)]
pub struct Recorder(pub Vec<String>);

impl Sink for Recorder {
    fn line(&mut self, line: &[u8]) {
        self.0
            .push(String::from_utf8(line.to_vec()).expect("messages are ASCII"));
    }
}

/// Reads the strings, and checks the messages.
pub fn strings(strings: &[(Source, &[u8])]) -> ReadOptions {
    let mut sources = Sources::NONE;
    for (source, string) in strings {
        sources.set(*source, Some(string));
    }
    let mut recorder = Recorder::default();
    let outcome = read_from(&Options::DEFAULT, &sources, &mut recorder);
    output(&outcome, &recorder.0);
    outcome
}

/// The messages are few, and safe for any terminal.
fn output(outcome: &ReadOptions, lines: &[String]) {
    for line in lines {
        assert!(line.starts_with("mallard: "), "{line:?}");
        assert!(line.len() <= 1024, "{} bytes", line.len());
        assert!(
            line.bytes().all(|byte| matches!(byte, b' '..=b'~')),
            "{line:?}"
        );
    }
    let confirmed = match outcome.options.confirm_conf {
        ConfirmConf::False => 0,
        ConfirmConf::Short => 1,
        ConfirmConf::True => 1 + Source::ALL.len() + TABLE.len() - 1,
    };
    let aborting = usize::from(outcome.must_abort);
    let messages = lines.len() - confirmed - aborting;
    assert!(messages <= 17, "{messages} messages");
    assert!(
        outcome.errors == 0 || messages > 0,
        "an error without a word"
    );
}
