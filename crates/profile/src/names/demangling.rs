//! Readable names of C++ and Rust functions.

use std::borrow::Cow;

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// Longer names are left as they are: demangled, they could be far longer still.
const NAME_BYTES_MAX: usize = 16 << 10;
const RECURSION_MAX: u32 = 96;

/// The name as a programmer wrote it, without parameters and without the hash that Rust adds. Other
/// languages' names stay as they are.
pub fn demangled(name: &str) -> Cow<'_, str> {
    if name.len() > NAME_BYTES_MAX {
        return Cow::Borrowed(name);
    }
    // A part that the compiler split off is still that function.
    let whole = name.strip_suffix(".cold").unwrap_or(name);
    if let Ok(rust) = rustc_demangle::try_demangle(whole) {
        return Cow::Owned(format!("{rust:#}"));
    }
    if !whole.starts_with("_Z") && !whole.starts_with("___Z") {
        return Cow::Borrowed(name);
    }
    let parse = ParseOptions::default().recursion_limit(RECURSION_MAX);
    let options = DemangleOptions::new()
        .no_params()
        .no_return_type()
        .hide_expression_literal_types()
        .recursion_limit(RECURSION_MAX);
    let demangled = Symbol::new_with_options(whole, &parse)
        .ok()
        .and_then(|symbol| symbol.demangle_with_options(&options).ok());
    match demangled {
        Some(demangled) => Cow::Owned(readable(demangled)),
        None => Cow::Borrowed(name),
    }
}

/// Shortens what every program of C++ is full of.
fn readable(name: String) -> String {
    const STRING: &str =
        "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
    const PAIRS: [(&str, &str); 4] = [
        (STRING, "std::string"),
        (
            "std::basic_string<char, std::char_traits<char>, std::allocator<char> >",
            "std::string",
        ),
        ("std::__cxx11::", "std::"),
        ("(anonymous namespace)", "(anonymous)"),
    ];
    let mut name = name;
    for (long, short) in PAIRS {
        if name.contains(long) {
            name = name.replace(long, short);
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rust_and_c_plus_plus_are_read() {
        for (mangled, plain) in [
            (
                "_ZN5cache5Entry3new17h0123456789abcdefE",
                "cache::Entry::new",
            ),
            ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
            (
                "_ZN5Shard6insertEiRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
                "Shard::insert",
            ),
            (
                "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE9_M_mutateEmmPKcm",
                "std::string::_M_mutate",
            ),
            ("_Znwm", "operator new"),
            ("_Z4workIiEvT_", "work<int>"),
            ("_Z4workv.cold", "work"),
            ("malloc", "malloc"),
            ("main.main", "main.main"),
            ("_Zjunk", "_Zjunk"),
            ("", ""),
        ] {
            assert_eq!(demangled(mangled), plain, "{mangled}");
        }
    }
}
