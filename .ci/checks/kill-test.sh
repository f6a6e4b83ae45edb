#!/usr/bin/env bash
# Kills a run N times (default 20) at random moments, starts it again each time, lets it finish, and compares its rows with
# those of an undisturbed run: every column but seconds and date must be equal bit for bit, no row may be missing or
# duplicated, and nothing but results may be left in the folder. Does this three times: with a single process, with four
# shards, and with four identical processes on one results folder, of which one or all are killed.
#
#   .ci/checks/kill-test.sh SWEEP [N] [ARGUMENTS OF run ...]
#
#   .ci/checks/kill-test.sh configs/builtin/smoke.yaml 100
#   CREWS=alone .ci/checks/kill-test.sh configs/builtin/smoke.yaml 100 --jobs 4
#
# CREWS selects some of alone, four-shards and four-alike; SEED sets the moments (20), FEATURES the build (FEATURES=cuda),
# TMPDIR the place of temporary results. Paths in the sweep are relative to the current folder. The sweep is measured
# about four times per crew.
set -euo pipefail

sweep=${1:?usage: .ci/checks/kill-test.sh SWEEP [N] [ARGUMENTS OF run ...]}
[ -f "$sweep" ] || { echo "there is no sweep $sweep" >&2; exit 2; }
export TOVA_BENCH_KILL_SWEEP TOVA_BENCH_KILL_FROM=$PWD TOVA_BENCH_KILLS=${2:-20} TOVA_BENCH_KILL_SEED=${SEED:-20}
export TOVA_BENCH_KILL_CREWS=${CREWS:-} TOVA_BENCH_KILL_ARGUMENTS=${*:3}
TOVA_BENCH_KILL_SWEEP=$(realpath -- "$sweep")
cd "$(dirname "$0")/../.."
exec cargo test --release ${FEATURES:+--features "$FEATURES"} --test it -- --exact --nocapture \
    faults::kills::kills_of_a_chosen_sweep
