//! Functions by a file's symbol table, for what its debug information does not cover.

use std::collections::HashMap;

use object::elf::SHF_EXECINSTR;
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionIndex, SymbolKind};

use super::Names;
use super::demangling::demangled;
use super::file::File;
use crate::model::{Frame, Texts};

pub struct Symbols<'a> {
    /// In the order of their addresses.
    functions: Vec<Function<'a>>,
    kind: Kind,
}

struct Function<'a> {
    address: u64,
    /// Without a size, the end of its section; assembler code often states none.
    end: u64,
    name: &'a str,
}

/// Which functions are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    All,
    Exported,
    None,
}

impl<'a> Symbols<'a> {
    /// The best table that one of these files has.
    pub fn of<'f>(files: impl Iterator<Item = &'f File<'a>>) -> Symbols<'a>
    where
        'a: 'f,
    {
        let mut exported = Vec::new();
        for file in files {
            let all = functions(&file.elf, file.elf.symbols());
            if !all.is_empty() {
                return Symbols {
                    functions: all,
                    kind: Kind::All,
                };
            }
            if exported.is_empty() {
                exported = functions(&file.elf, file.elf.dynamic_symbols());
            }
        }
        let kind = if exported.is_empty() {
            Kind::None
        } else {
            Kind::Exported
        };
        Symbols {
            functions: exported,
            kind,
        }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Gives names to the outermost frames that have none, or a poor one. Both lists belong to the
    /// same addresses.
    pub fn complete(&self, probes: &[u64], names: &mut Names, texts: &mut Texts) {
        for (probe, frames) in probes.iter().zip(names) {
            let symbol = self.at(*probe);
            let known = frames.last().map_or("", |frame| &*frame.function);
            // Functions of C++ that only one file sees have a bare name in the debug information.
            let is_better = symbol.is_some_and(|symbol| symbol.starts_with("_Z"));
            if !known.is_empty() && (!is_better || known.contains("::")) {
                continue;
            }
            let Some(symbol) = symbol else {
                // A line without a function has too little for a frame.
                frames.clear();
                continue;
            };
            let function = texts.get(&demangled(symbol));
            match frames.last_mut() {
                Some(frame) => frame.function = function,
                None => frames.push(Frame {
                    function,
                    ..Frame::default()
                }),
            }
        }
    }

    fn at(&self, probe: u64) -> Option<&'a str> {
        let next = self.functions.partition_point(|f| f.address <= probe);
        let function = &self.functions[next.checked_sub(1)?];
        (probe < function.end).then_some(function.name)
    }
}

fn functions<'a>(
    elf: &object::File<'a>,
    symbols: impl Iterator<Item = impl ObjectSymbol<'a>>,
) -> Vec<Function<'a>> {
    // The section of code that a symbol lies in ends where a symbol without a size ends at most.
    let code: HashMap<SectionIndex, u64> = elf
        .sections()
        .filter(|section| match section.flags() {
            // By the flag, not the kind: a separate debug file has the section without contents.
            SectionFlags::Elf { sh_flags, .. } => sh_flags.0 & SHF_EXECINSTR.0 != 0,
            _ => false,
        })
        .map(|section| {
            let end = section.address().saturating_add(section.size());
            (section.index(), end)
        })
        .collect();
    let mut functions: Vec<Function<'a>> = symbols
        .filter_map(|symbol| {
            let code_end = *code.get(&symbol.section_index()?)?;
            let name = symbol.name().ok()?;
            let name = name.split_once('@').map_or(name, |(name, _version)| name);
            let is_label = name.is_empty() || name.starts_with(['.', '$']);
            let is_function = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown);
            (is_function && !is_label).then_some(Function {
                address: symbol.address(),
                end: match symbol.size() {
                    0 => code_end,
                    size => symbol.address().saturating_add(size),
                },
                name,
            })
        })
        .collect();
    // Of several at one address the last counts: one with a size before one without, then by name.
    functions.sort_by(|a, b| {
        let order = a.address.cmp(&b.address).then(b.end.cmp(&a.end));
        order.then_with(|| b.name.cmp(a.name))
    });
    functions
}
