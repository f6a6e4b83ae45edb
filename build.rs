//! Notes what the program is built from and with: the commit, which results name, and the versions that `doctor` tells.
//!
//! The commit is that of a checkout, or the one a package was made from. `TOVA_BENCH_COMMIT` says it where neither is there,
//! as in the Dockerfiles.

use std::fs;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    benchmarks();
    #[cfg(feature = "cuda")]
    cuda_kernels();
    println!("cargo:rerun-if-env-changed=TOVA_BENCH_COMMIT");
    // In a worktree `.git` is a file, and git knows where they are; the log grows with every commit. A path that is not
    // there would make cargo build anew every time.
    let in_git = |name: &str| output(Command::new("git").args(["rev-parse", "--git-path", name]));
    let of_git = ["HEAD", "logs/HEAD"].into_iter().filter_map(in_git);
    for path in of_git.chain([".cargo_vcs_info.json".into(), "Cargo.lock".into()]) {
        if Path::new(path.trim()).exists() {
            println!("cargo:rerun-if-changed={}", path.trim());
        }
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let commit = variable("TOVA_BENCH_COMMIT").or_else(packaged).or_else(checked_out);
    let rustc = variable("RUSTC").and_then(|rustc| output(Command::new(rustc).arg("--version")));
    for (name, value) in
        [("TOVA_BENCH_COMMIT", commit), ("TOVA_BENCH_RUSTC", rustc), ("TOVA_BENCH_CANDLE", locked("candle-core"))]
    {
        if let Some(value) = value {
            println!("cargo:rustc-env={name}={}", value.trim());
        }
    }
}

/// The table of built-in benchmarks: the name and the text of every file of their folder.
fn benchmarks() {
    const FOLDER: &str = "configs/benchmarks";
    println!("cargo:rerun-if-changed={FOLDER}");
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let folder = Path::new(&root).join(FOLDER);
    let mut names: Vec<String> = fs::read_dir(&folder)
        .expect("the folder of benchmarks is part of the sources")
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".yaml")?.to_owned()))
        .collect();
    names.sort();
    let rows = names.iter().map(|name| {
        let path = format!("/{FOLDER}/{name}.yaml");
        format!("    ({name:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?}))),\n")
    });
    let table = format!("const FILES: &[(&str, &str)] = &[\n{}];\n", rows.collect::<String>());
    let out = std::env::var("OUT_DIR").expect("cargo sets it for build scripts");
    fs::write(Path::new(&out).join("benchmarks.rs"), table).expect("cargo's folder can be written to");
}

/// The kernels for an NVIDIA GPU, as PTX, which the driver compiles for its own GPU.
#[cfg(feature = "cuda")]
fn cuda_kernels() {
    const KERNELS: &str = "src/lm/gpu/kernels";
    println!("cargo:rerun-if-changed={KERNELS}");
    for variable in ["CUDA_HOME", "CUDA_COMPUTE_CAP"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let nvcc = variable("CUDA_HOME").map(|home| Path::new(&home).join("bin/nvcc")).filter(|nvcc| nvcc.exists());
    let nvcc = nvcc.unwrap_or_else(|| "nvcc".into());
    // As candle reads it: 80, 8.0, sm_80 or 90a. Letters would bind the kernels to one generation of GPUs.
    let asked = variable("CUDA_COMPUTE_CAP").unwrap_or_else(|| "80".into());
    let capability: String = asked.chars().filter(char::is_ascii_digit).collect();
    assert!(!capability.is_empty(), "CUDA_COMPUTE_CAP is {asked:?}, which is no compute capability; 80 is one");
    println!("cargo:rustc-env=TOVA_BENCH_COMPUTE_CAPABILITY={capability}");
    // "Cuda compilation tools, release 13.0, V13.0.88". Without nvcc the error is told below.
    if let Some(said) = output(Command::new(&nvcc).arg("--version")) {
        let version =
            said.split_once("release ").and_then(|(_, rest)| rest.split_once(',')).map(|(version, _)| version);
        println!("cargo:rustc-env=TOVA_BENCH_CUDA={}", version.expect("nvcc tells its release"));
    }
    let ptx = Path::new(&variable("OUT_DIR").unwrap_or_default()).join("kernels.ptx");
    let output = Command::new(&nvcc)
        // Without --fmad=false it would join products and sums, which are then rounded once; the host rounds each.
        .args(["--ptx", "-O3", "-std=c++17", "--fmad=false", &format!("-arch=compute_{capability}")])
        .arg(format!("{KERNELS}/kernels.cu"))
        .arg("-o")
        .arg(&ptx)
        .output();
    let hint = "scripts/cuda-toolkit.sh installs nvcc without root, and its header says how to build with it";
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
            panic!("{} does not compile {KERNELS}/kernels.cu:\n{}{}\n{hint}", nvcc.display(), said[0], said[1])
        }
        Err(error) => {
            panic!("the feature `cuda` needs nvcc, and {} cannot be run: {error}\n{hint}", nvcc.display())
        }
    }
}

/// The commit `cargo package` wrote down. It comes before git's: a package may be unpacked inside another's checkout.
fn packaged() -> Option<String> {
    let text = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    let hash: String = rest.chars().skip_while(|c| !c.is_ascii_hexdigit()).take(12).collect();
    (hash.len() == 12).then_some(hash)
}

/// The commit of this checkout; of a folder inside another's there is none.
fn checked_out() -> Option<String> {
    let top = output(Command::new("git").args(["rev-parse", "--show-toplevel"]))?;
    let here = fs::canonicalize(".").ok()?;
    (fs::canonicalize(top.trim()).ok()? == here).then_some(())?;
    output(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]))
}

/// The version of a crate in the lock file.
fn locked(name: &str) -> Option<String> {
    let lock = fs::read_to_string("Cargo.lock").ok()?;
    let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    Some(rest.split_once('"')?.0.to_string())
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).ok())?
}
