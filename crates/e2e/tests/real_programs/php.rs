//! PHP, which loads its extensions as plug-ins with `RTLD_DEEPBIND` (before 8.5): alone, as a
//! FastCGI server, and inside Apache.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mallard_e2e::service::free_ports;
use mallard_e2e::{Sandbox, Service};
use rustix::process::Signal;

use crate::languages::program;
use crate::{Case, Transcript, piece};

/// Requests to a server, spread over several processes or threads.
const REQUESTS: usize = 8;

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "php",
            needs: &["php"],
            served: &["php"],
            own_allocator: &[],
            run: php,
        },
        Case {
            name: "php_fpm",
            needs: &["php", "php-fpm*"],
            served: &["php-fpm"],
            own_allocator: &[],
            run: fpm,
        },
        Case {
            name: "apache_with_php",
            needs: &["apache2", "/usr/lib/apache2/modules/libphp*.so"],
            served: &["apache2"],
            own_allocator: &[],
            run: apache,
        },
    ]
}

fn script(sandbox: &Sandbox) -> PathBuf {
    sandbox.write("work.php", &program("work.php"))
}

/// Runs PHP with its own pools, and with every block from `malloc`.
fn php(sandbox: &Sandbox) -> Result<Transcript, String> {
    let script = script(sandbox);
    let mut transcript = Transcript::new();
    for pools in ["1", "0"] {
        let mut command = sandbox.command("php");
        let output = sandbox.run(command.env("USE_ZEND_ALLOC", pools).arg(&script))?;
        transcript.push(piece("the output", output.stdout));
        transcript.push(piece("the error output", output.stderr));
    }
    Ok(transcript)
}

/// The server's processes are also replaced after some requests.
fn fpm(sandbox: &Sandbox) -> Result<Transcript, String> {
    let script = script(sandbox);
    // A socket's path may have about a hundred bytes at most.
    let folder = tempfile::tempdir().map_err(|error| format!("no folder for a socket: {error}"))?;
    let socket = folder.path().join("fpm");
    let user = if rustix::process::geteuid().is_root() {
        "user = nobody\ngroup = nogroup\n"
    } else {
        ""
    };
    let configuration = format!(
        "[global]\nerror_log = /dev/stderr\ndaemonize = no\n\
         [www]\nlisten = {}\nlisten.mode = 0666\n{user}pm = static\npm.max_children = 3\npm.max_requests = 3\n\
         clear_env = no\ncatch_workers_output = yes\n",
        socket.display()
    );
    open_to_all(sandbox)?;
    let configuration = sandbox.write("fpm.conf", &configuration);
    let mut command = found(sandbox, "php-fpm*")?;
    command.env("USE_ZEND_ALLOC", "0");
    command.arg("--nodaemonize").arg("--fpm-config");
    let mut server = Service::start(sandbox, "php-fpm", command.arg(configuration))?;
    server.await_ready(|| UnixStream::connect(&socket).is_ok())?;
    let mut transcript = Transcript::new();
    for _ in 0..REQUESTS {
        let answer = fast_cgi(&socket, &script)
            .map_err(|error| format!("no answer: {error}; the log:\n{}", server.log()))?;
        transcript.push(piece("an answer", answer));
    }
    server.signal(Signal::QUIT)?;
    server.await_end()?;
    check(&transcript, &server.log())?;
    Ok(transcript)
}

