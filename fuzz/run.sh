#!/usr/bin/env bash
# Fuzzes the readers of foreign files: fuzz/run.sh [SECONDS] [TARGET...]
# Each target runs SECONDS (600 unless said), one after the other; without targets all do. What is found lies in
# fuzz/artifacts/TARGET, what is worth keeping on the way in fuzz/corpus/TARGET; neither is committed. See fuzz/README.md.
# It needs a nightly toolchain and cargo-fuzz, and installs neither.
set -euo pipefail
cd "$(dirname "$0")"

cargo fuzz --version >/dev/null 2>&1 || { echo "cargo-fuzz is missing: cargo install cargo-fuzz --locked" >&2; exit 1; }
cargo +nightly --version >/dev/null 2>&1 || { echo "a nightly toolchain is missing: rustup toolchain install nightly" >&2; exit 1; }

seconds=600
if [[ "${1:-}" =~ ^[0-9]+$ ]]; then seconds=$1; shift; fi
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then mapfile -t targets < <(cargo +nightly fuzz list --fuzz-dir .); fi

# Where the build goes; it is large, and stays between runs.
folder=${TOVA_BENCH_FUZZ_TARGET:-$PWD/target}
build=(-O --codegen-units 4 --fuzz-dir . --target-dir "$folder")
# A redirect of a made-up hub leads to no real one.
export HTTP_PROXY=http://127.0.0.1:9 HTTPS_PROXY=http://127.0.0.1:9 ALL_PROXY=http://127.0.0.1:9 NO_PROXY=127.0.0.1
# A leak at the end is what a cache is; threads of the libraries take turns on few cores.
export ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1:${ASAN_OPTIONS:-}" POLARS_MAX_THREADS=1 RAYON_NUM_THREADS=1

found=0
for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" "artifacts/$target"
    dictionary=()
    if [ -f "dictionaries/$target.dict" ]; then dictionary=("-dict=dictionaries/$target.dict"); fi
    echo "== $target, $seconds s"
    cargo +nightly fuzz run "${build[@]}" "$target" "corpus/$target" "seeds/$target" -- \
        "-max_total_time=$seconds" -rss_limit_mb=2048 -timeout=10 -max_len=16384 -print_final_stats=1 "${dictionary[@]}" ||
        { echo "$target: found something, see fuzz/artifacts/$target" >&2; found=1; }
done
exit $found
