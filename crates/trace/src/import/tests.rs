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

/// A file of memray with these records.
fn memray(aggregated: u8, version: u32, records: &[u8]) -> Vec<u8> {
    let mut file = b"memray\0".to_vec();
    file.extend(version.to_le_bytes());
    file.extend(0x030b_07f0_u32.to_le_bytes());
    file.extend([0, aggregated]);
    file.extend([0; 32]);
    file.extend(b"python3 job.py\0");
    file.extend([0; 4 + 8 + 8 + 3]);
    file.extend(b"/usr/lib/python3\0/site\0\0/a\0/b\0\0");
    file.extend(records);
    file
}

#[test]
fn memray_s_calls_of_malloc_are_taken_and_python_s_pools_are_not() {
    const MISS: u8 = 128 | 15 << 3;
    let mut records = Vec::new();
    records.extend([12, 1, 0, 0, 0, 0, 0, 0, 0]); // thread 1
    records.extend([14, 0, b'f', 0, b'a', 0, 2, 3, 9, 9, 9]); // code, three bytes of lines
    records.extend([64, 0, 4]); // a frame
    records.extend([MISS | 6, 0x80, 0x10, 100]); // malloc(100) at 1024 * 8
    records.extend([MISS | 2, 16, 50]); // Python's own
    records.extend([128 | 1 << 3 | 5]); // free of the second address that was used last
    records.extend([2, 0, 200, 1]); // after 200 ms
    records.extend([MISS, 32, 8, 64]); // calloc, the long form
    records.extend([MISS, 32, 14, 0x80, 0x20]); // mmap
    records.extend([12, 2, 0, 0, 0, 0, 0, 0, 0]); // thread 2
    records.extend([128 | 1 << 3 | 5, 16, 1]); // frees the calloc; a frame is left; the end
    let file = memray(0, 13, &records);
    let p = imported(Format::Memray, &file).unwrap();
    assert_eq!((p.threads, p.calls, p.live_bytes), (2, 4, 0));
    assert_eq!(
        (p.freed_elsewhere, p.lives.unknown, p.lives.lost),
        (1, 0, 0)
    );
    assert!((p.last - p.first) * UNIT_NS >= 199_000_000);
    assert_eq!(guess("x.bin", &file), Some(Format::Memray));
    // Compressed.
    let mut packed = lz4_flex::frame::FrameEncoder::new(Vec::new());
    packed.write_all(&file).unwrap();
    let packed = packed.finish().unwrap();
    assert_eq!(guess("x.bin", &packed), Some(Format::Memray));
    assert_eq!(imported(Format::Memray, &packed).unwrap().calls, 4);
    // Cut anywhere behind its first call, it is read as far as it goes.
    let first = file.len() - records.len() + 27;
    for cut in first..file.len() {
        assert!(imported(Format::Memray, &file[..cut]).is_ok(), "{cut}");
    }
    for (file, problem) in [
        (memray(0, 12, &records), "format 12"),
        (memray(1, 13, &records), "aggregated"),
        (memray(0, 13, &[1]), "no allocation"),
        (memray(0, 13, &[9]), "kind that memray does not have"),
        (memray(0, 13, &[MISS, 0, 99, 0]), "function"),
        (b"memray\0".to_vec(), ""),
    ] {
        let error = imported(Format::Memray, &file).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}