/// Sends one request over a connection of its own, with the parameters that a script needs and no
/// input. Returns the headers and the body.
fn fast_cgi(socket: &Path, script: &Path) -> std::io::Result<Vec<u8>> {
    const BEGIN: u8 = 1;
    const END: u8 = 3;
    const PARAMETERS: u8 = 4;
    const INPUT: u8 = 5;
    const OUTPUT: u8 = 6;
    let record = |kind: u8, content: &[u8]| {
        let length = u16::try_from(content.len()).expect("a short record");
        let mut bytes = vec![1, kind, 0, 1];
        bytes.extend(length.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(content);
        bytes
    };
    let mut parameters = Vec::new();
    for (name, value) in [
        ("SCRIPT_FILENAME", script.to_str().expect("a path of UTF-8")),
        ("REQUEST_METHOD", "GET"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
    ] {
        for text in [name, value] {
            let length = u32::try_from(text.len()).expect("a short text");
            parameters.extend((length | 0x8000_0000).to_be_bytes());
        }
        parameters.extend(name.bytes().chain(value.bytes()));
    }
    let mut connection = UnixStream::connect(socket)?;
    connection.set_read_timeout(Some(Duration::from_secs(240)))?;
    connection.write_all(&record(BEGIN, &[0, 1, 0, 0, 0, 0, 0, 0]))?;
    connection.write_all(&record(PARAMETERS, &parameters))?;
    connection.write_all(&record(PARAMETERS, &[]))?;
    connection.write_all(&record(INPUT, &[]))?;
    let mut output = Vec::new();
    loop {
        let mut header = [0; 8];
        connection.read_exact(&mut header)?;
        let length = u16::from_be_bytes([header[4], header[5]]) as usize;
        let mut content = vec![0; length + header[6] as usize];
        connection.read_exact(&mut content)?;
        match header[1] {
            END => return Ok(output),
            OUTPUT => output.extend(&content[..length]),
            // The script's standard error.
            _ => output.extend(content),
        }
    }
}

/// Debian's configuration: a process per connection, and PHP's extensions loaded by the module.
fn apache(sandbox: &Sandbox) -> Result<Transcript, String> {
    script(sandbox);
    open_to_all(sandbox)?;
    let [port] = free_ports()?;
    let modules = Path::new("/usr/lib/apache2/modules");
    let module = mallard_testing::find("/usr/lib/apache2/modules/libphp*.so").ok_or("no module")?;
    let mut configuration = format!(
        "ServerRoot {0}\nPidFile {0}/apache.pid\nServerName 127.0.0.1\nListen 127.0.0.1:{port}\nErrorLog /dev/stderr\n\
         DefaultRuntimeDir {0}\nDocumentRoot {0}\nStartServers 3\nMaxConnectionsPerChild 3\n",
        sandbox.path("").display()
    );
    for name in ["mpm_prefork", "authz_core", "mime"] {
        let file = modules.join(format!("mod_{name}.so"));
        configuration += &format!("LoadModule {name}_module {}\n", file.display());
    }
    configuration += &format!(
        "LoadModule php_module {}\nTypesConfig /dev/null\nAddHandler application/x-httpd-php .php\n",
        module.display()
    );
    if rustix::process::geteuid().is_root() {
        configuration += "User nobody\nGroup nogroup\n";
    }
    let configuration = sandbox.write("apache.conf", &configuration);
    let mut command = found(sandbox, "apache2")?;
    command.env("USE_ZEND_ALLOC", "0").arg("-f");
    let mut server = Service::start(
        sandbox,
        "apache",
        command.arg(configuration).arg("-DFOREGROUND"),
    )?;
    server.await_port(port)?;
    let mut transcript = Transcript::new();
    for _ in 0..REQUESTS {
        let answer = page(port, "/work.php")
            .map_err(|error| format!("no answer: {error}; the log:\n{}", server.log()))?;
        transcript.push(piece("an answer", answer));
    }
    server.signal(Signal::TERM)?;
    server.await_end()?;
    check(&transcript, &server.log())?;
    Ok(transcript)
}

/// The body of a page.
fn page(port: u16, path: &str) -> std::io::Result<Vec<u8>> {
    let mut connection = TcpStream::connect(("127.0.0.1", port))?;
    connection.set_read_timeout(Some(Duration::from_secs(240)))?;
    write!(connection, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|at| at == b"\r\n\r\n");
    Ok(answer.split_off(end.map_or(0, |at| at + 4)))
}

/// Checks that all answers are complete and no process ended by a signal.
fn check(transcript: &Transcript, log: &str) -> Result<(), String> {
    for (_, answer) in transcript {
        if !answer.ends_with(b" done\n") {
            let answer = String::from_utf8_lossy(answer);
            return Err(format!(
                "an answer is not whole:\n{answer}\nthe log:\n{log}"
            ));
        }
    }
    let signs = ["signal 11", "signal 6", "SIGSEGV", "SIGABRT", "mallard:"];
    match signs.iter().find(|&&word| log.contains(word)) {
        Some(word) => Err(format!("the log says '{word}':\n{log}")),
        None => Ok(()),
    }
}

fn found(sandbox: &Sandbox, program: &str) -> Result<Command, String> {
    let file = mallard_testing::find(program).ok_or_else(|| format!("no {program}"))?;
    Ok(sandbox.command(file))
}

/// A server started by root serves as another user, which must be able to read the script, write
/// the witness's file beside the folder, and create files of its own.
fn open_to_all(sandbox: &Sandbox) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    for folder in ["..", "", "tmp"] {
        let folder = sandbox.path(folder);
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777))
            .map_err(|error| format!("cannot open {}: {error}", folder.display()))?;
    }
    Ok(())
}
