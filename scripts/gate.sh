#!/usr/bin/env bash
# The regression gate over the built-in sweeps: what they measure now, beside the baselines in results/baselines.
#
#     bash scripts/gate.sh          # exit code 3: a number changed, or another engine's baseline is there
#     bash scripts/gate.sh --save   # after raising ENGINE_VERSION in src/sweep/cell.rs: measure and save new baselines
#
# `smoke` has every policy on random models, one of which attends so sharply that most entries get exactly nothing: there
# it shows who leaves of those that are equal. Its NLLs agree between AVX-512 and AVX2 to 1.4e-6 a token and 7.9e-6 a word; a changed rule for
# ties moves them by up to 0.2, so it is held to 1e-5 on any processor. `pocket`, the default sweep, has to repeat exactly
# where the baseline was made with the same vector instructions; elsewhere texts may part at a last digit, and only what
# got worse beyond its interval fails.
set -euo pipefail
cd "$(dirname "$0")/.."

# The README's own build.
cargo build --release --locked
bench="${CARGO_TARGET_DIR:-target}/release/tova-bench"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$bench" run smoke --results "$work/smoke" --no-report
"$bench" run pocket --results "$work/pocket" --no-report

if [ "${1:-}" = --save ]; then
    "$bench" baseline save smoke "$work/smoke"
    "$bench" baseline save pocket "$work/pocket"
    exit
fi

device=$("$bench" doctor --device cpu --offline | sed -n 's/^ok *device *//p')
how=()
if "$bench" baseline show pocket | grep -qF "on $device"; then
    how=(--exact)
else
    echo "gate: the baseline was not made on $device, so pocket is held to its intervals" >&2
fi

code=0
"$bench" compare smoke "$work/smoke" --exact --tolerance 1e-5 || code=$?
"$bench" compare pocket "$work/pocket" "${how[@]}" || code=$?
if [ "$code" = 3 ]; then
    echo "gate: numbers changed. If they shall, raise ENGINE_VERSION in src/sweep/cell.rs, and run scripts/gate.sh --save" >&2
fi
exit "$code"
