//! Reading option strings: `key:value,key:value`, from several sources, each overriding those
//! before it.
//!
//! A mistake costs one message and one item: the rest of the string still counts. For any input the
//! reader takes time linear in its length, and prints at most [`MESSAGES`] messages.

use super::line::{LineBuffer, Sink};
use super::nearest::nearest;
use super::options::{Descriptor, Options, TABLE, find};
use super::value::ConfirmConf;
use mallard_formats::variables;

/// Messages about mistakes before the rest is only counted.
pub(super) const MESSAGES: u32 = 16;

/// How much of a mistaken key or value a message repeats.
const EXCERPT: usize = 64;

/// Where option strings come from; a later one overrides an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The string that Mallard was built with.
    CompiledIn,
    /// The string that the program's symbol `malloc_conf` points to.
    Symbol,
    /// The target of the symbolic link `/etc/malloc.conf`.
    Link,
    /// The environment variable `MALLOC_CONF`.
    MallocConf,
    /// The string that the program's symbol `malloc_conf_2_conf_harder` points to.
    Harder,
    /// The environment variable `MALLARD_CONF`.
    MallardConf,
}

impl Source {
    pub const ALL: [Source; 6] = [
        Source::CompiledIn,
        Source::Symbol,
        Source::Link,
        Source::MallocConf,
        Source::Harder,
        Source::MallardConf,
    ];

    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Source::CompiledIn => "compiled-in options",
            Source::Symbol => "symbol malloc_conf",
            Source::Link => "/etc/malloc.conf",
            Source::MallocConf => variables::MALLOC_CONF,
            Source::Harder => "malloc_conf_2_conf_harder",
            Source::MallardConf => variables::MALLARD_CONF,
        }
    }
}

/// One string, or none, for each [`Source`].
#[derive(Clone, Copy)]
pub struct Sources<'a>([Option<&'a [u8]>; Source::ALL.len()]);

impl<'a> Sources<'a> {
    pub const NONE: Sources<'static> = Sources([None; Source::ALL.len()]);

    pub fn set(&mut self, source: Source, string: Option<&'a [u8]>) {
        self.0[source as usize] = string;
    }

    /// Whether no source has a string, not even an empty one.
    pub fn are_none(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    pub fn get(&self, source: Source) -> Option<&'a [u8]> {
        self.0[source as usize]
    }
}

/// The result of reading the options.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    pub options: Options,
    /// Items that could not be used; each had a message (up to a limit).
    pub errors: u32,
    /// There was an error and `abort_conf:true` is set: the caller must abort. The reason has been
    /// printed.
    pub must_abort: bool,
}

/// Reads the options from the given sources; those that are not set are taken from `options`.
/// Messages, and the output of `confirm_conf`, go to `sink`.
#[cold]
#[inline(never)]
pub fn read_from(options: &Options, sources: &Sources<'_>, sink: &mut dyn Sink) -> ReadOptions {
    let mut reader = Reader {
        options: *options,
        set_by: [None; TABLE.len()],
        errors: 0,
        messages: 0,
        sink,
    };
    for source in Source::ALL {
        if let Some(string) = sources.get(source) {
            reader.string(source, string);
        }
    }
    reader.check_dependencies();
    match reader.options.confirm_conf {
        ConfirmConf::False => {}
        ConfirmConf::Short => reader.confirm_in_a_line(options),
        ConfirmConf::True => reader.confirm(sources),
    }
    let must_abort = reader.options.abort_conf && reader.errors > 0;
    if must_abort {
        reader.say_abort();
    }
    ReadOptions {
        options: reader.options,
        errors: reader.errors,
        must_abort,
    }
}

/// What every confirmation begins with.
const VERSION: &str = concat!("mallard: version ", env!("CARGO_PKG_VERSION"));

struct Reader<'s> {
    options: Options,
    /// The last source that set each row of the table.
    set_by: [Option<Source>; TABLE.len()],
    errors: u32,
    /// Mistakes so far, including those that do not count as errors.
    messages: u32,
    sink: &'s mut dyn Sink,
}

