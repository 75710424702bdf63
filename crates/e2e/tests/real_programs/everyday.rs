//! Small everyday programs: they are on every machine, and allocate in the loader, before `main`,
//! and between `fork` and `exec`.

use mallard_e2e::Sandbox;

use crate::{Case, Transcript, piece};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "ls",
            needs: &["ls"],
            served: &["ls"],
            own_allocator: &[],
            run: ls,
        },
        Case {
            name: "bash",
            needs: &["bash"],
            served: &["bash", "sort", "awk"],
            own_allocator: &[],
            run: bash,
        },
        Case {
            name: "ldd",
            needs: &["bash", "ldd"],
            served: &["bash"],
            own_allocator: &[],
            run: ldd,
        },
        Case {
            name: "sort_threads",
            needs: &["sort"],
            served: &["sort"],
            own_allocator: &[],
            run: sort_threads,
        },
        Case {
            name: "tar_pipeline",
            needs: &["tar", "gzip"],
            served: &["tar", "gzip"],
            own_allocator: &[],
            run: tar,
        },
    ]
}

fn ls(sandbox: &Sandbox) -> Result<Transcript, String> {
    let listing = sandbox.run(sandbox.command("ls").args(["-lR", "/usr/include"]))?;
    Ok(vec![piece("the listing", listing.stdout)])
}

const BASH_SCRIPT: &str = r#"
set -eu
declare -A words
for i in $(seq 1 4000); do
  word="w$((i * 7919 % 613))"
  words[$word]="${words[$word]:-}$i,"
done
for key in "${!words[@]}"; do echo "$key ${words[$key]}"; done | sort | tail -n 40
text=""
for i in $(seq 1 2000); do text+="line $i"$'\n'; done
echo "${#text}"
mapfile -t lines <<<"$text"
echo "${#lines[@]} ${lines[1234]}"
for i in 1 2 3 4 5 6 7 8; do
  ( x=$(seq 1 $((i * 1000)) | awk '{ s += $1; a[$1 % 97] = a[$1 % 97] $1 } END { print s, length(a[13]) }'); echo "$i $x" ) &
  wait $!
done
f() { local n=$1; if [ "$n" -gt 0 ]; then f $((n - 1)); else echo bottom; fi; }
f 400
"#;

fn bash(sandbox: &Sandbox) -> Result<Transcript, String> {
    let script = sandbox.write("work.bash", BASH_SCRIPT);
    let output = sandbox.run(sandbox.command("bash").arg(script))?;
    Ok(vec![piece("the output", output.stdout)])
}

/// The program here is the loader itself, which allocates before anything else. The list also names
/// the preloaded libraries, and must still have all entries that it has without them.
fn ldd(sandbox: &Sandbox) -> Result<Transcript, String> {
    let list = |mut command: std::process::Command| -> Result<Vec<String>, String> {
        let output = sandbox.run(command.args(["-c", "ldd \"$(command -v bash)\""]))?;
        Ok(output
            .stdout_text()
            .lines()
            .map(|line| line.split(" (0x").next().unwrap_or(line).to_owned())
            .collect())
    };
    let plain = list(sandbox.plain_command("bash"))?;
    let kept: Vec<String> = list(sandbox.command("bash"))?
        .into_iter()
        .filter(|line| plain.contains(line))
        .collect();
    Ok(vec![piece("the list of objects", sorted(kept).join("\n"))])
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

fn sort_threads(sandbox: &Sandbox) -> Result<Transcript, String> {
    let mut state = 12345_u32;
    let mut lines = String::new();
    for _ in 0..100_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        lines.push_str(&format!("{:08x} {}\n", state, state % 977));
    }
    let sorted = sandbox.run_with_input(
        sandbox
            .command("sort")
            .args(["--parallel=4", "-k2,2n", "-k1,1"]),
        lines.as_bytes(),
    )?;
    Ok(vec![piece("the sorted lines", sorted.stdout)])
}

fn tar(sandbox: &Sandbox) -> Result<Transcript, String> {
    let pack = "tar --sort=name --mtime=@0 --owner=0 --group=0 -cf - -C /usr/include/linux . | gzip -n6 > all.tar.gz \
                && mkdir out && tar -xzf all.tar.gz -C out && cat $(find out -name '*.h' | sort) | sha256sum \
                && sha256sum all.tar.gz";
    let output = sandbox.run(sandbox.command("sh").args(["-c", pack]))?;
    Ok(vec![piece("the sums", output.stdout)])
}
