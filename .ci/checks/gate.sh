#!/usr/bin/env bash
# The regression gate: measures both built-in sweeps, and every policy with the built-in model, and compares them with the
# baselines in results/baselines.
#
#     bash .ci/checks/gate.sh          # exit code 3: a number changed, or the baseline is of another engine version
#     bash .ci/checks/gate.sh --quick  # of pocket only two of the seven sizes
#     bash .ci/checks/gate.sh --save   # after raising ENGINE_VERSION in src/ledger/identity.rs: measure and save new baselines
#
# `smoke` has every policy on random models. One of them attends so sharply that most entries get exactly zero attention, so
# it shows which of several equal entries is evicted. Its NLLs agree between AVX-512 and AVX2 to 1.4e-6 a token and 7.9e-6 a
# word; a changed rule for ties moves them by up to 0.2, so the tolerance is 1e-5 on any processor. `pocket`, the default
# sweep, and `policies-pocket` must repeat exactly if the baseline was made with the same vector instructions. Otherwise
# written texts may diverge after a difference in a last digit, and a score of texts fails only if it got worse beyond its
# interval.
set -euo pipefail
cd "$(dirname "$0")/../.."

# The build of the README.
cargo build --release --locked
bench="${CARGO_TARGET_DIR:-target}/release/tova-bench"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$bench" run smoke --results "$work/smoke" --no-report
only=() missing=()
if [ "${1:-}" = --quick ]; then only=(--only size=64,512) missing=(--allow-missing); fi
"$bench" run pocket "${only[@]}" --results "$work/pocket" --no-report
"$bench" run configs/findings/policies-pocket.yaml --results "$work/policies-pocket" --no-report

if [ "${1:-}" = --save ]; then
    "$bench" baseline save --force smoke "$work/smoke"
    "$bench" baseline save --force pocket "$work/pocket"
    "$bench" baseline save --force policies-pocket "$work/policies-pocket"
    exit
fi

# How a baseline is compared: exactly, if it was made with the same vector instructions.
how() {
    # A note says where the devices differ.
    if ! ("$bench" compare "$1" "$work/$1" --exact --allow-missing --markdown - || true) | grep -q "^- measured on "; then
        echo --exact
    else
        echo "gate: $1 was not measured on this device, so it is compared by thresholds" >&2
        local rules=interval+0.1%,1%,cluster+5%
        echo --threshold interval+0.1% --threshold "nll=$rules" --threshold "nll_word=$rules" --threshold "recall=$rules"
    fi
}

code=0
"$bench" compare smoke "$work/smoke" --exact --tolerance 1e-5 || code=$?
"$bench" compare pocket "$work/pocket" $(how pocket) "${missing[@]}" || code=$?
"$bench" compare policies-pocket "$work/policies-pocket" $(how policies-pocket) || code=$?
if [ "$code" = 3 ]; then
    echo "gate: numbers changed. If that is intended, raise ENGINE_VERSION in src/ledger/identity.rs and run .ci/checks/gate.sh --save" >&2
fi
exit "$code"