impl Reader<'_> {
    #[cold]
    #[inline(never)]
    fn string(&mut self, source: Source, string: &[u8]) {
        if string.is_empty() {
            return;
        }
        for item in string.split(|&byte| byte == b',') {
            self.item(source, item);
        }
    }

    fn item(&mut self, source: Source, item: &[u8]) {
        let mut parts = item.splitn(2, |&byte| byte == b':');
        let (Some(key), Some(value)) = (parts.next(), parts.next()) else {
            return self.no_colon(source, item);
        };
        let Some(option) = find(key) else {
            return self.unknown(source, key, value);
        };
        if !option.set(&mut self.options, value) {
            return self.bad_value(source, option, value);
        }
        let field = option.target().name();
        for (row, set_by) in TABLE.iter().zip(&mut self.set_by) {
            if row.name() == field {
                *set_by = Some(source);
            }
        }
    }

    #[cold]
    fn no_colon(&mut self, source: Source, item: &[u8]) {
        self.error(source, |line| {
            if item.is_empty() {
                line.text("empty item: a comma at the start, at the end or after another comma");
                return;
            }
            line.text("no value in ")
                .quoted(item, EXCERPT)
                .text("; valid: option:value");
            if let Some(option) = find(item) {
                line.text(", here ").text(option.name()).text(" with ");
                option.valid(line);
            }
        });
    }

    #[cold]
    fn unknown(&mut self, source: Source, key: &[u8], value: &[u8]) {
        // As in jemalloc, unknown experimental options are not errors, so that strings work with
        // other versions.
        if !key.starts_with(b"experimental_") {
            self.errors = self.errors.saturating_add(1);
        }
        self.message(source, |line| {
            if key.is_empty() {
                line.text("no option named before the value ")
                    .quoted(value, EXCERPT);
                line.text("; valid: option:value");
                return;
            }
            line.text("unknown option ").quoted(key, EXCERPT);
            match nearest(key) {
                Some(name) => line.text("; did you mean \"").text(name).text("\"?"),
                None => line.text("; no option has a similar name"),
            };
        });
    }

    #[cold]
    fn bad_value(&mut self, source: Source, option: &Descriptor, value: &[u8]) {
        self.error(source, |line| {
            line.text("option \"")
                .text(option.name())
                .text("\" cannot be ")
                .quoted(value, EXCERPT);
            line.text("; valid: ");
            option.valid(line);
        });
    }

    /// Checks for settings that are valid alone but not together.
    fn check_dependencies(&mut self) {
        if self.options.prof_leak_error && !self.options.prof_final {
            self.without_effect(
                "prof_leak_error",
                "\" has no effect; valid: with prof_final:true",
                true,
            );
        }
    }

    #[cold]
    #[inline(never)]
    fn without_effect(&mut self, name: &str, behind: &str, is_error: bool) {
        let Some(source) = self.source_of(name) else {
            return;
        };
        self.errors = self.errors.saturating_add(u32::from(is_error));
        self.message(source, |line| {
            line.text("option \"").text(name).text(behind);
        });
    }

    fn source_of(&self, name: &str) -> Option<Source> {
        let row = TABLE
            .iter()
            .zip(self.set_by)
            .find(|(row, _)| row.name() == name);
        row.and_then(|(_, set_by)| set_by)
    }

    fn error(&mut self, source: Source, describe: impl FnOnce(&mut LineBuffer)) {
        self.errors = self.errors.saturating_add(1);
        self.message(source, describe);
    }

    fn message(&mut self, source: Source, describe: impl FnOnce(&mut LineBuffer)) {
        self.messages = self.messages.saturating_add(1);
        if self.messages <= MESSAGES {
            let mut line = LineBuffer::new();
            line.text("mallard: ").text(source.name()).text(": ");
            describe(&mut line);
            self.sink.line(line.as_bytes());
        } else if self.messages == MESSAGES + 1 {
            self.sink
                .line(b"mallard: further errors in options not shown");
        }
    }

    /// Prints the output of `confirm_conf:true`.
    #[cold]
    fn confirm(&mut self, sources: &Sources<'_>) {
        self.sink.line(VERSION.as_bytes());
        for (i, source) in Source::ALL.into_iter().enumerate() {
            let mut line = LineBuffer::new();
            line.text("mallard: options #")
                .number(i as i128 + 1)
                .text(" (")
                .text(source.name());
            line.text("): ");
            match sources.get(source) {
                Some(string) => line.quoted(string, usize::MAX),
                None => line.text("not set"),
            };
            self.sink.line(line.as_bytes());
        }
        for (option, set_by) in TABLE.iter().zip(self.set_by) {
            if option.alias_of().is_some() {
                continue;
            }
            let mut line = LineBuffer::new();
            line.text("mallard: -- ");
            self.setting(&mut line, option, set_by);
            self.sink.line(line.as_bytes());
        }
    }

    /// Prints the line of `confirm_conf:short`.
    #[cold]
    fn confirm_in_a_line(&mut self, defaults: &Options) {
        let mut line = LineBuffer::new();
        line.text(VERSION);
        let mut before = "; ";
        for (option, set_by) in TABLE.iter().zip(self.set_by) {
            let (mut value, mut default) = (LineBuffer::new(), LineBuffer::new());
            option.show(&self.options, &mut value);
            option.show(defaults, &mut default);
            let is_asked = option.name() == "confirm_conf" || option.alias_of().is_some();
            if !is_asked && value.as_bytes() != default.as_bytes() {
                line.text(before);
                self.setting(&mut line, option, set_by);
                before = ", ";
            }
        }
        if before == "; " {
            line.text("; all options have their defaults");
        }
        self.sink.line(line.as_bytes());
    }

    /// Appends an option with its value, and where that comes from.
    #[inline(never)]
    fn setting(&self, line: &mut LineBuffer, option: &Descriptor, set_by: Option<Source>) {
        let mut value = LineBuffer::new();
        option.show(&self.options, &mut value);
        line.text(option.name()).text(":").escaped(value.as_bytes());
        if let Some(source) = set_by {
            line.text(" (").text(source.name()).text(")");
        }
    }

    #[cold]
    fn say_abort(&mut self) {
        let mut line = LineBuffer::new();
        line.text("mallard: abort_conf:true: aborting after ")
            .number(i128::from(self.errors));
        line.text(if self.errors == 1 {
            " error"
        } else {
            " errors"
        })
        .text(" in options, see above");
        self.sink.line(line.as_bytes());
    }
}
