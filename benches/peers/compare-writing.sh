#!/usr/bin/env bash
# Compares the speed of greedy writing (tokens per second) with PyTorch, in one run on this machine: a random model of 97 M
# parameters (hidden size 768, 12 layers, 12 heads, vocabulary 16,000, tied embeddings, f32), a prompt of 1024 tokens, 128
# new tokens, at batch 1 and 8.
#
#     benches/peers/compare-writing.sh [PYTHON]      PYTHON needs torch, transformers and numpy [default: python3]
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${1:-python3}
model=$(mktemp -d)
trap 'rm -rf "$model"' EXIT
cargo build --release --quiet
bench=${CARGO_TARGET_DIR:-target}/release/tova-bench
"$python" tests/golden/make/random_model.py "$model" --hidden 768 --layers 12 --heads 12 --intermediate 2048 --vocab 16000 \
    --text 1024 --tie embed >/dev/null

field() { "$python" -c "import json, sys; d = json.load(sys.stdin); print($1)"; }
ours() { # policy batch [options]
    for _ in 1 2 3; do
        "$bench" write --model "$model" --tokens "$model/tokens.json" --policy "$1" --batch "$2" \
            --max-new-tokens 128 --ignore-eos --timing "${@:3}" | field "'%.1f' % d['timing']['tokens_per_second']"
    done | sort -n | sed -n 2p
}
theirs() { # batch
    "$python" benches/peers/torch_writing.py --model "$model" --tokens "$model/tokens.json" --batch "$1" --threads "$(nproc)" \
        2>/dev/null | field "'%.1f' % d['tokens_per_second']"
}

uptime
echo "tokens per second of writing, $(nproc) cores, medians of 3"
for batch in 1 8; do
    echo "batch $batch: PyTorch, full cache:          $(theirs "$batch")"
    echo "batch $batch: this program, full cache:     $(ours full "$batch")"
    echo "batch $batch: this program, tova at 256:    $(ours tova "$batch" --cache-size 256)"
    echo "batch $batch: this program, window+4 at 256: $(ours window+4 "$batch" --cache-size 256)"
done
