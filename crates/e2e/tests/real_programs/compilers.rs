//! Compilers: they make millions of objects, and their output is compared byte for byte.

use std::fmt::Write;

use mallard_e2e::Sandbox;

use crate::{Case, Transcript, piece};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "gcc",
            needs: &["gcc"],
            served: &["gcc", "cc1", "as", "collect2", "ld"],
            own_allocator: &[],
            run: gcc,
        },
        Case {
            name: "gxx",
            needs: &["g++"],
            served: &["g++", "cc1plus", "as", "ld"],
            own_allocator: &[],
            run: gxx,
        },
        Case {
            name: "cargo",
            needs: &["cargo"],
            served: &["cargo"],
            own_allocator: RUSTC,
            run: cargo,
        },
    ]
}

/// On this platform the compiler has its own allocator.
const RUSTC: &[&str] = &["rustc"];

/// A C file of many functions that call each other, each with loops to unroll and tables to lay
/// out.
fn large_c_source() -> String {
    let mut source = String::from("#include <stdio.h>\n#include <string.h>\n#include <math.h>\n");
    for n in 0..150 {
        write!(
            source,
            "struct s{n} {{ int a[{len}]; double d; struct s{n} *next; }};\n\
             static const int table{n}[] = {{{table}}};\n\
             int f{n}(struct s{n} *s, int x) {{\n\
               int sum = {n};\n\
               for (int i = 0; i < {len}; i++) sum += s->a[i] * table{n}[(i + x) & 31] ^ (x << (i & 7));\n\
               switch (x % 11) {{ {cases} default: sum -= x; }}\n\
               return s->next ? f{n}(s->next, sum) : sum + (int)s->d{call};\n\
             }}\n",
            len = 8 + n % 24,
            table = (0..32).map(|k| (k * n % 251).to_string()).collect::<Vec<_>>().join(","),
            cases = (0..8).map(|k| format!("case {k}: sum ^= {}; break;", k * n)).collect::<String>(),
            call = if n == 0 { String::new() } else { format!(" + f{}((void *)s, x / 2)", n - 1) },
        )
        .expect("writing to a string succeeds");
    }
    source.push_str("int main(void) { static struct s0 s; s.d = sqrt(2.0); printf(\"%d\\n\", f0(&s, 5)); return 0; }\n");
    source
}

fn gcc(sandbox: &Sandbox) -> Result<Transcript, String> {
    sandbox.write("large.c", &large_c_source());
    sandbox.run(
        sandbox
            .command("gcc")
            .args(["-O2", "-g", "-Wno-all", "-c", "large.c", "-o", "large.o"]),
    )?;
    sandbox.run(
        sandbox
            .command("gcc")
            .args(["large.o", "-lm", "-o", "large"]),
    )?;
    let output = sandbox.run(&mut sandbox.command(sandbox.path("large")))?;
    Ok(vec![
        piece("the object file", sandbox.read("large.o")?),
        piece("the linked program", sandbox.read("large")?),
        piece("the program's output", output.stdout),
    ])
}

const HEAVY_CPP: &str = r#"
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

template <int N> struct Fib { static constexpr long value = Fib<N - 1>::value + Fib<N - 2>::value; };
template <> struct Fib<1> { static constexpr long value = 1; };
template <> struct Fib<0> { static constexpr long value = 0; };

template <int... I> constexpr long sum(std::integer_sequence<int, I...>) { return (Fib<(I % 60)>::value + ... + 0); }

template <int N> struct Node {
    std::map<std::string, std::tuple<std::array<int, N>, std::vector<std::shared_ptr<Node<N - 1>>>>> children;
    std::variant<int, std::string, std::array<char, N>> value;
    std::function<long(int)> visit = [this](int n) { return n + static_cast<long>(children.size()) + N; };
};
template <> struct Node<0> {};

template <int N> long build() {
    auto node = std::make_unique<Node<N>>();
    node->children["x"] = {};
    node->children["y"] = {};
    if constexpr (N > 1) return node->visit(1) + build<N - 1>();
    else return node->visit(2);
}

int main() {
    std::unordered_map<std::string, std::vector<int>> words;
    std::string text = "one two three two one";
    std::regex pattern("[a-z]+");
    int at = 0;
    for (std::sregex_iterator i(text.begin(), text.end(), pattern), end; i != end; ++i) words[i->str()].push_back(at++);
    std::cout << sum(std::make_integer_sequence<int, 200>{}) << ' ' << build<9>() << ' ' << words.size() << '\n';
}
"#;

fn gxx(sandbox: &Sandbox) -> Result<Transcript, String> {
    sandbox.write("heavy.cpp", HEAVY_CPP);
    sandbox.run(
        sandbox
            .command("g++")
            .args("-std=c++17 -O1 -c heavy.cpp -o heavy.o".split(' ')),
    )?;
    sandbox.run(sandbox.command("g++").args(["heavy.o", "-o", "heavy"]))?;
    let output = sandbox.run(&mut sandbox.command(sandbox.path("heavy")))?;
    Ok(vec![
        piece("the object file", sandbox.read("heavy.o")?),
        piece("the program's output", output.stdout),
    ])
}

const BUILD_RS: &str = r#"
fn main() {
    let out = std::env::var("OUT_DIR").unwrap();
    let functions: String = (0..250).map(|n| format!(
        "pub fn f{n}(map: &mut std::collections::BTreeMap<String, Vec<u64>>) -> u64 {{
            map.entry(format!(\"{{}}\", {n} % 37)).or_default().push({n});
            map.values().flatten().filter(|value| *value % {m} == 0).map(|value| value.wrapping_mul({n})).sum()
        }}\n", m = n % 7 + 1)).collect();
    let all: String = (0..250).map(|n| format!("total = total.wrapping_add(f{n}(&mut map));\n")).collect();
    let all = format!("pub fn all() -> u64 {{ let mut map = Default::default(); let mut total = 0u64; {all} total }}");
    std::fs::write(format!("{out}/functions.rs"), functions + &all).unwrap();
}
"#;

const MAIN_RS: &str = r#"
mod functions { include!(concat!(env!("OUT_DIR"), "/functions.rs")); }
fn main() {
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(functions::all)).collect();
    for thread in threads { println!("{}", thread.join().unwrap()); }
}
"#;

/// Runs cargo, a build script, the compiler with its threads, and the linker.
fn cargo(sandbox: &Sandbox) -> Result<Transcript, String> {
    sandbox.write(
        "crate/Cargo.toml",
        "[package]\nname = \"work\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n",
    );
    sandbox.write("crate/build.rs", BUILD_RS);
    sandbox.write("crate/src/main.rs", MAIN_RS);
    let mut build = sandbox.command("cargo");
    build
        .current_dir(sandbox.path("crate"))
        .args(["build", "--offline", "--quiet"]);
    sandbox.run(build.env("CARGO_TARGET_DIR", sandbox.path("target")))?;
    let output = sandbox.run(&mut sandbox.command(sandbox.path("target/debug/work")))?;
    Ok(vec![
        piece("the built program", sandbox.read("target/debug/work")?),
        piece("its output", output.stdout),
    ])
}
