//! `mallard guard`: a report gets the names of functions.

use crate::place::*;

const PROGRAM: &str = r#"
    #include <malloc.h>
    #include <stdlib.h>
    __attribute__((noinline)) char *make_it(void) { return malloc(40); }
    __attribute__((noinline)) void drop_it(char *p) { free(p); }
    __attribute__((noinline)) void use_it(volatile char *p) { p[8] = 1; }
    int main(void) {
        char *p = make_it();
        while (malloc_usable_size(p) != 40) {
            drop_it(p);
            p = make_it();
        }
        drop_it(p);
        use_it(p);
    }
"#;

#[test]
fn a_report_gets_the_names_of_its_functions() {
    let place = Place::new();
    let program = place.compile("guarded", PROGRAM, &["-g", "-O1", "-fno-builtin"]);
    let mut run = place.mallard(&["run", "--", program.to_str().unwrap()]);
    let (_, _, report) = outcome(run.env("MALLOC_CONF", "guard_sample:1,guard_rate:0"));
    assert!(report.contains("mallard: write after free at"), "{report}");
    let file = place.path().join("report");
    std::fs::write(&file, &report).unwrap();
    let (code, named, stderr) = outcome(&mut place.mallard(&["guard", "--names", "report"]));
    assert_eq!(code, Some(SUCCESS), "{stderr}");
    let names: Vec<&str> = (named.lines())
        .filter_map(|line| line.trim_start().strip_prefix("in "))
        .collect();
    for function in ["use_it", "make_it", "drop_it", "main"] {
        let is_it = |name: &&str| name.starts_with(function) && name.contains("guarded.c:");
        assert!(names.iter().any(is_it), "{function}: {named}");
    }
    for line in report.lines() {
        assert!(named.contains(line), "{line}");
    }
}

#[test]
fn reports_of_a_report_file_get_names_too() {
    let place = Place::new();
    let twice = PROGRAM
        .replace("while (malloc_usable_size(p) != 40)", "if (0)")
        .replace("use_it(p);\n    }", "drop_it(p);\n    }");
    let program = place.compile("twice", &twice, &["-g", "-O1", "-fno-builtin"]);
    let mut run = place.mallard(&["run", "--", program.to_str().unwrap()]);
    let file = place.path().join("reports");
    let options = format!("report_file:{}", file.display());
    let (_, _, stderr) = outcome(run.env("MALLOC_CONF", options));
    assert!(stderr.contains("is free already"), "{stderr}");
    let (code, named, stderr) = outcome(&mut place.mallard(&["guard", "--names", "reports"]));
    assert_eq!(code, Some(SUCCESS), "{stderr}");
    assert!(named.starts_with("mallard: double free at 0x"), "{named}");
    for function in ["in drop_it, ", "in main, "] {
        assert!(named.contains(function), "{function}: {named}");
    }
}

#[test]
fn a_process_or_a_report_is_needed() {
    let place = Place::new();
    for words in [
        &["guard"][..],
        &["guard", "1"],
        &["guard", "1", "--names", "x"],
    ] {
        assert_eq!(
            outcome(&mut place.mallard(words)).0,
            Some(USAGE),
            "{words:?}"
        );
    }
}
