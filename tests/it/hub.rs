//! Downloads from a hub, by the real client over real HTTP from a server in this process; and checkpoints in
//! folders.

use std::cell::RefCell;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::hub_server::{Fault, HubServer, etag, sha256};
use tempfile::TempDir;
use tova_bench::lm::source::{CheckpointFiles, DownloadProgress, Hub, HubError, HubSettings, ModelSource, Token};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "89abcdef0123456789abcdef0123456789abcdef";

const CONFIG: &[u8] = b"{\"model_type\": \"llama\"}";
const WEIGHTS: &[u8] = &[7; 5000];

fn small_repo() -> HubServer {
    HubServer::start(
        COMMIT,
        &[
            ("README.md", b"# n"),
            ("config.json", CONFIG),
            ("model.safetensors", WEIGHTS),
            ("pytorch_model.bin", b"pickle"),
            ("tokenizer.json", b"{}"),
            ("tokenizer_config.json", b"{\"a\": 1}"),
        ],
    )
}

/// A machine with a cache of its own and short timeouts.
struct Machine {
    root: TempDir,
    settings: HubSettings,
}

impl Machine {
    fn new(server: &HubServer) -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut settings = HubSettings::with_cache_dir(root.path().join("a/b/hub"));
        settings.endpoint = server.endpoint.clone();
        settings.attempts = 2;
        settings.timeout = Duration::from_secs(5);
        Machine { root, settings }
    }

    fn resolve(&self, source: &str) -> anyhow::Result<CheckpointFiles> {
        source.parse::<ModelSource>().unwrap().resolve(&self.settings, &())
    }

    fn error(&self, source: &str) -> String {
        format!("{:#}", self.resolve(source).unwrap_err())
    }

    fn repo(&self) -> PathBuf {
        self.settings.cache_dir.join("models--o--n")
    }

    /// Every regular file below the root, links not followed.
    fn regular_files(&self) -> Vec<PathBuf> {
        fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    walk(&entry.path(), found);
                } else if kind.is_file() {
                    found.push(entry.path());
                }
            }
        }
        let mut found = Vec::new();
        walk(self.root.path(), &mut found);
        found
    }
}

#[derive(Default)]
struct Reports(RefCell<Vec<String>>);

impl DownloadProgress for Reports {
    fn start(&self, name: &str, bytes: u64) {
        self.0.borrow_mut().push(format!("start {name} {bytes}"));
    }

    fn advance(&self, bytes: u64) {
        let mut reports = self.0.borrow_mut();
        let sum = reports.last().and_then(|last| last.strip_prefix("+")?.parse::<u64>().ok());
        if sum.is_some() {
            reports.pop();
        }
        reports.push(format!("+{}", sum.unwrap_or(0) + bytes));
    }

    fn finish(&self) {
        self.0.borrow_mut().push("finish".to_owned());
    }

    fn note(&self, message: &str) {
        self.0.borrow_mut().push(format!("note {message}"));
    }
}

#[test]
fn files_are_stored_in_the_standard_cache_layout() {
    let server = small_repo();
    let machine = Machine::new(&server);
    let files = machine.resolve("o/n").unwrap();

    let snapshot = machine.repo().join("snapshots").join(COMMIT);
    assert_eq!(files.config, snapshot.join("config.json"));
    assert_eq!(files.weights, [snapshot.join("model.safetensors")]);
    assert_eq!(files.tokenizer, Some(snapshot.join("tokenizer.json")));
    assert_eq!(files.tokenizer_config, Some(snapshot.join("tokenizer_config.json")));
    assert_eq!(files.generation_config, None);
    assert_eq!(files.revision().unwrap(), COMMIT);
    assert_eq!(fs::read(&files.weights[0]).unwrap(), WEIGHTS);
    assert_eq!(fs::read_to_string(machine.repo().join("refs/main")).unwrap(), COMMIT);
    let target = fs::read_link(&files.weights[0]).unwrap();
    assert_eq!(target, Path::new("../../blobs").join(sha256(WEIGHTS)));
    assert!(machine.repo().join("blobs").join(etag("config.json", CONFIG)).is_file());
    assert_eq!(server.count("pytorch_model.bin") + server.count("README.md"), 0);
}

