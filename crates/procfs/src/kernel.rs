//! Which kernel this is, and whether it is new enough.

/// The numbers at the beginning of a release such as `6.1.0-9-amd64`.
fn numbers(release: &str) -> Vec<u32> {
    let numeric = |c: char| c.is_ascii_digit() || c == '.';
    let end = release.find(|c| !numeric(c)).unwrap_or(release.len());
    let parts = release[..end].split('.');
    parts.filter_map(|part| part.parse().ok()).collect()
}

/// Half a sentence about what needs this kernel or a newer one, if this is an older one.
pub fn lacks(needed: &[u32]) -> Option<String> {
    let release = rustix::system::uname();
    lacks_of(needed, &release.release().to_string_lossy())
}

fn lacks_of(needed: &[u32], release: &str) -> Option<String> {
    let shown: Vec<String> = needed.iter().map(u32::to_string).collect();
    (numbers(release)[..] < *needed).then(|| {
        format!(
            "needs Linux {}, and this is Linux {release}",
            shown.join(".")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_kernel_is_named_with_the_one_that_is_needed() {
        assert_eq!(lacks(&[2, 6, 32]), None);
        assert_eq!(lacks_of(&[5, 5], "5.10.0-28-amd64"), None);
        assert_eq!(lacks_of(&[5, 5], "5.5.0"), None);
        let lack = lacks_of(&[5, 5], "4.18.0-553.el8").unwrap();
        assert_eq!(lack, "needs Linux 5.5, and this is Linux 4.18.0-553.el8");
    }
}
