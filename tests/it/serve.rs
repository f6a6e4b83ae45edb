//! A report that is served: what browsers get, what strangers do not, and that new results make a new page.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::program::{Running, command, run, start};
use crate::support::sweep::{SMALL, Sweep};

const ADDRESS: &str = "the report is served at http://";

fn served(folder: &Path, arguments: &[&str]) -> (Running, String) {
    let mut command = command(folder);
    command.args(arguments);
    let mut running = start(command);
    let mut stderr = String::new();
    while running.goes_on() && !stderr.split_once(ADDRESS).is_some_and(|(_, rest)| rest.contains('\n')) {
        stderr = running.stderr();
        std::thread::sleep(Duration::from_millis(5));
    }
    let address = stderr.split(ADDRESS).nth(1).unwrap_or_else(|| panic!("{stderr}")).split('/').next().unwrap();
    (running, address.to_owned())
}

/// The status and the body of an answer, by an ordinary client.
fn get(address: &str, path: &str) -> (u16, Vec<u8>) {
    let request = ureq::get(format!("http://{address}{path}"));
    let mut answer = request.config().http_status_as_error(false).build().call().unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_vec().unwrap())
}

fn text(address: &str, path: &str) -> String {
    let (status, body) = get(address, path);
    assert_eq!(status, 200, "{path}");
    String::from_utf8(body).unwrap()
}

/// The status of a request that no ordinary client sends.
fn status(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(format!("{request}Connection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn a_report_is_served_and_drawn_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    SMALL.write(folder);
    run(folder, &["run", "sweep.yaml", "--results", "r", "--no-report"]).with_code(0);
    let (mut running, address) = served(folder, &["report", "r", "--serve"]);

    let page = text(&address, "/");
    let version = text(&address, "/version");
    assert!(page.contains(&format!("data-version=\"{version}\"")) && !page.contains("window+4"));
    // The script is in what is served, and not in the file.
    let file = fs::read_to_string(folder.join("r/report.html")).unwrap();
    assert!(!file.contains("data-version") && !file.contains("connect-src"));
    let figure = fs::read_dir(folder.join("r/figures")).unwrap().next().unwrap().unwrap();
    let (code, bytes) = get(&address, &format!("/figures/{}", figure.file_name().to_str().unwrap()));
    assert_eq!((code, bytes), (200, fs::read(figure.path()).unwrap()));

    let cell = fs::read_dir(folder.join("r/cells")).unwrap().next().unwrap().unwrap();
    let cell = format!("cells/{}", cell.file_name().to_str().unwrap());
    let own = format!("Host: {address}\r\n");
    // Nothing but the report, however it is spelt.
    for path in [
        "/nothing",
        &format!("/{cell}"),
        &format!("/figures/../{cell}"),
        "/../sweep.yaml",
        "/%2e%2e/sweep.yaml",
        "//etc/passwd",
        "/sweep.json",
    ] {
        assert_eq!(status(&address, &format!("GET {path} HTTP/1.1\r\n{own}")), "404", "{path}");
    }
    assert_eq!(status(&address, &format!("POST / HTTP/1.1\r\n{own}Content-Length: 0\r\n")), "405");
    assert_eq!(status(&address, &format!("HEAD / HTTP/1.1\r\n{own}")), "200");
    assert_eq!(status(&address, "GET / HTTP/1.1\r\nHost: evil.example\r\n"), "403");
    assert_eq!(status(&address, &format!("GET / HTTP/1.1\r\n{own}Host: evil.example\r\n")), "403");
    assert_eq!(status(&address, "GET / HTTP/1.1\r\n"), "403");

    Sweep { policies: "[full, tova, window+4]", ..SMALL }.write(folder);
    run(folder, &["run", "sweep.yaml", "--results", "r", "--no-report"]).with_code(0);
    let begun = Instant::now();
    while text(&address, "/version") == version && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_ne!(text(&address, "/version"), version);
    assert!(text(&address, "/report.html").contains("window+4"));
    assert!(running.goes_on());
}

#[test]
fn a_run_serves_its_report_and_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Longer than the test has patience: it is interrupted.
    let task = ["dataset: random-words, length: 2000, books: 4, chunks_per_book: 11"];
    let models = "[random-h256-l4-a8-k4-f512-v257-s32]";
    Sweep { models, policies: "[full, tova, h2o]", cache_sizes: "[64, 512]", tasks: &task, ..SMALL }.write(folder);
    let (mut running, address) = served(folder, &["run", "sweep.yaml", "--results", "r", "--serve"]);
    // Samples of cells that are not complete are shown.
    let mut page = String::new();
    running.until(|| {
        page = text(&address, "/");
        page.contains(" of 44 samples")
    });
    assert!(page.contains(" of 44 samples"), "{page}");
    assert!(running.signal(libc::SIGINT));
    running.wait().with_code(130).says(&["kept: ", "interrupted"]);
    assert!(TcpStream::connect(&address).is_err());
}

#[test]
fn only_addresses_of_this_machine_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |address: &str| {
        let ended = run(folder.path(), &["run", "smoke", &format!("--serve={address}")]).with_code(2);
        ended.stderr
    };
    assert!(refused("0.0.0.0:80").contains("ssh -L"));
    assert!(refused("here").contains("127.0.0.1:8080"));
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    let ended = run(folder.path(), &["run", "smoke", &format!("--serve={taken}")]).with_code(1);
    ended.says(&["cannot listen on", "a free port"]);
}

