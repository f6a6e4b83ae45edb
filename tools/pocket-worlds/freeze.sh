#!/usr/bin/env bash
# Writes the texts that tova-bench embeds: datasets/embedded/*.jsonl.zst. Needs cargo and zstd.
#
# The texts are a data set. If a file changes, results measured with it are no longer comparable: say so in CHANGELOG.md,
# and renew results/baselines/.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --release --quiet --package pocket-worlds
generate=${CARGO_TARGET_DIR:-target}/release/pocket-worlds
mkdir -p datasets/embedded
freeze() {
    "$generate" "$@" | zstd --ultra -22 --quiet --force -o "datasets/embedded/$1.jsonl.zst"
}
freeze books --count 64
freeze quizzes --count 64
# All the questions that the generator has for a text: it asks the same first N, whatever the number.
freeze articles --count 64 --questions 1000
freeze stories --count 64 --questions 1000
freeze prompts --count 1000
