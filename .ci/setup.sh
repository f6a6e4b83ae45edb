# What both scripts need: the toolchain, a target folder, and what tests may skip.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Outside the checkout, so that a fresh clone finds what an earlier one has compiled.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-${HOME:-/tmp}/.cache/tova-bench/target}

# A test whose material is missing fails, except for these: a tool, a right and files that few machines have.
export TOVA_BENCH_CI=1
export TOVA_BENCH_MAY_SKIP=faketime,mounts,kills,witness
command -v python3 >/dev/null || TOVA_BENCH_MAY_SKIP+=,python,pandas
# The lines of the documentation that pool rows are run with pandas, from an environment outside the checkout.
if [ -z "${TOVA_BENCH_TEST_PYTHON:-}" ] && command -v python3 >/dev/null; then
    TOVA_BENCH_TEST_PYTHON=${HOME:-/tmp}/.cache/tova-bench/python/bin/python
    export TOVA_BENCH_TEST_PYTHON
    "$TOVA_BENCH_TEST_PYTHON" -c 'import pandas, pyarrow' 2>/dev/null || {
        python3 -m venv "${TOVA_BENCH_TEST_PYTHON%/bin/python}" &&
            "$TOVA_BENCH_TEST_PYTHON" -m pip install --quiet pandas pyarrow
    } || {
        echo "SKIPPED: what needs pandas, because it could not be installed" >&2
        TOVA_BENCH_MAY_SKIP+=,pandas
    }
fi
# More data lies beside the checkout where it exists.
if [ -z "${TOVA_BENCH_TEST_DATA:-}" ] && [ -d ../shared/data ]; then
    TOVA_BENCH_TEST_DATA=$(cd ../shared && pwd)
    export TOVA_BENCH_TEST_DATA
fi
if [ -z "${TOVA_BENCH_TEST_DATA:-}" ]; then
    echo "SKIPPED: tests that need the data sets, because TOVA_BENCH_TEST_DATA names no folder and ../shared/data is not there" >&2
    TOVA_BENCH_MAY_SKIP+=,data
fi

command -v cargo >/dev/null || { echo "cargo is needed (https://rustup.rs)" >&2; exit 1; }
{ command -v cc && command -v c++; } >/dev/null || { apt-get update && apt-get install -y build-essential; }
rustup component add rustfmt clippy >/dev/null 2>&1 || true
