//! Names as people read them. Those of C++ can have a megabyte, nearly all of it in arguments of
//! templates.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A longer name loses arguments of templates, the innermost first.
const COLUMNS: usize = 60;
/// What is longer without any arguments loses its middle.
const COLUMNS_MAX: usize = 120;
/// Arguments within arguments that may stay.
const DEPTH_MAX: usize = 4;
/// The operators whose names look like brackets, those first that begin with others.
const OPERATORS: [&str; 11] = [
    "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">",
];

/// The name, shortened if it is long: `std::map<…, …>::at`.
pub fn short(name: &str) -> String {
    // `<A as Trait>::method` of Rust needs its first part.
    let least = usize::from(name.starts_with('<'));
    let mut best = None;
    for depth in (least..=DEPTH_MAX).rev() {
        let Some(text) = without_arguments(name, depth) else {
            break;
        };
        let is_short = text.width() <= COLUMNS;
        best = Some(text);
        if is_short {
            break;
        }
    }
    squeezed(best.as_deref().unwrap_or(name), COLUMNS_MAX).into_owned()
}

/// The text in at most so many columns, without its middle if it is longer.
pub fn squeezed(text: &str, columns: usize) -> std::borrow::Cow<'_, str> {
    if text.width() <= columns {
        return text.into();
    }
    let room = columns.saturating_sub(1);
    let head = taken(text.chars(), room.div_ceil(2));
    let tail = taken(text.chars().rev(), room / 2);
    format!("{}…{}", &text[..head], &text[text.len() - tail..]).into()
}

/// The bytes of the first characters that fit.
fn taken(chars: impl Iterator<Item = char>, columns: usize) -> usize {
    let (mut bytes, mut used) = (0, 0);
    for c in chars {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        bytes += c.len_utf8();
    }
    bytes
}

/// The name with `…` for arguments deeper than so many brackets; `None` if its brackets are none.
fn without_arguments(name: &str, depth_max: usize) -> Option<String> {
    let mut shortened = Shortened {
        depth_max,
        ..Shortened::default()
    };
    let mut rest = name;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let symbol = rest.strip_prefix("operator").and_then(|behind| {
            let is_word = !before.is_alphanumeric() && before != '_';
            let operator = OPERATORS.iter().find(|&&sign| behind.starts_with(sign));
            operator.filter(|_| is_word)
        });
        let token = symbol.map_or(c.len_utf8(), |sign| "operator".len() + sign.len());
        let (piece, behind) = rest.split_at(token);
        match c {
            '<' if symbol.is_none() => shortened.open(),
            '>' if before != '-' => shortened.close()?,
            _ => shortened.add(c, piece),
        }
        before = piece.chars().next_back().unwrap_or(' ');
        if symbol.is_some() {
            before = ' ';
        }
        rest = behind;
    }
    (shortened.depth == 0).then_some(shortened.text)
}

/// The beginning of a name without its deeper arguments.
#[derive(Default)]
struct Shortened {
    text: String,
    depth_max: usize,
    /// Brackets that are open.
    depth: usize,
    /// Parentheses inside of the outermost bracket that is left out.
    round: usize,
    /// Whether that bracket has an argument, and a second one.
    has_one: bool,
    has_more: bool,
}

impl Shortened {
    fn open(&mut self) {
        if self.depth <= self.depth_max {
            self.text.push('<');
        }
        self.depth += 1;
        if self.depth == self.depth_max + 1 {
            (self.has_one, self.has_more, self.round) = (false, false, 0);
        }
    }

    /// None if no bracket is open.
    fn close(&mut self) -> Option<()> {
        self.depth = self.depth.checked_sub(1)?;
        if self.depth == self.depth_max {
            self.text.push_str(match (self.has_one, self.has_more) {
                (_, true) => "…, …",
                (true, false) => "…",
                (false, false) => "",
            });
        }
        if self.depth <= self.depth_max {
            // The compiler's `> >` is from before C++11.
            if self.text.ends_with("> ") {
                self.text.pop();
            }
            self.text.push('>');
        }
        Some(())
    }

    /// Adds what is no bracket.
    fn add(&mut self, c: char, piece: &str) {
        if self.depth <= self.depth_max {
            self.text.push_str(piece);
            return;
        }
        self.has_one = true;
        match c {
            '(' | '[' | '{' => self.round += 1,
            ')' | ']' | '}' => self.round = self.round.saturating_sub(1),
            ',' => self.has_more |= self.depth == self.depth_max + 1 && self.round == 0,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_stay_whole_where_they_are_short() {
        for (whole, shown) in [
            (
                "std::map<int, std::pair<A, B> >::at",
                "std::map<int, std::pair<A, B>>::at",
            ),
            ("work<int>", "work<int>"),
            (
                "core::option::Option<T>::map::<U>",
                "core::option::Option<T>::map::<U>",
            ),
            ("f<fn(u8) -> u8>::g", "f<fn(u8) -> u8>::g"),
            ("A::operator<<", "A::operator<<"),
            ("A::operator->", "A::operator->"),
            ("A::operator< <int>", "A::operator< <int>"),
            ("main::{{closure}}", "main::{{closure}}"),
            ("a<b", "a<b"),
            ("a>b", "a>b"),
            ("<unknown", "<unknown"),
            ("", ""),
        ] {
            assert_eq!(short(whole), shown);
        }
    }

    #[test]
    fn long_names_lose_the_innermost_arguments_first() {
        for (whole, shown) in [
            (
                "Deep<std::map<std::string, std::vector<int>, std::less<std::string>, std::allocator<int> > >::go",
                "Deep<std::map<…, …>>::go",
            ),
            (
                "std::map<std::string, std::vector<int, std::allocator<int> >, std::less<std::string> >::at",
                "std::map<std::string, std::vector<…, …>, std::less<…>>::at",
            ),
            (
                "<shop::Shelf<shop::very::long::Path, shop::Other> as core::clone::Clone>::clone",
                "<shop::Shelf<…, …> as core::clone::Clone>::clone",
            ),
            (
                "std::function<void (int, std::string, unsigned long)>::operator()<A::very::long::Name>",
                "std::function<…>::operator()<…>",
            ),
            (
                "A::very::long::name::space::operator<< <std::char_traits<char>, std::allocator<char> >",
                "A::very::long::name::space::operator<< <…, …>",
            ),
        ] {
            assert_eq!(short(whole), shown);
        }
    }

    #[test]
    fn what_is_still_long_loses_its_middle() {
        let long = format!("a{}::end", "::b".repeat(100));
        let shown = short(&long);
        assert_eq!(shown.width(), COLUMNS_MAX);
        assert!(
            shown.starts_with("a::b") && shown.ends_with("::b::end"),
            "{shown}"
        );
        assert_eq!(squeezed("abcdef", 5), "ab…ef");
        assert_eq!(squeezed("abcdef", 0), "…");
        assert_eq!(squeezed("世界世界", 6), "世…界");
    }

    proptest! {
        #[test]
        fn any_name_has_a_short_form(name in "[<>a:, (){}…-]{0,200}|operator[<>-]{0,9}") {
            prop_assert!(short(&name).width() <= COLUMNS_MAX);
        }
    }
}
