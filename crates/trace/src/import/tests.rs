use std::io::Cursor;

use super::*;
use crate::recording::Recording;
use crate::{Reader, summary};

/// Imports and returns the only process's summary.
fn imported(format: Format, content: &[u8]) -> Result<summary::Process> {
    let mut file = Vec::new();
    import(format, content, &mut file, "test")?;
    let mut recording = Recording::index(Reader::new(Cursor::new(file))?)?;
    assert_eq!(recording.state(), crate::State::default());
    let summary = summary::of(&mut recording)?;
    Ok(summary.processes[&1].clone())
}

#[test]
fn android_s_text_with_and_without_times() {
    let text = "\
186: malloc 0xb6038060 20
186: calloc 0xb609f080 32 4
187: realloc 0xb609f180 0xb6038060 12
187: memalign 0xb60f0000 4096 64
187: free 0xb609f080
187: free 0x0
187: thread_done 0x0
187: malloc 0xb6000000 8 1000 2000
186: free 0xb609f180 3000 3100
";
    let p = imported(Format::Android, text.as_bytes()).unwrap();
    assert_eq!((p.threads, p.calls, p.live_bytes), (3, 7, 64 + 8));
    assert_eq!(
        (p.freed_elsewhere, p.lives.unknown, p.lives.lost),
        (3, 0, 0)
    );
    assert_eq!(guess("x.txt", text.as_bytes()), Some(Format::Android));
    for (text, line) in [
        ("186: malloc 0x10\n", 1),
        ("\n1: jump 0x10 3\n", 2),
        ("what\n", 1),
    ] {
        match imported(Format::Android, text.as_bytes()) {
            Err(Error::Line { line: told, .. }) => assert_eq!(told, line, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn webkit_s_operations() {
    let op = |code: u32, thread: u16, align: u16, slot: u64, size: u64| {
        let mut bytes = code.to_le_bytes().to_vec();
        bytes.extend(thread.to_le_bytes());
        bytes.extend(align.to_le_bytes());
        bytes.extend(slot.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes
    };
    let file = [
        op(0, 0, 0, 7, 100),
        op(3, 1, 6, 8, 640),
        op(2, 1, 0, 7, 300),
        op(1, 0, 0, 8, 0),
        op(1, 0, 0, 8, 0),
    ]
    .concat();
    let p = imported(Format::Ops, &file).unwrap();
    assert_eq!(
        (p.threads, p.calls, p.live_bytes, p.peak_bytes),
        (2, 4, 300, 940)
    );
    assert_eq!(guess("reddit.ops", &file), Some(Format::Ops));
    assert!(imported(Format::Ops, &op(9, 0, 0, 1, 1)).is_err());
    assert!(imported(Format::Ops, &op(0, 0, 0, u64::MAX, 1)).is_err());
}

#[test]
fn ltrace_s_lines_with_threads_and_calls_that_were_interrupted() {
    let text = "\
malloc(24)                                       = 0x55d2a0
[pid 12] calloc(4, 8 <unfinished ...>
[pid 13] free(0x55d2a0 <unfinished ...>
[pid 12] <... calloc resumed> )                  = 0x55d2a0
[pid 13] <... free resumed> )                    = <void>
[pid 12] realloc(0x55d2a0, 100)                  = 0x55e000
libfoo.so->malloc(7) = 0x66
strlen(\"(x)\")                                   = 3
free(nil)                                        = <void>
+++ exited (status 0) +++
";
    let p = imported(Format::Ltrace, text.as_bytes()).unwrap();
    assert_eq!(
        (p.calls, p.live_bytes, p.lives.lost, p.lives.unknown),
        (5, 107, 0, 0)
    );
    assert_eq!(guess("out.txt", text.as_bytes()), Some(Format::Ltrace));
    assert!(imported(Format::Ltrace, b"hello\n").is_err());
}

#[test]
fn heaptrack_s_text_plain_and_compressed() {
    let text = "v 10400\nX ./program\na 10 1\na 400 2\n+ 0\n+ 1\nc 5\n- 0\n+ 0\n";
    let p = imported(Format::Heaptrack, text.as_bytes()).unwrap();
    assert_eq!((p.threads, p.calls, p.live_bytes), (1, 4, 0x410));
    let packed = zstd::bulk::compress(text.as_bytes(), 3).unwrap();
    assert_eq!(imported(Format::Heaptrack, &packed).unwrap(), p);
    assert_eq!(guess("heaptrack.x.1.zst", &packed), Some(Format::Heaptrack));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, text.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    assert_eq!(imported(Format::Heaptrack, &packed).unwrap(), p);
    assert_eq!(guess("x.gz", &packed), Some(Format::Heaptrack));
    let half = &packed[..packed.len() / 2];
    assert!(imported(Format::Heaptrack, half).is_err());
    for text in ["+ 0\n", "a 10 1\n- 0\n", "a zz 1\n", "nothing\n"] {
        assert!(
            imported(Format::Heaptrack, text.as_bytes()).is_err(),
            "{text}"
        );
    }
}