#[test]
fn cached_files_are_not_downloaded_again_and_need_no_server() {
    let server = small_repo();
    let mut machine = Machine::new(&server);
    let first = machine.resolve("o/n").unwrap();
    let requests = server.count("/");
    assert_eq!(machine.resolve("o/n").unwrap(), first);
    assert_eq!(server.count("/"), requests + 1, "only the description of the repository is requested again");
    assert_eq!(machine.resolve(&format!("o/n@{COMMIT}")).unwrap(), first);
    assert_eq!(server.count("/"), requests + 1, "a cached commit needs no request");

    drop(server);
    let reports = Reports::default();
    assert_eq!("o/n".parse::<ModelSource>().unwrap().resolve(&machine.settings, &reports).unwrap(), first);
    let notes = reports.0.into_inner();
    assert!(notes.len() == 1 && notes[0].contains("cannot be reached") && notes[0].contains("from the cache"));

    let server = small_repo();
    server.contents.lock().unwrap().info_status = Some(401);
    machine.settings.endpoint = server.endpoint.clone();
    assert_eq!(machine.resolve("o/n").unwrap(), first, "cached files remain usable if the hub denies access");
    server.contents.lock().unwrap().info_status = None;
    server.contents.lock().unwrap().files.insert("generation_config.json".to_owned(), b"{}".to_vec());
    server.fault("generation_config.json", Fault::Status(401));
    assert_eq!(machine.resolve("o/n").unwrap(), first, "also if it denies access to an optional file");

    machine.settings.offline = true;
    let reports = Reports::default();
    assert_eq!("o/n".parse::<ModelSource>().unwrap().resolve(&machine.settings, &reports).unwrap(), first);
    assert!(reports.0.into_inner().is_empty());
}

#[test]
fn without_network_a_missing_file_is_named() {
    let server = small_repo();
    let mut machine = Machine::new(&server);
    machine.resolve("o/n").unwrap();
    let weights = machine.repo().join("snapshots").join(COMMIT).join("model.safetensors");
    fs::remove_file(weights).unwrap();

    machine.settings.offline = true;
    let requests = server.count("/");
    let error = machine.error("o/n");
    assert!(error.contains("HF_HUB_OFFLINE") && error.contains("o/n@main lacks model.safetensors"), "{error}");
    assert!(error.contains("login node"), "{error}");
    let error = machine.error("o/n@v1");
    assert!(error.contains("HF_HUB_OFFLINE") && error.contains("o/n@v1"), "{error}");
    assert_eq!(server.count("/"), requests, "offline means offline");

    machine.settings.offline = false;
    drop(server);
    let error = machine.error("o/n");
    assert!(error.contains("model.safetensors") && error.contains("cannot be reached"), "{error}");
    let empty = Machine { root: tempfile::tempdir().unwrap(), settings: machine.settings.clone() };
    let error = empty.resolve("x/y").unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(HubError::Unreachable(_))), "{error:#}");
}

#[test]
fn a_hub_that_never_answers_is_an_error() {
    // It accepts connections and sends nothing, like some firewalls.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let root = tempfile::tempdir().unwrap();
    let mut settings = HubSettings::with_cache_dir(root.path());
    settings.endpoint = format!("http://{}", listener.local_addr().unwrap());
    settings.timeout = Duration::from_millis(200);
    let error = "o/n".parse::<ModelSource>().unwrap().resolve(&settings, &()).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(HubError::Unreachable(_))), "{error:#}");
}

#[test]
fn a_new_commit_moves_the_branch_but_not_the_pin_and_shares_blobs() {
    let server = small_repo();
    let machine = Machine::new(&server);
    let old = machine.resolve("o/n").unwrap();
    {
        let mut contents = server.contents.lock().unwrap();
        contents.commit = OTHER.to_owned();
        contents.files.insert("config.json".to_owned(), b"{}".to_vec());
    }
    let downloads = server.count("/cdn/bytes/model.safetensors");
    let new = machine.resolve("o/n").unwrap();
    assert_eq!(new.commit.as_deref(), Some(OTHER));
    assert_eq!(fs::read(&new.config).unwrap(), b"{}");
    assert_eq!(fs::read(&old.config).unwrap(), CONFIG);
    assert_eq!(fs::read_link(&new.weights[0]).unwrap(), fs::read_link(&old.weights[0]).unwrap());
    let probes = server.count("/cdn/bytes/model.safetensors") - downloads;
    assert!(probes <= 1, "the weights did not change, so at most their size was requested");
    assert_eq!(machine.resolve(&format!("o/n@{COMMIT}")).unwrap(), old);
    assert_eq!(machine.resolve("o/n@v1").unwrap(), new);
    assert_eq!(fs::read_to_string(machine.repo().join("refs/v1")).unwrap(), OTHER);
    assert_eq!(machine.resolve("o/n@refs/pr/3").unwrap(), new);
    assert_eq!(fs::read_to_string(machine.repo().join("refs/refs/pr/3")).unwrap(), OTHER);
}

