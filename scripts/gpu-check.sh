#!/usr/bin/env bash
# What to run first on a machine with a GPU: is attention on it right, is it as fast as docs/gpu.md expects, and is its memory
# used properly. Everything goes into one JSON file, to be sent with a report.
#
#     scripts/gpu-check.sh [DEVICE [FILE]]      cuda and gpu-check.json by default; about ten minutes
#     scripts/gpu-check.sh emulated             the same steps in small, without a GPU
#
# Needs what a build with --features cuda needs (scripts/cuda-toolkit.sh), and python3. Uses compute-sanitizer if it is there.
set -uo pipefail
cd "$(dirname "$0")/.."
device=${1:-cuda}
file=${2:-gpu-check.json}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

case $device in
emulated)
    feature=emulate
    # The shape, its tokens, the cells of the sweep, and how many goldens.
    shape=random-h64-l2-a4-k2-f128-v500 dtype=f32 tokens=400 sizes=(64 256) memory="20 MB" length=96 golden=goldens
    ;;
cuda*)
    feature=cuda
    # LLaMA-2-7B's shape. Four of its layers for reading, whose times are multiplied by 8: drawing 7 billion weights takes minutes.
    shape=random-h4096-l4-a32-f11008-v32000 dtype=bf16 tokens=4096 sizes=(64 512 2048) memory="16 GB" length=1024 golden=
    ;;
*) echo "usage: scripts/gpu-check.sh [cuda | cuda:N | emulated] [FILE]" >&2; exit 2 ;;
esac

say() { printf '%s\n' "$*" >&2; }
# Runs a step and notes its exit code, seconds, and the end of what it printed.
step() {
    local name=$1 start=$SECONDS code
    shift
    say "$name: $*"
    "$@" > "$work/$name.out" 2> "$work/$name.err"
    code=$?
    [ $code = 0 ] || { say "  failed ($code):"; tail -5 "$work/$name.err" "$work/$name.out" >&2; }
    printf '%s\t%s\t%s\n' "$name" $code $((SECONDS - start)) >> "$work/steps"
    return $code
}

step build cargo build --release --features "$feature" || exit 1
target=$(cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
program=$target/release/tova-bench
step doctor "$program" doctor --device "$device" --offline --json
step golden env TOVA_BENCH_TEST_DEVICE="$device" cargo test --release --features "$feature" --test device $golden

python3 -c "import json, random; random.seed(1); print(json.dumps([random.randrange(3, 500) for _ in range($tokens)]))" > "$work/tokens.json"
score() {
    "$program" score --device "$device" --model "$shape" --dtype "$dtype" --tokens "$work/tokens.json" --timing "$@"
}
step read-full score
for policy in window h2o tova; do
    for size in "${sizes[@]}"; do
        step "read-$policy-$size" score --policy "$policy" --cache-size "$size"
    done
done

cat > "$work/table1.yaml" << YAML
models: [{source: $shape, dtype: $dtype}]
policies: [full, tova]
cache_sizes: [${sizes[0]}]
tasks:
  - timing: {length: $length, memory: $memory, repeats: 1}
YAML
step table1 "$program" run "$work/table1.yaml" --device "$device" --results "$work/table1" --no-report &&
    step table1-rows "$program" report "$work/table1" --out "$work/table1-report"

# As many texts side by side as the GPU has memory for; the seconds of the step are those of 3 x 16 texts.
cat > "$work/side-by-side.yaml" << YAML
models: [{source: $shape, dtype: $dtype}]
policies: [tova, h2o, window]
cache_sizes: [${sizes[0]}]
tasks:
  - perplexity: {dataset: random-words, length: $length, books: 16, chunks_per_book: 1}
YAML
step side-by-side "$program" run "$work/side-by-side.yaml" --device "$device" --results "$work/side-by-side" --no-report

if [ "$feature" = cuda ] && command -v compute-sanitizer > /dev/null; then
    for tool in memcheck racecheck synccheck initcheck; do
        step "sanitizer-$tool" compute-sanitizer --tool $tool --error-exitcode 9 "$program" doctor --device "$device" --offline
    done
fi

python3 - "$work" "$device" "$shape" "$tokens" "$file" << 'PYTHON'
import csv, json, pathlib, subprocess, sys

work, device, shape, tokens, file = pathlib.Path(sys.argv[1]), *sys.argv[2:]
steps, result = {}, {"device": device, "shape": shape, "tokens": int(tokens)}
for line in (work / "steps").read_text().splitlines():
    name, code, seconds = line.split("\t")
    steps[name] = {"exit": int(code), "seconds": int(seconds)}
    if name.startswith("read-") and code == "0":
        steps[name]["timing"] = json.loads((work / f"{name}.out").read_text())["timing"]
    elif name == "doctor":
        steps[name]["findings"] = json.loads((work / "doctor.out").read_text() or "{}")
    elif name == "golden":
        lines = (work / "golden.out").read_text().splitlines()
        steps[name]["tests"] = [line for line in lines if line.startswith("test ")]
    if code != "0":
        steps[name]["said"] = (work / f"{name}.err").read_text()[-2000:]
table = work / "table1-report" / "report.csv"
if table.exists():
    result["table1"] = list(csv.DictReader(table.open()))
driver = subprocess.run(["sh", "-c", "nvidia-smi -q -x 2>/dev/null | head -c 4000"], capture_output=True, text=True).stdout
result |= {"steps": steps, "nvidia_smi": driver}
pathlib.Path(file).write_text(json.dumps(result, indent=1) + "\n")
failed = [name for name, step in steps.items() if step["exit"] != 0]
print(f"{file}: {len(steps)} steps, " + (f"failed: {', '.join(failed)}" if failed else "none failed"))
sys.exit(1 if failed else 0)
PYTHON
