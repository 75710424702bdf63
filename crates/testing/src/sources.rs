//! Reads source files, and their tokens for the paths in them that lead to modules of the crate.

use std::fs;
use std::path::Path;

pub use proc_macro2;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path in a source file that leads to a module of the crate.
#[derive(Debug, PartialEq)]
pub struct Use {
    /// The names from the crate's root on; the first is the layer's.
    pub path: Vec<String>,
    pub line: usize,
    /// Whether the path is in a module for tests, or for models of them.
    pub is_test: bool,
}

/// A name that a `use` brings into a module, and the path that it stands for.
#[derive(Debug, PartialEq)]
pub struct Import {
    pub name: String,
    pub path: Vec<String>,
}

impl Use {
    pub fn layer(&self) -> &str {
        &self.path[0]
    }
}

/// The Rust sources below a folder: the path from there, and the text.
///
/// # Panics
/// A folder or a source cannot be read, or a name is not UTF-8.
pub fn read_below(folder: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    read_into(folder, folder, &mut files);
    files
}

fn read_into(root: &Path, folder: &Path, files: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("the sources are here") {
        let path = entry.expect("a folder can be read").path();
        if path.is_dir() {
            read_into(root, &path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = path.strip_prefix(root).expect("it lies below");
            let source = fs::read_to_string(&path).expect("a source can be read");
            files.push((file.to_str().expect("names are UTF-8").to_owned(), source));
        }
    }
}

/// The names of a file's module, from the crate's root on.
pub fn modules_of(file: &str) -> Vec<String> {
    let mut modules: Vec<String> = (file.trim_end_matches(".rs").split('/'))
        .map(str::to_string)
        .collect();
    if modules.last().is_some_and(|last| last == "mod") {
        modules.pop();
    }
    modules
}

/// The paths in a source to modules of the crate, through `crate` or `super`.
pub fn uses(source: &str, modules: &[String]) -> Vec<Use> {
    let tokens: TokenStream = source.parse().expect("a source file consists of tokens");
    let mut found = Vec::new();
    scan(&inside(tokens), modules, &mut found);
    found
}

/// What the `use`s of a module itself, not of modules within it, bring in from the crate.
pub fn imports(source: &str, module: &[String]) -> Vec<Import> {
    let tokens: TokenStream = source.parse().expect("a source file consists of tokens");
    let mut found = Vec::new();
    imports_of(&inside(tokens), module, &mut found);
    found
}

fn imports_of(tokens: &[TokenTree], module: &[String], found: &mut Vec<Import>) {
    for (at, token) in tokens.iter().enumerate() {
        let rest = &tokens[at + 1..];
        if is_word(token, "use") {
            let end = rest.iter().position(|token| is_mark(token, ';'));
            imported(
                &rest[..end.unwrap_or(rest.len())],
                Vec::new(),
                module,
                found,
            );
        }
        // `cfg_if! { if #[cfg(…)] { items } else { items } }`
        if is_word(token, "cfg_if")
            && let [_, TokenTree::Group(branches), ..] = rest
        {
            for branch in inside(branches.stream()) {
                if let TokenTree::Group(items) = branch {
                    imports_of(&inside(items.stream()), module, found);
                }
            }
        }
    }
}

/// Records the names of a `use`; `before` is empty at its start.
fn imported(
    rest: &[TokenTree],
    mut before: Vec<String>,
    module: &[String],
    found: &mut Vec<Import>,
) {
    match rest.first() {
        Some(TokenTree::Group(list)) => {
            inside(list.stream())
                .split(|token| is_mark(token, ','))
                .for_each(|path| imported(path, before.clone(), module, found));
            return;
        }
        Some(TokenTree::Ident(word)) => match word.to_string().as_str() {
            "crate" => before.clear(),
            "self" if before.is_empty() => before = module.to_vec(),
            "self" => {}
            "super" => {
                if before.is_empty() {
                    before = module.to_vec();
                }
                before.pop();
            }
            name => {
                // Of another crate or of a child.
                if before.is_empty() {
                    before = module.to_vec();
                }
                before.push(name.to_owned());
            }
        },
        _ => return,
    }
    if let Some(rest) = after_colons(&rest[1..]) {
        return imported(rest, before, module, found);
    }
    let name = match rest {
        [_, renamed, TokenTree::Ident(name), ..] if is_word(renamed, "as") => name.to_string(),
        _ => before.last().cloned().unwrap_or_default(),
    };
    found.push(Import { name, path: before });
}

pub fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(it) if it == word)
}