#[test]
fn the_token_is_sent_only_when_there_is_one() {
    let server = small_repo();
    let mut machine = Machine::new(&server);
    // A token beside the cache is not used: only the settings count.
    fs::create_dir_all(machine.root.path().join("a/b")).unwrap();
    fs::write(machine.root.path().join("a/b/token"), "hf_stray").unwrap();
    machine.resolve("o/n").unwrap();
    assert!(server.contents.lock().unwrap().requests.drain(..).all(|(_, token)| token.is_none()));

    machine.settings.token = Token::new("hf_secret").unwrap();
    machine.resolve("o/n@v1").unwrap();
    let requests = std::mem::take(&mut server.contents.lock().unwrap().requests);
    assert!(!requests.is_empty());
    assert!(requests.iter().all(|(_, token)| token.as_deref() == Some("Bearer hf_secret")), "{requests:?}");
}

/// The hub redirects large files to another host, which must not get the token.
#[test]
fn the_token_is_not_sent_to_other_hosts() {
    let server = small_repo();
    let mut machine = Machine::new(&server);
    // The same server under another name: redirects lead to the number.
    machine.settings.endpoint = server.endpoint.replace("127.0.0.1", "localhost");
    machine.settings.token = Token::new("hf_secret").unwrap();
    machine.resolve("o/n").unwrap();
    let requests = std::mem::take(&mut server.contents.lock().unwrap().requests);
    let (other, hub): (Vec<_>, Vec<_>) = requests.iter().partition(|(path, _)| path.starts_with("/cdn/"));
    assert!(!other.is_empty() && other.iter().all(|(_, token)| token.is_none()), "{requests:?}");
    assert!(hub.iter().all(|(_, token)| token.as_deref() == Some("Bearer hf_secret")), "{requests:?}");
}

/// Whoever has another port of the hub's machine is not the hub.
#[test]
fn the_token_is_not_sent_to_other_ports() {
    let (server, cdn) = (small_repo(), small_repo());
    server.contents.lock().unwrap().cdn = Some(cdn.endpoint.clone());
    let mut machine = Machine::new(&server);
    machine.settings.token = Token::new("hf_secret").unwrap();
    let files = machine.resolve("o/n").unwrap();
    assert_eq!(fs::read(&files.weights[0]).unwrap(), WEIGHTS);
    let [of_hub, of_cdn] = [&server, &cdn].map(|server| server.contents.lock().unwrap().requests.clone());
    assert!(!of_cdn.is_empty() && of_cdn.iter().all(|(_, token)| token.is_none()), "{of_cdn:?}");
    assert!(of_hub.iter().all(|(_, token)| token.as_deref() == Some("Bearer hf_secret")), "{of_hub:?}");
    // Redirects within the hub keep it, for files of gated models.
    assert!(of_hub.iter().any(|(path, _)| path.starts_with("/resolve-cache/")), "{of_hub:?}");
}

/// As plain file servers do; huggingface_hub takes the length from `Content-Length` too.
#[test]
fn a_mirror_without_ranges_is_used() {
    let server = small_repo();
    for name in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        server.fault(name, Fault::NoRanges);
    }
    let machine = Machine::new(&server);
    let files = machine.resolve("o/n").unwrap();
    assert_eq!(fs::read(&files.config).unwrap(), CONFIG);
    assert_eq!(fs::read(&files.weights[0]).unwrap(), WEIGHTS);
    // Where an earlier transfer broke off, it begins again.
    let machine = Machine::new(&server);
    let part = machine.repo().join("blobs").join(sha256(WEIGHTS)).with_extension("part");
    fs::create_dir_all(part.parent().unwrap()).unwrap();
    fs::write(&part, &WEIGHTS[..1000]).unwrap();
    assert_eq!(fs::read(&machine.resolve("o/n").unwrap().weights[0]).unwrap(), WEIGHTS);
}

