//! Readable names of C++ and Rust functions.

use std::borrow::Cow;
use std::fmt;
use std::thread;

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// Longer names are left as they are. No compiler writes them.
const NAME_BYTES_MAX: usize = 1 << 20;
/// Parts within parts that are followed on the caller's stack, as in nearly every name.
const RECURSION_MAX: u32 = 96;
/// Those that are followed on a stack of their own, and its size: 16 KiB each.
const DEEP_RECURSION_MAX: u32 = 4096;
const DEEP_STACK_BYTES: usize = 64 << 20;
/// A name repeats its parts by number, so that a few hundred bytes can stand for any length. From
/// here on arguments of arguments are left out, and from there on the name stays as it is.
const WHOLE_BYTES_MAX: usize = 1 << 20;
const WORK_BYTES_MAX: usize = 16 << 20;
/// Arguments within arguments of a name that is too long.
const OUTLINE_DEPTH_MAX: usize = 2;

/// The name as a programmer wrote it, without parameters and without the hash that Rust adds. Other
/// languages' names, such as Swift's, stay as they are.
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
    match of_itanium(whole, RECURSION_MAX).or_else(|| on_own_stack(whole)) {
        Some(demangled) => Cow::Owned(readable(demangled)),
        None => Cow::Borrowed(name),
    }
}

/// Demangles a name of parts within parts; `None` also for what only looks like a name.
fn on_own_stack(name: &str) -> Option<String> {
    // In so few bytes nothing is that deep.
    if name.len() < RECURSION_MAX as usize / 2 {
        return None;
    }
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(DEEP_STACK_BYTES);
        let deep = thread.spawn_scoped(scope, || of_itanium(name, DEEP_RECURSION_MAX));
        deep.ok()?.join().ok()?
    })
}

fn of_itanium(name: &str, recursion_max: u32) -> Option<String> {
    let parse = ParseOptions::default().recursion_limit(recursion_max);
    let options = DemangleOptions::new()
        .no_params()
        .no_return_type()
        .hide_expression_literal_types()
        .recursion_limit(recursion_max);
    let symbol = Symbol::new_with_options(name, &parse).ok()?;
    let mut text = Bounded::default();
    symbol.structured_demangle(&mut text, &options).ok()?;
    Some(text.end())
}

/// A name while it is written, and its outline in case it becomes too long.
#[derive(Default)]
struct Bounded {
    whole: String,
    outline: String,
    bytes: usize,
    /// Brackets that are open.
    depth: usize,
    before: char,
}

impl Bounded {
    fn end(self) -> String {
        if self.bytes <= WHOLE_BYTES_MAX {
            self.whole
        } else {
            self.outline
        }
    }

    fn outline(&mut self, text: &str) {
        for c in text.chars() {
            let is_close = c == '>' && self.before != '-';
            if is_close {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == OUTLINE_DEPTH_MAX {
                    self.outline.push('…');
                }
            }
            if self.depth <= OUTLINE_DEPTH_MAX {
                self.outline.push(c);
            }
            self.depth += usize::from(c == '<');
            self.before = c;
        }
    }
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes += text.len();
        if self.bytes <= WHOLE_BYTES_MAX {
            self.whole.push_str(text);
        }
        self.outline(text);
        if self.bytes > WORK_BYTES_MAX {
            Err(fmt::Error)
        } else {
            Ok(())
        }
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

    /// The name of `Deep<T>::go` for a map of maps of maps, each of which repeats its parts.
    const REPEATED: &str = "_ZN4DeepISt3mapIS0_IS0_INSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt6vectorIS0_IS6_S7_IS0_IiS6_St4lessIiESaISt4pairIKiS6_EEESaISE_EES8_IS6_ESaISA_IKS6_SG_EEESaISL_EESH_SaISA_ISI_SN_EEES0_ISQ_SQ_S8_ISQ_ESaISA_IKSQ_SQ_EEESR_SaISA_ISS_SV_EEES0_ISY_SY_S8_ISY_ESaISA_IKSY_SY_EEESZ_SaISA_IS10_S13_EEEE2goEv";

    #[test]
    fn names_of_any_length_are_read() {
        let name = demangled(REPEATED);
        assert!(name.len() > 300_000, "{} bytes", name.len());
        assert!(name.starts_with("Deep<std::map<std::map<std::map<std::string, std::vector<"));
        assert!(name.ends_with(">::go"), "{}", &name[name.len() - 99..]);
        // Far deeper than other names, and long.
        for depth in [40, 300] {
            let name = format!(
                "_ZN4DeepI{}i{}E2goEv",
                "3BoxI".repeat(depth),
                "E".repeat(depth)
            );
            let plain = demangled(&name);
            assert!(plain.starts_with("Deep<Box<Box<"), "{depth}: {plain}");
            assert!(plain.ends_with(">::go"), "{depth}: {plain}");
        }
        let wide = format!("_ZN4DeepIJ{}EE2goEv", "11a_long_name".repeat(10_000));
        let plain = demangled(&wide);
        assert!(plain.len() > 130_000 && plain.ends_with(", a_long_name>::go"));
    }

    /// Each pair doubles what the one before stands for.
    #[test]
    fn names_that_stand_for_gigabytes_have_an_end() {
        let pairs = |count: u32| {
            let mut name = "_ZN4DeepI4PairIiiE".to_owned();
            for i in 0..count {
                let part = match i {
                    0 => "S1_".to_owned(),
                    _ => format!(
                        "S{}_",
                        std::char::from_digit(i + 1, 36).unwrap().to_uppercase()
                    ),
                };
                name += &format!("S0_I{part}{part}E");
            }
            name + "E2goEv"
        };
        let outlined = demangled(&pairs(17)).into_owned();
        assert!(
            outlined.len() < 1 << 20 && outlined.ends_with("::go"),
            "{outlined:.200}"
        );
        assert!(outlined.contains('…'), "{outlined:.200}");
        assert_eq!(demangled(&pairs(30)), pairs(30));
    }

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
            ("$s4main3fooyyF", "$s4main3fooyyF"),
            ("_RINvNtC3std3mem8align_ofdE", "std::mem::align_of::<f64>"),
            ("", ""),
        ] {
            assert_eq!(demangled(mangled), plain, "{mangled}");
        }
    }
}
