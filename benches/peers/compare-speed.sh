#!/usr/bin/env bash
# Compares reading and writing speed (tokens per second) with PyTorch and llama.cpp, in one run on this machine: a text of 2048
# tokens, TOVA with 512 entries; 128 new tokens after 1024, TOVA with 256 entries.
#
#     benches/peers/compare-speed.sh [PYTHON [FOLDER TOKENS [GGUF]]]
#
# PYTHON needs torch, transformers==4.36.2 and numpy<2 [default: python3]. FOLDER is a Llama checkpoint in f32, TOKENS a JSON
# list of 2048 token ids [default: a random model with hidden size 256, 6 layers, 8 heads, vocabulary 4096]. With GGUF, the
# same model quantised, llama.cpp is measured too; LLAMA_PYTHON (default: PYTHON) needs llama-cpp-python.
#
# Prints medians for the authors' way (transformers, one token at a time, the cache cut after each attention), for PyTorch's
# plain forward over the whole text (no cache bound), for llama.cpp (no cache bound), and for this program (exact).
set -euo pipefail
[ $# -lt 2 ] || set -- "$1" "$(realpath "$2")" "$(realpath "$3")" ${4:+"$(realpath "$4")"}
cd "$(dirname "$0")/../.."
python=${1:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cargo build --release --quiet
bench=${CARGO_TARGET_DIR:-target}/release/tova-bench
if [ $# -ge 3 ]; then
    model=$2 tokens=$3 gguf=${4:-} limit=400 repeats=1
else
    model=$work tokens=$work/tokens.json gguf= limit=2048 repeats=3
    "$python" tests/golden/make/random_model.py "$model" \
        --hidden 256 --layers 6 --heads 8 --intermediate 688 --vocab 4096 --text 2048 >/dev/null
fi
"$python" -c "import json, sys; json.dump(json.load(open(sys.argv[1]))[:1024], open(sys.argv[2], 'w'))" "$tokens" "$work/prompt.json"

field() { "$python" -c "import json, sys; d = json.load(sys.stdin); print($1)"; }
read_speed() { # model policy [options]
    "$bench" score --model "$1" --tokens "$tokens" --timing --repeat 5 --policy "${@:2}" |
        field "'%.0f' % d['timing']['tokens_per_second'], d['timing']['parts_in_seconds']"
}
write_speed() { # model [options]
    for _ in 1 2 3; do
        "$bench" write --model "$1" --tokens "$work/prompt.json" --policy tova --cache-size 256 --max-new-tokens 128 \
            --ignore-eos --timing "${@:2}" | field "'%.1f' % d['timing']['tokens_per_second']"
    done | sort -n | sed -n 2p
}
theirs() { # options
    "$python" benches/peers/authors_way.py --model "$model" --tokens "$tokens" --threads "$(nproc)" "$@" |
        field "'%.1f' % d['tokens_per_second']"
}

uptime
echo "tokens per second, $(nproc) cores"
echo "reading, this program, tova 512:       $(read_speed "$model" tova --cache-size 512)"
echo "reading, this program, full:           $(read_speed "$model" full)"
echo "reading, this program, window+4 512:   $(read_speed "$model" window+4 --cache-size 512)"
echo "reading, this program, h2o 512:        $(read_speed "$model" h2o --cache-size 512)"
echo "reading, this program, knorm 512:      $(read_speed "$model" knorm --cache-size 512)"
echo "reading, PyTorch, plain forward:       $(theirs --forward)"
echo "reading, PyTorch, the authors' way:    $(theirs --cache-size 512 --policy tova --repeats $repeats --limit $limit)"
echo "reading, this program, tova 512 again: $(read_speed "$model" tova --cache-size 512)"
echo "writing, this program:                 $(write_speed "$model")"
echo "writing, this program, bf16:           $(write_speed "$model" --dtype bf16)"
if [ -n "$gguf" ]; then
    echo "reading, this program, GGUF, tova 512: $(read_speed "$gguf" tova --cache-size 512)"
    echo "writing, this program, GGUF:           $(write_speed "$gguf")"
    echo "llama.cpp, GGUF: $("${LLAMA_PYTHON:-$python}" benches/peers/llama_cpp_speed.py "$gguf" "$tokens" "$(nproc)" 2>/dev/null)"
fi
{ "$bench" doctor --offline || true; } | grep -E " (machine|products) "
