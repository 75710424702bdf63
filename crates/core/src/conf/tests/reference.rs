//! `docs/options.md`, the user's reference, is generated from the table. This test fails when the
//! file is stale; run it with `MALLARD_BLESS=1` to regenerate the file.

extern crate std;

use std::string::String;
use std::{env, format, fs, path::Path};

use crate::conf::*;

const INTRODUCTION: &str = "\
# Options

<!-- Written from the option table in crates/core/src/conf/options.rs. To change it, change the
     table or crates/core/src/conf/tests/reference.rs, then:
     MALLARD_BLESS=1 cargo test -p mallard-core conf::tests::reference -->

Mallard has jemalloc's options under jemalloc's names, and a few of its own. They are read once,
when a program allocates for the first time, from these sources; later ones take precedence:

1. the string that Mallard was built with (the variable `MALLARD_BUILD_CONF` at build time),
2. the program's symbol `const char *malloc_conf = \"…\";`,
3. the target of the symbolic link `/etc/malloc.conf` (`ln -s 'narenas:8' /etc/malloc.conf`),
4. the environment variable `MALLOC_CONF`,
5. the program's symbol `const char *malloc_conf_2_conf_harder = \"…\";`, for options that the
   environment must not change,
6. the environment variable `MALLARD_CONF`, for options that jemalloc does not know.

A program that runs with more privileges than its caller (setuid, setgid, file capabilities) ignores
the two variables.

## Writing options

```
MALLOC_CONF=narenas:8,dirty_decay_ms:5000,tcache_max:128k program
```

A string consists of `option:value` items, separated by commas without spaces. Numbers may be
decimal, hexadecimal (`0x10`) or octal (`010`). A size is a number of bytes and may have a suffix
for powers of 1024: `k`, `m`, `g` or `t`, in either case.

For a mistake, one line on standard error says what would be valid, and only that item is ignored:

```
mallard: MALLOC_CONF: unknown option \"narenass\"; did you mean \"narenas\"?
mallard: MALLOC_CONF: option \"narenas\" cannot be \"x\"; valid: default or 1 to 1024
```

Only the first 16 such lines are shown. With `abort_conf:true` in any source, the program aborts if
there was a mistake, after it has read everything. (Mistakes in options called `experimental_…` are
reported but never fatal.) With `confirm_conf:true` the program prints its version of Mallard,
each source's string and the resulting settings, each with its source. With `confirm_conf:short` one
line answers whether a program is on Mallard, and with what:

```
mallard: version 0.1.0; narenas:3 (MALLOC_CONF), dirty_decay_ms:5000 (/etc/malloc.conf)
```

## All options

In the column of effects, \"none\" means that the option is accepted, so that strings written for
jemalloc work, but has no effect in Mallard; the last sentence says why. \"Not yet\" means that it has
no effect in this version. Options marked ⁺ accept more values than in jemalloc; those marked * are
Mallard's own.
";

fn reference() -> String {
    let mut text = String::from(INTRODUCTION);
    let mut groups: std::vec::Vec<&str> = TABLE.iter().map(|option| option.group).collect();
    groups.dedup();
    // Aliases come last in the table, and each belongs to an earlier group.
    let mut seen = std::collections::BTreeSet::new();
    groups.retain(|group| seen.insert(*group));
    for group in groups {
        text.push_str(&format!(
            "\n### {group}\n\n| option | values | default | effect | meaning |\n| --- | --- | --- | --- | --- |\n"
        ));
        for option in TABLE.iter().filter(|option| option.group == group) {
            text.push_str(&row(option));
        }
    }
    text
}

fn row(option: &Descriptor) -> String {
    let (mut default, mut valid) = (LineBuffer::new(), LineBuffer::new());
    option.show(&Options::DEFAULT, &mut default);
    option.valid(&mut valid);
    let default = default.as_bytes().escape_ascii();
    let mark = match option.origin {
        Origin::Jemalloc => "",
        Origin::Extended => "⁺",
        Origin::Mallard => "*",
    };
    let effect = match option.effect {
        Effect::Now => "yes",
        Effect::Never(_) => "none",
    };
    let why = match option.effect {
        Effect::Never(why) => format!(" {why}"),
        _ => String::new(),
    };
    let default = format!("`{default}`").replace("``", "(empty)");
    format!(
        "| `{}`{mark} | {} | {default} | {effect} | {}{why} |\n",
        option.name(),
        valid.as_bytes().escape_ascii(),
        option.meaning,
    )
}

#[test]
fn the_reference_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/options.md");
    let expected = reference();
    if env::var_os("MALLARD_BLESS").is_some() {
        fs::write(&path, &expected).expect("docs/options.md can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/options.md is not what the option table says; \
         write it anew with: MALLARD_BLESS=1 cargo test -p mallard-core conf::tests::reference"
    );
}

#[test]
fn no_text_of_the_table_breaks_its_markdown() {
    for line in reference().lines().filter(|line| line.starts_with("| `")) {
        assert_eq!(line.matches('|').count(), 6, "{line}");
    }
}
