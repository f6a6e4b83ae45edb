#!/usr/bin/env bash
# Builds the Python wheel with manual pages and shell completions, then tries it in a fresh virtual environment where no Rust is
# found: the module's tests, and the command.
#
#     scripts/wheel.sh [FOLDER]     where the wheel goes; by default dist/
#
# Needs Rust, and Python 3.10 or newer as $PYTHON (by default python3). Packages come from PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
dist=${1:-dist}
mkdir -p "$dist"
dist=$(cd "$dist" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/build"
"$work/build/bin/pip" install --quiet 'maturin>=1.9,<2' wheel
"$work/build/bin/maturin" build --quiet --release --locked --out "$work/wheel"

# The wheel's own program writes the pages and completions, so they are added afterwards.
"$python" -m venv "$work/own"
"$work/own/bin/pip" install --quiet "$work"/wheel/*.whl
"$work/build/bin/wheel" unpack --dest "$work/unpacked" "$work"/wheel/*.whl > /dev/null
unpacked=$(echo "$work"/unpacked/*)
bash scripts/release.sh share "$work/own/bin/tova-bench" "$(echo "$unpacked"/*.dist-info | sed 's/dist-info$/data/')/data/share"
"$work/build/bin/wheel" pack --dest-dir "$work/wheel" "$unpacked" > /dev/null
wheel=$(echo "$work"/wheel/*.whl)

"$python" -m venv "$work/try"
"$work/try/bin/pip" install --quiet "$wheel[test]"
tests=$PWD/python/tests
(
    cd "$work"
    export PATH="$work/try/bin:/usr/bin:/bin"
    tova-bench --version
    ls "$work/try/share/man/man1/tova-bench-run.1"
    tova-bench run smoke --results "$work/smoke" > /dev/null
    python -m pytest --quiet -p no:cacheprovider "$tests"
)
cp "$wheel" "$dist/"
ls -lh "$dist/$(basename "$wheel")"