#[test]
fn a_server_that_stalls_is_left_and_the_file_continued() {
    let server = small_repo();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    server.contents.lock().unwrap().cdn = Some(format!("http://{}", listener.local_addr().unwrap()));
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head = "HTTP/1.1 206 x\r\ncontent-length: 5000\r\n\r\n";
            let _ = stream.write_all(&[head.as_bytes(), &WEIGHTS[..1000]].concat());
            open.push(stream);
        }
    });
    let mut machine = Machine::new(&server);
    machine.settings.idle = Duration::from_millis(200);
    let error = machine.resolve("o/n").unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(HubError::Transfer(_))), "{error:#}");
    let error = format!("{error:#}");
    assert!(error.contains("for 0.2 s no byte came") && error.contains("run again"), "{error}");
    let part = machine.repo().join("blobs").join(sha256(WEIGHTS)).with_extension("part");
    assert_eq!(fs::metadata(&part).unwrap().len(), 2000, "two attempts of a thousand bytes each");
    server.contents.lock().unwrap().cdn = None;
    assert_eq!(fs::read(&machine.resolve("o/n").unwrap().weights[0]).unwrap(), WEIGHTS);
}

#[test]
fn denied_access_is_an_error_with_a_hint() {
    let server = small_repo();
    let mut machine = Machine::new(&server);
    let page = format!("{}/o/n", server.endpoint);
    // The description of a gated repository is public, its files are not.
    for status in [401, 403] {
        server.fault("config.json", Fault::Status(status));
        let error = machine.error("o/n");
        for part in ["config.json of o/n@main", &format!("status {status}"), "licence", "HF_TOKEN", &page] {
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
    }
    server.contents.lock().unwrap().info_status = Some(401);
    assert!(machine.error("o/n").contains("set HF_TOKEN to a token that may read it"));
    machine.settings.token = Token::new("hf_secret").unwrap();
    let error = machine.error("o/n");
    assert!(error.contains("a token that may read it") && !error.contains("hf_secret"), "{error}");

    server.contents.lock().unwrap().info_status = None;
    let error = machine.error("o/missing");
    assert!(error.contains("the hub has no o/missing@main: check the spelling and the revision at"), "{error}");
    let error = machine.error("o/n@nowhere");
    assert!(error.contains("the hub has no o/n@nowhere: check the spelling and the revision"), "{error}");
    server.contents.lock().unwrap().info_status = Some(503);
    assert!(machine.error("o/n").contains("status 503"));
    assert!(
        !machine.repo().join("refs").join("main").exists(),
        "the ref is written only when all files are there"
    );
}

#[test]
fn sharded_weights_are_found_by_their_index() {
    let index = br#"{"metadata": {"total_size": 4}, "weight_map": {
        "a": "model-00002-of-00002.safetensors", "b": "model-00001-of-00002.safetensors",
        "c": "model-00002-of-00002.safetensors"}}"#;
    let server = HubServer::start(
        COMMIT,
        &[
            ("config.json", CONFIG),
            ("model.safetensors.index.json", index),
            ("model-00001-of-00002.safetensors", b"one"),
            ("model-00002-of-00002.safetensors", b"two"),
        ],
    );
    let machine = Machine::new(&server);
    let files = machine.resolve("o/n").unwrap();
    let contents: Vec<_> = files.weights.iter().map(|path| fs::read(path).unwrap()).collect();
    assert_eq!(contents, [b"one", b"two"]);
    assert_eq!(files.tokenizer, None);

    server.contents.lock().unwrap().files.remove("model-00002-of-00002.safetensors");
    let error = Machine::new(&server).error("o/n");
    assert!(error.contains("names model-00002-of-00002.safetensors"), "{error}");
}

