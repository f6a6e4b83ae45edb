#!/usr/bin/env bash
# Kills a sweep N times (20 unless given) at random moments, each time starting it again, then lets it end and compares
# its rows with those of a run nobody disturbed: every bit of every column but seconds and date must be the same, no row
# may lack or stand twice, and nothing but results may be left in the folder. It does so three times: with one process
# alone, with four shards and with four processes alike on one results folder, of which one or all are killed.
#
#   scripts/kill-test.sh SWEEP [N] [ARGUMENTS OF run ...]
#
#   scripts/kill-test.sh configs/smoke.yaml 100
#   CREWS=alone scripts/kill-test.sh configs/smoke.yaml 100 --jobs 4
#
# CREWS names some of alone, four-shards and four-alike; SEED chooses the moments (20), FEATURES the build (FEATURES=cuda),
# TMPDIR where the results lie meanwhile. Paths in the sweep are read from the current folder, as `tova-bench run` does. The
# sweep is measured about four times with each crew.
set -euo pipefail

sweep=${1:?usage: scripts/kill-test.sh SWEEP [N] [ARGUMENTS OF run ...]}
[ -f "$sweep" ] || { echo "there is no sweep $sweep" >&2; exit 2; }
export TOVA_BENCH_KILL_SWEEP TOVA_BENCH_KILL_FROM=$PWD TOVA_BENCH_KILLS=${2:-20} TOVA_BENCH_KILL_SEED=${SEED:-20}
export TOVA_BENCH_KILL_CREWS=${CREWS:-} TOVA_BENCH_KILL_ARGUMENTS=${*:3}
TOVA_BENCH_KILL_SWEEP=$(realpath -- "$sweep")
cd "$(dirname "$0")/.."
exec cargo test --release ${FEATURES:+--features "$FEATURES"} --test faults -- --exact --nocapture \
    kills::kills_of_a_chosen_sweep
