//! Which functions, variables and constants `layout.txt` names, and what the compiler calls them.
//!
//! Part of the build script, which makes the linker script of these names (`layout.ld.in`), and of
//! the end-to-end tests, which hold each name against the symbols of the library.

/// A name of the list.
#[derive(Debug, PartialEq)]
pub struct Name<'a> {
    /// The group of the name, which the linker script places.
    pub group: &'a str,
    /// The name as the list has it.
    pub written: &'a str,
}

impl Name<'_> {
    /// Patterns that the symbol matches, whichever of its two manglings the compiler uses. A `*`
    /// stands for anything.
    pub fn patterns(&self) -> Vec<String> {
        match self.written.split_once(' ') {
            Some(("c", symbol)) => vec![symbol.to_owned()],
            Some(("core", parts)) => vec![format!("*{}*", parts.replace(' ', "*"))],
            _ => {
                let parts: Vec<&str> = self.written.split("::").collect();
                vec![legacy(&parts), v0(&parts)]
            }
        }
    }
}

/// Each part with its length before it, and a hash at the end.
fn legacy(parts: &[&str]) -> String {
    let mut pattern = "*".to_owned();
    for part in parts {
        pattern += &sized(part);
    }
    match parts.last() {
        Some(&"*") => pattern,
        _ => pattern + "17h*",
    }
}

/// The same without a hash. Before the name of a type stands where its `impl` is.
fn v0(parts: &[&str]) -> String {
    let mut pattern = "*".to_owned();
    for part in parts {
        if part.starts_with(|c: char| c.is_ascii_uppercase()) && !pattern.ends_with('*') {
            pattern.push('*');
        }
        pattern += &sized(part);
    }
    pattern
}

fn sized(part: &str) -> String {
    match part {
        "*" => "*".to_owned(),
        part => format!("{}{part}", part.len()),
    }
}

/// The names of the list, in their order.
///
/// # Panics
/// When a name stands before the first group.
pub fn names(list: &str) -> Vec<Name<'_>> {
    let mut group = None;
    let mut names = Vec::new();
    for line in list.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            group = Some(name);
            continue;
        }
        let group = group.expect("a name stands before the first group");
        names.push(Name {
            group,
            written: line,
        });
    }
    names
}
