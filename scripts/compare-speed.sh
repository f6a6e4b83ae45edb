#!/usr/bin/env bash
# Compares reading speed (tokens per second) with PyTorch, in one run on this machine: a random model (hidden size 256, 6
# layers, 8 heads, vocabulary 4096), a text of 2048 tokens, TOVA with 512 entries.
#
#     scripts/compare-speed.sh [PYTHON]      PYTHON needs torch, transformers==4.36.2 and numpy<2 [default: python3]
#
# Prints medians for the authors' way (transformers, one token at a time, the cache cut after each attention), for PyTorch's
# plain forward over the whole text (no cache bound), and for this program (exact).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
model=$(mktemp -d)
trap 'rm -rf "$model"' EXIT
cargo build --release --quiet
bench=${CARGO_TARGET_DIR:-target}/release/tova-bench
"$python" scripts/random_model.py "$model" \
    --hidden 256 --layers 6 --heads 8 --intermediate 688 --vocab 4096 --text 2048 >/dev/null

field() { "$python" -c "import json, sys; d = json.load(sys.stdin); print($1)"; }
ours() { # policy [options]
    "$bench" score --model "$model" --tokens "$model/tokens.json" --timing --repeat 20 --policy "$@" |
        field "'%.0f' % d['timing']['tokens_per_second'], d['timing']['parts_in_seconds'], d['timing']['gflop_per_second']"
}

uptime
echo "tokens per second, 2048 tokens, $(nproc) cores"
echo "this program, tova 512:          $(ours tova --cache-size 512)"
echo "this program, full:              $(ours full)"
echo "this program, window+4 512:      $(ours window+4 --cache-size 512)"
echo "this program, h2o 512:           $(ours h2o --cache-size 512)"
echo "PyTorch, plain forward:          $("$python" scripts/authors_way.py --model "$model" --tokens "$model/tokens.json" \
    --forward --threads "$(nproc)" | field "'%.0f' % d['tokens_per_second']")"
echo "PyTorch, the authors' way:       $("$python" scripts/authors_way.py --model "$model" --tokens "$model/tokens.json" \
    --cache-size 512 --policy tova --threads "$(nproc)" --repeats 3 | field "'%.0f' % d['tokens_per_second']")"
echo "this program again, tova 512:    $(ours tova --cache-size 512)"
{ "$bench" doctor --offline || true; } | grep -E " (cores|vectors|one thread|all threads) "