/// A sweep of some seconds, for attacks that begin with it.
const LONG: Sweep<'static> = Sweep {
    models: "[random-h256-l4-a8-k4-f512-v257-s32]",
    policies: "[full, tova]",
    cache_sizes: "[64]",
    tasks: &["dataset: random-words, length: 1000, books: 4, chunks_per_book: 3"],
    more: "",
};

/// Opens connections that no browser opens and keeps them: bodies that are announced and never sent, requests that never end,
/// and a client that asks again and again and reads nothing.
fn attack(address: &str) -> Vec<TcpStream> {
    let open = |text: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        // What is refused early cannot be written to its end.
        let _ = stream.write_all(text.as_bytes());
        stream
    };
    let mut all = Vec::new();
    for host in [address, "evil.example"] {
        all.push(open(&format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 999999999999\r\n\r\n")));
        all.push(open(&format!("GET / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000\r\n\r\nx")));
    }
    all.extend((0..100).map(|_| open("GET / HTTP/1.1\r\nHost: loc")));
    all.push(open(&format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n").repeat(10_000)));
    all
}

/// The version of the page, asked for by a client that does not wait for long.
fn is_answered(address: &str) -> bool {
    let request =
        ureq::get(format!("http://{address}/version")).config().timeout_global(Some(Duration::from_secs(8)));
    request.build().call().is_ok_and(|answer| answer.status() == 200)
}

#[test]
fn hostile_clients_stop_neither_a_sweep_nor_other_clients() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    LONG.write(folder);
    let (mut running, address) = served(folder, &["run", "sweep.yaml", "--results", "r", "--serve"]);
    let kept = attack(&address);
    assert!(is_answered(&address) && running.goes_on(), "{}", running.stderr());
    // It ends although they are still connected.
    running.wait().with_code(0).says(&["2 cells measured", "0 failed"]);
    drop(kept);

    // One signal ends it, then too.
    let (mut running, address) = served(folder, &["report", "r", "--serve"]);
    let kept = attack(&address);
    assert!(is_answered(&address) && running.signal(libc::SIGINT));
    running.wait();
    fs::remove_dir_all(folder.join("r")).unwrap();
    let (mut running, address) = served(folder, &["run", "sweep.yaml", "--results", "r", "--serve"]);
    let more = attack(&address);
    assert!(is_answered(&address) && running.signal(libc::SIGINT));
    running.wait().with_code(130).says(&["interrupted"]);
    drop((kept, more));
}