pub fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(it) if it.as_char() == mark)
}

fn scan(tokens: &[TokenTree], modules: &[String], found: &mut Vec<Use>) {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Ident(word) if *word == "mod" => {
                // `mod name { … }` is one level deeper; `mod name;` is another file.
                if let Some(TokenTree::Group(body)) = tokens.get(at + 2) {
                    let before = found.len();
                    let name = tokens[at + 1].to_string();
                    let inner = [modules, std::slice::from_ref(&name)].concat();
                    scan(&inside(body.stream()), &inner, found);
                    if name == "tests" || name == "models" {
                        found[before..].iter_mut().for_each(|u| u.is_test = true);
                    }
                    at += 2;
                }
            }
            TokenTree::Ident(word) if *word == "crate" => {
                if let Some(rest) = after_colons(&tokens[at + 1..]) {
                    names(rest, Vec::new(), found);
                }
            }
            TokenTree::Ident(word) if *word == "super" && !follows_colons(tokens, at) => {
                names(&tokens[at..], modules.to_vec(), found);
            }
            TokenTree::Group(group) => scan(&inside(group.stream()), modules, found),
            _ => {}
        }
        at += 1;
    }
}

/// Records the paths that continue one from the crate's root: each of a list is one of its own.
fn names(rest: &[TokenTree], mut before: Vec<String>, found: &mut Vec<Use>) {
    let (name, line) = match rest.first() {
        Some(TokenTree::Ident(word)) if *word == "super" => {
            before.pop();
            if let Some(rest) = after_colons(&rest[1..]) {
                names(rest, before, found);
            }
            return;
        }
        Some(TokenTree::Group(list)) if list.delimiter() == Delimiter::Brace => {
            let list = inside(list.stream());
            list.split(|token| is_mark(token, ','))
                .for_each(|path| names(path, before.clone(), found));
            return;
        }
        Some(TokenTree::Ident(word)) if *word == "self" => return,
        Some(TokenTree::Ident(word)) => (word.to_string(), word.span().start().line),
        Some(TokenTree::Punct(star)) if star.as_char() == '*' => {
            ("*".to_string(), star.span().start().line)
        }
        _ => return,
    };
    before.push(name);
    match after_colons(&rest[1..]) {
        Some(
            rest @ [
                TokenTree::Ident(_) | TokenTree::Group(_) | TokenTree::Punct(_),
                ..,
            ],
        ) if continues(rest) => {
            let known = found.len();
            names(rest, before.clone(), found);
            // `module::{self}` uses the module.
            if found.len() == known {
                found.push(Use::of(before, line));
            }
        }
        _ => found.push(Use::of(before, line)),
    }
}

/// Whether names follow, and not the angle of a generic argument.
fn continues(rest: &[TokenTree]) -> bool {
    match &rest[0] {
        TokenTree::Punct(p) => p.as_char() == '*',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => true,
    }
}

impl Use {
    fn of(path: Vec<String>, line: usize) -> Use {
        Use {
            path,
            line,
            is_test: false,
        }
    }
}

pub fn inside(stream: TokenStream) -> Vec<TokenTree> {
    stream.into_iter().collect()
}

/// The tokens after a leading `::`.
pub fn after_colons(tokens: &[TokenTree]) -> Option<&[TokenTree]> {
    match tokens {
        [TokenTree::Punct(a), TokenTree::Punct(b), rest @ ..]
            if a.as_char() == ':' && b.as_char() == ':' =>
        {
            Some(rest)
        }
        _ => None,
    }
}

/// Whether the token continues a path.
fn follows_colons(tokens: &[TokenTree], at: usize) -> bool {
    at >= 2 && after_colons(&tokens[at - 2..at]).is_some()
}
