//! What must hold for any bytes that a client sends. The tests of `request` try it, and the fuzzer.

use super::{Parsed, SECONDS_MAX, parse, seconds, wants_text};

/// Reads the bytes as a request.
pub fn request(text: &[u8]) {
    let whole = parse(text);
    if let Parsed::Whole(request) = whole {
        assert!(request.path.starts_with(b"/"), "{request:?}");
        let bytes = request.path.iter().chain(request.query);
        assert!(bytes.clone().all(|byte| (b'!'..=b'~').contains(byte)));
        if let Ok(Some(asked)) = seconds(request.query) {
            assert!((1..=SECONDS_MAX).contains(&asked));
        }
        wants_text(request.query);
    }
    // A request may come in pieces. What has been understood stays, whatever follows it.
    for end in (0..text.len()).step_by(text.len() / 16 + 1) {
        let part = parse(&text[..end]);
        assert!(part == Parsed::More || part == whole, "{part:?}, {whole:?}");
    }
    let longer = [text, b"more\r\n"].concat();
    assert!(whole == Parsed::More || parse(&longer) == whole);
}
