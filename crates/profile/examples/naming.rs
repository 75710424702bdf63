//! How long names take: `cargo run --release -p mallard-profile --example naming -- FILE [COUNT]`
//! names addresses that are spread evenly over the functions of an ELF file.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use mallard_profile::model::{Location, Mapping, MappingIndex, Profile};
use mallard_profile::names::{self, Options};
use object::{Object, ObjectSymbol, ReadCache, SymbolKind};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: naming FILE [COUNT]")?;
    let count: usize = arguments.next().map_or(Ok(10_000), |count| count.parse())?;
    let addresses = spread(Path::new(&path), count)?;
    let mapping = Mapping {
        start: 0,
        limit: u64::MAX,
        path: Path::new(&path).canonicalize()?.to_string_lossy().into(),
        ..Mapping::default()
    };
    let mut profile = Profile {
        mappings: vec![mapping],
        ..Profile::default()
    };
    profile.locations = addresses
        .into_iter()
        .map(|address| Location {
            address,
            mapping: Some(MappingIndex(0)),
            frames: Vec::new(),
        })
        .collect();
    let before = Instant::now();
    // Named by hand, the file may be a separate debug file as well.
    let options = Options {
        files: vec![path.into()],
        ..Options::default()
    };
    let outcome = names::name(&mut profile, &options);
    let seconds = before.elapsed().as_secs_f64();
    let named = profile.locations.iter().filter(|l| !l.frames.is_empty());
    let with_lines = named.clone().filter(|l| l.frames[0].line > 0);
    let inlined = named.clone().filter(|l| l.frames.len() > 1);
    println!(
        "{} addresses: {} named, {} with lines, {} inside inlined functions",
        profile.locations.len(),
        named.count(),
        with_lines.count(),
        inlined.count()
    );
    for lack in outcome.lacks {
        println!("{lack}");
    }
    println!("{seconds:.2} s, peak RSS {}", peak_rss()?);
    Ok(())
}

/// Addresses within functions, evenly spread over the symbol table.
fn spread(path: &Path, count: usize) -> Result<Vec<u64>, Box<dyn Error>> {
    let cache = ReadCache::new(std::fs::File::open(path)?);
    let elf = object::File::parse(&cache)?;
    let mut functions: Vec<(u64, u64)> = elf
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 8)
        .map(|symbol| (symbol.address(), symbol.size()))
        .collect();
    functions.sort_unstable();
    functions.dedup();
    let all = functions.len();
    if all == 0 {
        return Err("the file has no symbol table".into());
    }
    let place = |index: usize| {
        let (start, size) = functions[index * all / count];
        // Somewhere inside, different for each.
        start + size * (1 + index as u64 % 7) / 8
    };
    Ok((0..count).map(place).collect())
}

/// The peak of this process. It counts the pages of the mapped file that were read.
fn peak_rss() -> Result<String, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    Ok(line.unwrap_or("VmHWM: unknown")["VmHWM:".len()..]
        .trim()
        .to_owned())
}
