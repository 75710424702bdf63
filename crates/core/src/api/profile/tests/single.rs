//! Single samples: the last ones, the log, and names of threads.

use super::{start, usable};
use crate::api::profile;
use crate::api::{alloc, dealloc};
use crate::prof::{history, samples, switch};
use crate::testing::own_process;

/// What `recent` passes on.
fn recent_json() -> std::string::String {
    let mut text = std::string::String::new();
    profile::recent(&mut |piece| text += piece.to_str().expect("JSON is UTF-8"));
    text
}

#[test]
fn the_last_samples_are_kept_with_their_ends() {
    own_process!();
    // The first call of the interface applies the options.
    profile::lg_sample();
    start(0, 1);
    assert_eq!(profile::set_recent_max(2), 0);
    profile::set_thread_name(c"a \"thread\"").unwrap();
    let blocks = [100, 200, 300_000].map(alloc);
    let text = recent_json();
    let head = "{\"sample_interval\":1,\"recent_alloc_max\":2,\"recent_alloc\":[{\"size\":200,";
    assert!(text.starts_with(head), "{text}");
    assert_eq!(text.matches("\"released\":false").count(), 2, "{text}");
    assert!(
        text.contains("\"alloc_thread_name\":\"a \\\"thread\\\"\""),
        "{text}"
    );
    // SAFETY: the blocks are in use, and not used any more.
    blocks.into_iter().for_each(|p| unsafe { dealloc(p) });
    switch(false);
    let text = recent_json();
    assert_eq!(text.matches("\"released\":true").count(), 2, "{text}");
    assert_eq!(text.matches("\"dalloc_trace\":[\"0x").count(), 2, "{text}");
    assert_eq!(profile::set_recent_max(0), 2);
    assert!(recent_json().ends_with("\"recent_alloc\":[]}"));
}

#[test]
fn the_log_has_what_was_freed_since() {
    own_process!();
    let file = std::env::temp_dir().join(std::format!("mallard-log-{}.json", std::process::id()));
    let name = std::ffi::CString::new(file.to_str().unwrap()).unwrap();
    // The first call of the interface applies the options.
    profile::lg_sample();
    start(0, 1);
    let before = alloc(700);
    assert!(profile::start_log(Some(&name)));
    assert!(!profile::start_log(None), "there is one");
    let after = alloc(1500);
    // SAFETY: the blocks are in use, and not used any more.
    [before, after]
        .into_iter()
        .for_each(|p| unsafe { dealloc(p) });
    switch(false);
    assert_eq!(profile::stop_log(), Ok(()));
    assert_eq!(profile::stop_log(), Err(0), "there is none");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(text.starts_with("{\"info\":{\"duration\":"), "{text}");
    for size in [usable(700), usable(1500)] {
        assert!(text.contains(&std::format!("\"usize\":{size}}}")), "{text}");
    }
    assert!(text.ends_with("]}"), "{text}");
}

#[test]
fn a_full_log_counts_what_it_lacks() {
    own_process!();
    // The first call of the interface applies the options.
    profile::lg_sample();
    start(0, 1);
    assert!(profile::start_log(None));
    let more = 10;
    for _ in 0..history::LOG_MAX + more {
        // SAFETY: the block is in use, and not used any more.
        unsafe { dealloc(alloc(100)) };
    }
    switch(false);
    let records = history::end_log().expect("there is one");
    assert_eq!(records.iter().count(), history::LOG_MAX);
    assert_eq!(records.missed, more as u64);
    let _inside = crate::cache::inside::enter_or_wait();
    drop(records);
}

/// Even if the system gives both the same number.
#[test]
fn threads_one_after_the_other_have_numbers_and_names_of_their_own() {
    own_process!();
    // The first call of the interface applies the options.
    profile::lg_sample();
    start(0, 1);
    let in_thread = |name: Option<&'static core::ffi::CStr>| {
        let thread = std::thread::spawn(move || {
            if let Some(name) = name {
                profile::set_thread_name(name).unwrap();
            }
            (alloc(1000).addr(), profile::thread_name())
        });
        thread.join().unwrap()
    };
    let threads = [in_thread(Some(c"first")), in_thread(None)];
    let names = threads.each_ref().map(|(_, name)| history::trimmed(name));
    assert_eq!(names, [&b"first"[..], b""]);
    let mut numbers = [0; 2];
    samples::each(&mut |at, sample| {
        for (number, (block, _)) in numbers.iter_mut().zip(&threads) {
            if at == *block {
                *number = sample.thread;
            }
        }
    });
    assert!(numbers[0] != 0 && numbers[1] > numbers[0], "{numbers:?}");
}

#[test]
fn names_of_many_threads_are_kept_for_the_last_of_them() {
    own_process!();
    profile::lg_sample();
    let named = |i: usize| {
        let name = std::ffi::CString::new(std::format!("t{i}")).unwrap();
        let thread = std::thread::spawn(move || {
            profile::set_thread_name(&name).unwrap();
            crate::prof::thread_numbers().own
        });
        thread.join().unwrap()
    };
    let numbers: std::vec::Vec<u32> = (0..20).map(named).collect();
    for (i, &number) in numbers.iter().enumerate() {
        let name = history::name_of(number);
        let expected = if i < 4 {
            std::string::String::new()
        } else {
            std::format!("t{i}")
        };
        assert_eq!(history::trimmed(&name), expected.as_bytes(), "{number}");
    }
}

#[test]
fn names_of_threads_are_checked_and_cut() {
    own_process!();
    assert_eq!(profile::set_thread_name(c"a\nb"), Err(libc::EINVAL));
    profile::set_thread_name(c"a name of more than fifteen bytes").unwrap();
    let name = profile::thread_name();
    assert_eq!(&name, b"a name of more \0");
    // A copy, which another thread may have while this one is named anew.
    profile::set_thread_name(c"another").unwrap();
    assert_eq!(&name, b"a name of more \0");
}
