#!/usr/bin/env bash
# Kills a sweep N times (20 unless given) at random moments, each time starting it again, then lets it end and compares
# its rows with those of a run nobody disturbed: every bit of every column but seconds and date must be the same.
#
#   scripts/kill-test.sh SWEEP [N]
#
# SEED chooses the moments (20), FEATURES the build (FEATURES=cuda), TMPDIR where the results lie meanwhile. Paths in
# the sweep are read from the current folder, as `tova-bench run` does. The sweep is measured about four times.
set -euo pipefail

sweep=${1:?usage: scripts/kill-test.sh SWEEP [N]}
[ -f "$sweep" ] || { echo "there is no sweep $sweep" >&2; exit 2; }
export TOVA_BENCH_KILL_SWEEP TOVA_BENCH_KILL_FROM=$PWD TOVA_BENCH_KILLS=${2:-20} TOVA_BENCH_KILL_SEED=${SEED:-20}
TOVA_BENCH_KILL_SWEEP=$(realpath -- "$sweep")
cd "$(dirname "$0")/.."
exec cargo test --release ${FEATURES:+--features "$FEATURES"} --test faults -- --exact --nocapture \
    kills_of_a_sweep_named_by_hand