#[test]
fn an_index_cannot_name_files_outside_its_folder() {
    for name in
        ["../../evil.safetensors", "/tmp/evil.safetensors", "a/../../evil.safetensors", "..\\\\evil.safetensors"]
    {
        let index = format!(r#"{{"weight_map": {{"a": "{name}"}}}}"#);
        // The server lists and serves the file.
        let listed = name.replace("\\\\", "\\");
        let server = HubServer::start(
            COMMIT,
            &[("config.json", CONFIG), ("model.safetensors.index.json", index.as_bytes()), (&listed, b"evil")],
        );
        let machine = Machine::new(&server);
        let error = machine.error("o/n");
        assert!(error.contains("leads outside"), "{error}");
        assert!(machine.regular_files().iter().all(|file| file.starts_with(machine.repo())));
        assert_eq!(server.count("evil"), 0);

        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.json"), CONFIG).unwrap();
        fs::write(folder.path().join("model.safetensors.index.json"), &index).unwrap();
        assert!(machine.error(folder.path().to_str().unwrap()).contains("leads outside"));
    }
}

#[test]
fn an_etag_that_is_a_path_is_refused() {
    let server = small_repo();
    server.fault("config.json", Fault::Traversal);
    let machine = Machine::new(&server);
    let error = machine.error("o/n");
    assert!(error.contains("does not answer as the hub does"), "{error}");
    assert!(machine.regular_files().is_empty());
}

#[test]
fn a_redirect_without_a_location_is_an_error() {
    let server = small_repo();
    server.fault("config.json", Fault::NoLocation);
    let error = Machine::new(&server).error("o/n");
    assert!(error.contains("does not answer as the hub does"), "{error}");
}

#[test]
fn a_broken_download_is_continued_by_the_next_run() {
    let server = small_repo();
    let machine = Machine::new(&server);
    server.fault("model.safetensors", Fault::CutOff(1000));
    let error = machine.error("o/n");
    assert!(error.contains("model.safetensors of o/n@main broke off") && error.contains("run again"), "{error}");
    let blob = machine.repo().join("blobs").join(sha256(WEIGHTS));
    assert!(!blob.exists() && !machine.repo().join("refs/main").exists());
    assert!(!machine.repo().join("snapshots").join(COMMIT).join("model.safetensors").exists());
    let part = blob.with_extension("part");
    assert_eq!(fs::metadata(&part).unwrap().len(), 2000, "two attempts of a thousand bytes each");

    server.contents.lock().unwrap().faults.clear();
    let reports = Reports::default();
    let files = "o/n".parse::<ModelSource>().unwrap().resolve(&machine.settings, &reports).unwrap();
    assert_eq!(fs::read(&files.weights[0]).unwrap(), WEIGHTS);
    assert!(!part.exists());
    // A program that another test starts just then has the lock too, until it runs.
    let mut reports = reports.0.into_inner();
    reports.retain(|line| !line.starts_with("note waiting"));
    assert_eq!(reports, ["start model.safetensors 5000", "+5000", "finish"]);
}

#[test]
fn a_download_longer_than_announced_is_stopped() {
    let server = small_repo();
    let machine = Machine::new(&server);
    server.fault("model.safetensors", Fault::Overlong);
    let error = machine.error("o/n");
    assert!(error.contains("arrived damaged"), "{error}");
    let blob = machine.repo().join("blobs").join(sha256(WEIGHTS));
    assert!(!blob.exists() && !blob.with_extension("part").exists());
}

#[test]
fn size_and_checksum_are_compared() {
    for (name, bytes, fault) in [
        ("model.safetensors", WEIGHTS, Fault::CutOffSilently(1000)),
        ("model.safetensors", WEIGHTS, Fault::Garbled),
        ("config.json", CONFIG, Fault::Garbled),
    ] {
        let server = small_repo();
        let machine = Machine::new(&server);
        server.fault(name, fault);
        let error = machine.error("o/n");
        assert!(error.contains("arrived damaged"), "{error}");
        assert!(!machine.repo().join("blobs").join(etag(name, bytes)).exists());
        assert!(!machine.repo().join("snapshots").join(COMMIT).join(name).exists());
        server.contents.lock().unwrap().faults.clear();
        assert_eq!(fs::read(&machine.resolve("o/n").unwrap().weights[0]).unwrap(), WEIGHTS);
    }
}

#[test]
fn leftovers_of_earlier_runs_do_not_matter() {
    // Complete but never renamed; longer than the file; the right length with other bytes.
    for left in [5000, 6000, 2500] {
        let server = small_repo();
        let machine = Machine::new(&server);
        let part = machine.repo().join("blobs").join(sha256(WEIGHTS)).with_extension("part");
        fs::create_dir_all(part.parent().unwrap()).unwrap();
        fs::write(&part, vec![1; left]).unwrap();
        assert_eq!(fs::read(&machine.resolve("o/n").unwrap().weights[0]).unwrap(), WEIGHTS, "{left}");
    }
    // A link whose blob was deleted.
    let server = small_repo();
    let machine = Machine::new(&server);
    machine.resolve("o/n").unwrap();
    fs::remove_file(machine.repo().join("blobs").join(sha256(WEIGHTS))).unwrap();
    assert_eq!(fs::read(&machine.resolve("o/n").unwrap().weights[0]).unwrap(), WEIGHTS);
    // A link to a blob that never existed.
    let pointer = machine.repo().join("snapshots").join(COMMIT).join("model.safetensors");
    fs::remove_file(&pointer).unwrap();
    fs::remove_file(machine.repo().join("blobs").join(sha256(WEIGHTS))).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("../../blobs/gone", &pointer).unwrap();
    assert_eq!(fs::read(&machine.resolve("o/n").unwrap().weights[0]).unwrap(), WEIGHTS);
}

#[test]
fn concurrent_downloads_of_the_same_files_succeed() {
    let server = small_repo();
    let machine = Machine::new(&server);
    std::thread::scope(|scope| {
        let all: Vec<_> =
            (0..4).map(|_| scope.spawn(|| machine.resolve("o/n").map(|files| files.weights))).collect();
        for one in all {
            assert_eq!(fs::read(&one.join().unwrap().unwrap()[0]).unwrap(), WEIGHTS);
        }
    });
}

#[test]
fn wanted_files_of_a_dataset_are_found() {
    let name = "data/test-00000-of-00002-29a571947c0b5ccc.parquet";
    let second = "data/test-00001-of-00002-29a571947c0b5ccc.parquet";
    let server = HubServer::start(
        COMMIT,
        &[("README.md", b"r"), (second, b"two"), (name, b"one"), ("data/train-00000-of-00001.parquet", b"train")],
    );
    let mut machine = Machine::new(&server);
    let repo = "o/n".parse().unwrap();
    let test = |name: &str| name.starts_with("data/test-") && name.ends_with(".parquet");
    let found = Hub { settings: &machine.settings, progress: &() }.dataset_files(&repo, test).unwrap();
    let snapshot = machine.settings.cache_dir.join("datasets--o--n/snapshots").join(COMMIT);
    assert_eq!(found, [snapshot.join(name), snapshot.join(second)]);
    assert_eq!(fs::read(&found[0]).unwrap(), b"one");
    assert_eq!(server.count("train"), 0);
    let error = Hub { settings: &machine.settings, progress: &() }.dataset_files(&repo, |_| false).unwrap_err();
    assert!(error.to_string().contains("lacks every file wanted"), "{error}");

    drop(server);
    machine.settings.offline = true;
    let hub = Hub { settings: &machine.settings, progress: &() };
    assert_eq!(hub.dataset_files(&repo, test).unwrap(), found);
    fs::remove_file(snapshot.join(second)).unwrap();
    let error = hub.dataset_files(&repo, test).unwrap_err();
    assert!(error.to_string().contains("1 of the 2 parts of data/test"), "{error}");
}

#[test]
fn weights_in_other_formats_are_refused() {
    let server = HubServer::start(COMMIT, &[("config.json", CONFIG), ("pytorch_model.bin", b"pickle")]);
    let machine = Machine::new(&server);
    let error = machine.error("o/n");
    assert!(error.contains("pytorch_model.bin") && error.contains("can run any code"), "{error}");
    assert_eq!(server.count("/resolve/"), 0);

    for (file, part) in [
        ("pytorch_model-00001-of-00002.bin", "safe_serialization=True"),
        ("consolidated.00.pth", "safe_serialization=True"),
        ("model.gguf", "only model.gguf: name a GGUF file itself"),
        ("optimizer.pt", "lacks config.json"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(file), b"x").unwrap();
        let error = machine.error(folder.path().to_str().unwrap());
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_gguf_file_of_a_repository_is_a_model() {
    let files: &[(&str, &[u8])] = &[("a.Q4_1.gguf", b"GGUF"), ("sub/b.gguf", b"GGUF"), ("README.md", b"# n")];
    let server = HubServer::start(COMMIT, files);
    let machine = Machine::new(&server);
    let found = machine.resolve("o/n:a.Q4_1.gguf").unwrap();
    assert!(found.config.ends_with("a.Q4_1.gguf") && found.weights == [found.config.clone()]);
    // A commit alone would not say which of the files it is.
    assert_eq!(found.revision().unwrap(), format!("{COMMIT} a.Q4_1.gguf"));
    assert_eq!(machine.resolve("o/n:sub/b.gguf").unwrap().revision().unwrap(), format!("{COMMIT} sub/b.gguf"));
    assert_eq!(server.count("README.md"), 0, "nothing else was downloaded");
    assert!(machine.error("o/n:c.gguf").contains("lacks c.gguf"));
    assert!(machine.error("o/n").contains("only a.Q4_1.gguf: name a GGUF file itself"));
    let requests = server.count("/");
    machine.resolve(&format!("o/n@{COMMIT}:a.Q4_1.gguf")).unwrap();
    assert_eq!(server.count("/"), requests, "a commit in the cache needs no server");
}

#[test]
fn a_tokenizer_may_come_from_another_place() {
    let server = small_repo();
    let machine = Machine::new(&server);
    let folder = tempfile::tempdir().unwrap();
    let gguf = folder.path().join("m.gguf");
    fs::write(&gguf, b"GGUF").unwrap();
    let model: ModelSource = gguf.to_str().unwrap().parse().unwrap();
    let with = |tokenizer: &str| model.resolve_with_tokenizer(&tokenizer.parse().unwrap(), &machine.settings, &());
    let alone = model.resolve(&machine.settings, &()).unwrap().revision().unwrap();
    let found = with("o/n").unwrap();
    assert_eq!(fs::read(found.tokenizer.as_ref().unwrap()).unwrap(), b"{}");
    assert!(found.tokenizer_config.is_some());
    // The same tokenizer in a folder is the same model, another is another.
    let own = folder.path().join("own");
    fs::create_dir(&own).unwrap();
    assert!(format!("{:#}", with(own.to_str().unwrap()).unwrap_err()).contains("lacks tokenizer.json"));
    fs::write(own.join("tokenizer.json"), b"{}").unwrap();
    let revision = found.revision().unwrap();
    assert!(revision.starts_with(&format!("{alone} tokenizer sha256:")), "{revision}");
    assert_eq!(with(own.to_str().unwrap()).unwrap().revision().unwrap(), revision);
    fs::write(own.join("tokenizer.json"), b"{ }").unwrap();
    assert_ne!(with(own.to_str().unwrap()).unwrap().revision().unwrap(), revision);
    // A renamed file is the same model.
    fs::rename(&gguf, folder.path().join("n.gguf")).unwrap();
    let renamed: ModelSource = folder.path().join("n.gguf").to_str().unwrap().parse().unwrap();
    assert_eq!(renamed.resolve(&machine.settings, &()).unwrap().revision().unwrap(), alone);
}

#[test]
fn a_checkpoint_in_a_folder() {
    let server = small_repo();
    let machine = Machine::new(&server);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    assert!(machine.error(path).contains("it is empty"));
    assert!(machine.error(&format!("{path}/missing")).contains("there is no folder"));
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    write("config.json", CONFIG);
    let error = machine.error(path);
    assert!(error.contains("lacks model.safetensors and model.safetensors.index.json"), "{error}");
    assert!(machine.error(&format!("{path}/config.json")).contains("is a file"));
    // Beside other formats too.
    for name in ["model-00001-of-00002.safetensors", "consolidated.safetensors"] {
        write(name, WEIGHTS);
        let error = machine.error(path);
        assert!(error.contains("model-00001-of-00002.safetensors, and not the index"), "{error}");
    }
    write("model.safetensors", WEIGHTS);
    // A single file takes precedence over an index, even a wrong one.
    write("model.safetensors.index.json", br#"{"weight_map": {"a": "gone.safetensors"}}"#);
    write("generation_config.json", b"{}");
    let files = machine.resolve(path).unwrap();
    assert_eq!(files.weights, [folder.path().join("model.safetensors")]);
    assert_eq!(files.generation_config, Some(folder.path().join("generation_config.json")));
    assert_eq!(files.commit, None);

    let first = files.revision().unwrap();
    assert!(first.len() == "sha256:".len() + 16 && first.starts_with("sha256:"), "{first}");
    write("generation_config.json", b"{\"top_k\": 1}");
    assert_eq!(files.revision().unwrap(), first);
    write("model.safetensors", &[8; 5000]);
    assert_ne!(files.revision().unwrap(), first);
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    assert!(machine.error(path).contains("names gone.safetensors"));
    assert_eq!(server.count("/"), 0);
}
