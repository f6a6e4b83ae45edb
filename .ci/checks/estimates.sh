#!/usr/bin/env bash
# Compares the time that `plan` estimates with the time that `run` takes, for several kinds of cells, with the built-in model
# and with a larger random one. Needs a quiet machine; takes about five minutes.
#
#   .ci/checks/estimates.sh [PROGRAM [THREADS [MODEL...]]]
set -euo pipefail
program=$(realpath "${1:-target/release/tova-bench}")
threads=${2:-1}
models=("${@:3}")
[ ${#models[@]} -gt 0 ] || models=(pocket random-h512-l8-a8-f1408-v8000)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# Name, policies, sizes and task of a kind of cells. The larger model gets less to do.
kinds() {
  local large=$1 books=40 length=4096 n=16 tokens=200 lengths="512, 1024" memory="24 MB"
  if [ "$large" = yes ]; then books=8 length=2048 n=2 tokens=100 lengths=512 memory="300 MB"; fi
  local text="dataset: embedded, length: $length, books: $books, chunks_per_book: 1"
  cat <<END
perplexity-full|full|64|perplexity: {$text}
perplexity-tova-64|tova|64|perplexity: {$text}
perplexity-tova-1024|tova|1024|perplexity: {$text}
perplexity-h2o-per-head|h2o|256|perplexity: {$text}
perplexity-h2o-layer|h2o-layer|256|perplexity: {$text}
perplexity-window|window|512|perplexity: {$text}
perplexity-truncate|truncate|128|perplexity: {$text}
perplexity-knorm|knorm|128|perplexity: {$text}
perplexity-squeezed|tova@squeezed|128|perplexity: {$text}
perplexity-compare|tova|128|perplexity: {$text, compare_to_full: true}
perplexity-many|full, window, tova, h2o|64, 256|perplexity: {$text}
retention|tova|128|retention: {$text}
needle|full, tova|128|needle: {dataset: embedded, lengths: [$lengths], depths: [0, 50, 100], texts: $n, write: {max_new_tokens: 16}}
squality|full, tova|128|squality: {dataset: embedded, documents: $n, questions: 4, write: {max_new_tokens: $tokens}}
story|full, tova|128|story: {request: embedded, stories: $n, length: 512, write: {max_new_tokens: $tokens, temperature: 0.7}}
timing|full, tova|128|timing: {memory: $memory, length: 256, prompt: 64, repeats: 2}
END
}

printf '%-30s %-22s %9s %9s %6s\n' model kind estimated measured ratio
for model in "${models[@]}"; do
  large=yes
  [ "$model" = pocket ] && large=no
  while IFS='|' read -r kind policies sizes task; do
    policies=$(sed 's/\([-a-z0-9_@+]*\)/"\1"/g; s/""//g' <<<"$policies")
    printf 'models: [%s]\npolicies: [%s]\ncache_sizes: [%s]\ntasks: [{%s}]\n' "$model" "$policies" "$sizes" "$task" > "$kind.yaml"
    estimated=$("$program" plan "$kind.yaml" --threads "$threads" | sed -n 's/.*about \([0-9.]*\) \(s\|min\) with.*/\1 \2/p')
    start=$(date +%s.%N)
    "$program" run "$kind.yaml" --threads "$threads" --no-report -r "r-$model-$kind" 2>/dev/null
    end=$(date +%s.%N)
    awk -v model="$model" -v kind="$kind" -v estimated="$estimated" -v start="$start" -v end="$end" 'BEGIN {
      split(estimated, parts, " "); seconds = parts[1] * (parts[2] == "min" ? 60 : 1)
      printf "%-30s %-22s %9.2f %9.2f %6.2f\n", model, kind, seconds, end - start, seconds / (end - start)
    }'
  done < <(kinds "$large")
done
