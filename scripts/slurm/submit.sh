#!/usr/bin/env bash
# Submits a sweep to Slurm from the login node: fetches models and data, then submits an array that measures and a job
# that reports. Submitting again measures only what is missing.
#
#   scripts/slurm/submit.sh SWEEP [N] [--results DIR] [--folders] [-- OPTIONS OF SBATCH FOR THE ARRAY]
#
# N is the number of shares and tasks (8). Results go to DIR (results/NAME OF THE SWEEP), logs to DIR/slurm. All tasks
# write into that one folder, which needs a file system with locks; with --folders each has its own folder, and the report
# job merges them. Set TOVA_BENCH if the program is not on the PATH; SBATCH_PARTITION and SBATCH_ACCOUNT work as usual.
# Paths are relative to the current folder.
set -euo pipefail
usage="usage: scripts/slurm/submit.sh SWEEP [N] [--results DIR] [--folders] [-- OPTIONS OF SBATCH]"

sweep='' n='' results='' folders=''
while [ $# -gt 0 ]; do
    case $1 in
    --results) [ $# -gt 1 ] || { echo "$usage" >&2 && exit 2; }
        results=$2 && shift ;;
    --folders) folders=folders ;;
    --) shift && break ;;
    -*) echo "$usage" >&2 && exit 2 ;;
    *) if [ -z "$sweep" ]; then sweep=$1; elif [ -z "$n" ]; then n=$1; else echo "$usage" >&2 && exit 2; fi ;;
    esac
    shift
done
n=${n:-8}
[[ -n $sweep && $n =~ ^[1-9][0-9]*$ ]] || { echo "$usage" >&2 && exit 2; }
name=$(basename "${sweep%.*}")
results=${results:-results/$name}
here=$(cd "$(dirname "$0")" && pwd)
program=${TOVA_BENCH:-tova-bench}
command -v "$program" >/dev/null || { echo "$program is not on the PATH; set TOVA_BENCH to its path" >&2 && exit 1; }
TOVA_BENCH=$(command -v "$program")
export TOVA_BENCH

"$program" fetch "$sweep"
mkdir -p "$results/slurm"
array=$(sbatch --parsable --job-name "$name" --array "0-$((n - 1))" --output "$results/slurm/%A_%a.log" "$@" \
    "$here/sweep.sbatch" "$sweep" "$results" "$n" $folders)
array=${array%%;*}
report=$(sbatch --parsable --job-name "$name-report" --dependency "afterany:$array" \
    --output "$results/slurm/report-%j.log" "$here/report.sbatch" "$sweep" "$results")
report=${report%%;*}
echo "array $array: $n tasks into $results"
echo "report $report: when they have ended"
echo "watch: squeue --me; tail -f $results/slurm/${array}_0.log; tova-bench plan $sweep --results $results"
