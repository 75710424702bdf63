//! A browser: a dozen processes, and hundreds of threads and libraries. Its own code uses its own
//! allocator, and the library must coexist with it and serve everything else in its processes.

use mallard_e2e::Sandbox;

use crate::{Case, Transcript, piece};

pub fn cases() -> Vec<Case> {
    vec![Case {
        name: "chromium",
        needs: &["chromium"],
        served: &[],
        own_allocator: &["chromium", "chrome_crashpad"],
        run: chromium,
    }]
}

const PAGE: &str = r##"<!doctype html><title>work</title><body><h1>Mallard</h1><canvas id=c width=300 height=200></canvas><script>
let state = 7;
const next = () => (state = state * 48271 % 2147483647);
const table = document.createElement("table");
for (let y = 0; y < 120; y++) {
  const row = table.insertRow();
  for (let x = 0; x < 12; x++) row.insertCell().textContent = (next() % 100000).toString(36);
}
document.body.append(table);
const words = new Map();
for (let i = 0; i < 50000; i++) { const k = (next() % 999).toString(36); words.set(k, (words.get(k) || "") + k); }
const pen = document.getElementById("c").getContext("2d");
for (let i = 0; i < 2000; i++) { pen.fillStyle = "#" + (next() % 4096).toString(16).padStart(3, "0"); pen.fillRect(next() % 300, next() % 200, 9, 9); }
document.body.append([...words.values()].map((text) => text.length).join(" "));
</script>"##;

fn chromium(sandbox: &Sandbox) -> Result<Transcript, String> {
    let page = sandbox.write("page.html", PAGE);
    let url = format!("file://{}", page.display());
    // A socket's path may have 108 letters at most, which a folder in the checkout may exceed.
    let short = tempfile::tempdir().map_err(|error| format!("no folder for sockets: {error}"))?;
    let browse = |action: &str| {
        let mut command = sandbox.command("chromium");
        command.env("TMPDIR", short.path());
        command.args(
            "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
                .split(' '),
        );
        command.args([
            "--disable-background-networking",
            "--disable-component-update",
            "--virtual-time-budget=10000",
        ]);
        command.arg(format!(
            "--user-data-dir={}",
            sandbox.path("profile").display()
        ));
        sandbox.run(command.args([action, "--no-pdf-header-footer", &url]))
    };
    let dom = browse("--dump-dom")?;
    browse("--print-to-pdf=page.pdf")?;
    let pdf = without_dates(&sandbox.read("page.pdf")?);
    if !pdf.starts_with(b"%PDF") {
        return Err("chromium printed no PDF".to_owned());
    }
    Ok(vec![
        piece("the page's DOM", dom.stdout),
        piece("the printed page", pdf),
    ])
}

/// The PDF without the two lines that have the time of printing.
fn without_dates(pdf: &[u8]) -> Vec<u8> {
    let is_date = |line: &&[u8]| {
        [&b"/CreationDate"[..], b"/ModDate"]
            .iter()
            .any(|key| line.starts_with(key))
    };
    pdf.split(|&byte| byte == b'\n')
        .filter(|line| !is_date(line))
        .collect::<Vec<_>>()
        .join(&b'\n')
}
