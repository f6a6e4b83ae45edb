#!/usr/bin/env bash
# Tries the templates in scripts/slurm on a real Slurm, which it starts on this machine: one controller and four nodes with
# a pretended GPU each, all on the loopback address. Needs no root and no cgroups, changes no configuration, and removes
# everything at the end.
#
#   .ci/slurm/try.sh            # three to five minutes on two cores
#   .ci/slurm/try.sh --quick    # one and a half: arrays and pre-emption
#
# Needs slurmctld, slurmd, the client commands and munge: apt-get install slurmctld slurmd slurm-client munge. TOVA_BENCH
# names the program (default: built here). KEEP=1 keeps the folder with all logs. Exit codes: 0 all checks passed, 1 one
# failed, 77 Slurm is not installed or does not start here.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
templates=$here/../../scripts/slurm
# shellcheck source-path=SCRIPTDIR source=cluster.sh
. "$here/cluster.sh"
quick=''
case ${1:-} in
--quick) quick=1 ;;
'') ;;
*) echo "usage: .ci/slurm/try.sh [--quick]" >&2 && exit 2 ;;
esac

if lacking=$(cluster_missing); then
    echo "skipped: no $lacking here; apt-get install slurmctld slurmd slurm-client munge" >&2
    exit 77
fi
if [ -z "${TOVA_BENCH:-}" ]; then
    (cd "$here/../.." && cargo build --release --locked)
    TOVA_BENCH=${CARGO_TARGET_DIR:-$here/../../target}/release/tova-bench
fi
TOVA_BENCH=$(realpath "$TOVA_BENCH")
export TOVA_BENCH
bench=$TOVA_BENCH
sweep=$here/try.yaml
work=$(mktemp -d "${TMPDIR:-/tmp}/tova-slurm.XXXXXX")
proved=()

finish() {
    local code=$?
    cluster_stop "$work"
    if [ -n "${KEEP:-}" ]; then echo "kept: $work" >&2; else rm -rf "$work"; fi
    exit "$code"
}
trap finish EXIT
trap 'exit 1' INT TERM

fail() {
    echo "FAILED: $*" >&2
    tail -n 15 "$work"/*.log "$work"/*/slurm/*.log "$work"/logs/* >&2 2>/dev/null || true
    exit 1
}
# Adds a line to the table.
prove() { proved+=("$1|$2") && echo "proved: $1: $2" >&2; }

# --- checks of results folders ---

# Checks that every cell is complete, none is partial or failed, and its rows equal those of the plain run, bit for bit.
exact() {
    local there
    there=$(find "$1/cells" -name '*.parquet' | wc -l)
    [ "$there" = "$cells" ] || fail "$1 has $there of $cells cells"
    [ -z "$(find "$1/partial" "$1/failed" -type f)" ] || fail "$1 has partial or failed cells"
    "$bench" compare "$work/plain" "$1" --exact --tolerance 0 >compare.log 2>&1 || fail "$1 differs from the plain run"
    "$bench" compare "$1" "$work/plain" --exact --tolerance 0 >compare.log 2>&1 || fail "the plain run differs from $1"
}
# Cells that the runs with these logs measured, together.
measured() { awk '/^[0-9]+ cells measured/ { all += $1 } END { print all + 0 }' "$@"; }

# Notes the journals: a copy as they are now, and a link through which their last state can be read after the program has
# removed them.
note_journals() { # RESULTS NOTES
    local journal
    mkdir -p "$2/now" "$2/end"
    for journal in "$1"/partial/*.jsonl; do
        [ -s "$journal" ] || continue
        ln "$journal" "$2/end/" 2>/dev/null || continue
        # A line that is being written does not count.
        sed -n '/}$/p' "$2/end/${journal##*/}" >"$2/now/${journal##*/}"
    done
    # Also link journals that are begun from now on.
    while [ ! -e "$2/over" ]; do
        for journal in "$1"/partial/*.jsonl; do
            ln "$journal" "$2/end/" 2>/dev/null || true
        done
        sleep 0.1
    done &
}
# Checks that no noted sample was measured again: the journals still begin with them, and no other journal of the cell has
# them too. Prints the number of noted samples.
kept_samples() { # NOTES
    local now cell all=0
    touch "$1/over"
    for now in "$1"/now/*.jsonl; do
        cmp -s -n "$(stat -c %s "$now")" "$now" "$1/end/${now##*/}" || fail "$now has changed"
        # CELL.LETTERS.jsonl: each process has a journal of its own.
        cell=${now##*/} cell=${cell%.jsonl} cell=${cell%.*}
        [ -z "$(grep -oh '"sample":{"index":[0-9]*' "$1/end/$cell".*jsonl | sort | uniq -d)" ] ||
            fail "a sample of $cell was measured again"
        all=$((all + $(wc -l <"$now")))
    done
    [ "$(find "$1/end" -name '*.jsonl' | wc -l)" -gt "$(find "$1/now" -name '*.jsonl' | wc -l)" ] ||
        fail "no process continued after $1"
    echo "$all"
}

# --- questions to Slurm ---

submitted() { # the job number in a line such as `array 7: ...`
    sed -n "s/^$1 \([0-9]*\):.*/\1/p" "$2"
}
over() { [ -z "$(squeue --noheader --jobs "$1" 2>/dev/null)" ]; }
ended() { wait_for "${2:-240}" over "$1" || fail "job $1 does not end: $(squeue --jobs "$1")"; }
# Takes the node of a task.
urgent_job() {
    sbatch --quiet --partition urgent --gres gpu:1 --output urgent.log \
        --nodelist "$(squeue --noheader --jobs "$1" --format %N)" --wrap 'sleep 2'
}
# A field of a job, such as JobState.
job() { scontrol --oneliner show job "$1" | grep -o " $2=[^ ]*" | head -n 1 | cut -d= -f2; }
is() { [ "$(job "$1" "$2")" = "$3" ]; }
node_is() { sinfo --noheader --nodes "$1" --partition work --format %T | grep -q "^$2"; }

# The number of samples in the journals that a task has open.
samples_in_hand() { # JOB TASK
    local process journals
    for process in $(cluster_processes "$work" "SLURM_ARRAY_JOB_ID=$1" "SLURM_ARRAY_TASK_ID=$2"); do
        mapfile -t journals < <(find "/proc/$process/fd" -lname '*/partial/*.jsonl' 2>/dev/null)
        if [ "${#journals[@]}" -gt 0 ]; then
            cat "${journals[@]}" 2>/dev/null | wc -l
            return
        fi
    done
    echo 0
}
at_work() { # JOB TASKS...: whether each has written samples
    local task array=$1
    shift
    for task; do
        [ "$(samples_in_hand "$array" "$task")" -ge 2 ] || return 1
    done
}

# --- the cluster, and the rows that all others must equal ---

cluster_start "$work" 4 || {
    echo "skipped: Slurm does not start here:" >&2
    tail -n 5 "$work"/*.log "$work"/*.out "$work"/node0/* >&2 || true
    exit 77
}
cd "$work"
mkdir logs
echo "$(slurmctld -V), 4 nodes, as $(id -un), in $work" >&2
# The plain run uses all cores, the tasks one each: results do not depend on threads.
small=(--cpus-per-task=1 --mem=4G)
started=$SECONDS
"$bench" run "$sweep" --results plain --no-report 2>plain.log || fail "the plain run"
cells=$(measured plain.log)
echo "plain run: $cells cells in $((SECONDS - started)) s" >&2

an_array_in_one_folder() {
    local started=$SECONDS array report once nodes
    "$templates/submit.sh" "$sweep" 4 --results one -- "${small[@]}" --exclude node3 >one.log || fail "submit.sh"
    array=$(submitted array one.log) report=$(submitted report one.log)
    ended "$report"
    once=$(measured one/slurm/"$array"_*.log)
    nodes=$(grep -ho ' on node[0-9]*' one/slurm/"$array"_*.log | sort -u | wc -l)
    exact one
    [ "$once" = "$cells" ] || fail "the tasks measured $once cells, but there are $cells"
    is "$report" JobState COMPLETED || fail "the report job: $(job "$report" JobState)"
    [ -s one/report.html ] || fail "there is no report"
    prove "array, one folder" \
        "4 tasks on $nodes nodes: $once of $cells cells once, rows exact, report drawn; $((SECONDS - started)) s"
}

an_array_in_folders() {
    local started=$SECONDS array report once files
    "$templates/submit.sh" "$sweep" 4 --results many --folders -- "${small[@]}" >many.log || fail "submit.sh --folders"
    array=$(submitted array many.log) report=$(submitted report many.log)
    ended "$report"
    once=$(measured many/slurm/"$array"_*.log)
    files=$(find many/shares -name '*.parquet' | wc -l)
    exact many
    [ "$once $files" = "$cells $cells" ] || fail "the folders have $files cells, the tasks measured $once"
    is "$report" JobState COMPLETED || fail "the report job: $(job "$report" JobState)"
    prove "array, a folder for each share" "4 folders: $files of $cells cells once, merged, rows exact; $((SECONDS - started)) s"
}

what_is_missing() {
    local code=0
    rm "$(find one/cells -name '*.parquet' | head -n 1)"
    sbatch --quiet --wait --output missing.log "$templates/report.sbatch" "$sweep" one || code=$?
    [ "$code" = 4 ] || fail "the report job of an incomplete sweep ended with $code"
    grep -q "^INCOMPLETE: $cells cells: $((cells - 1)) done, 1 to do" missing.log || fail "the missing cell is not reported"
    prove "a cell is missing" "report job ends with 4: $(grep -m1 INCOMPLETE missing.log)"
}

pre_emption() {
    local started=$SECONDS array report task first second
    "$templates/submit.sh" "$sweep" 4 --results hit -- "${small[@]}" --exclude node3 >hit.log || fail "submit.sh"
    array=$(submitted array hit.log) report=$(submitted report hit.log)
    wait_for 120 at_work "$array" 0 1 2 || fail "tasks 0 to 2 do not begin"
    note_journals hit first
    # A requeue by an administrator, the signal before a time limit, and a job with a higher priority.
    scontrol requeue "${array}_0"
    scancel --batch --signal=USR1 "${array}_1"
    urgent_job "${array}_2"
    # The fourth starts when one of them has ended.
    wait_for 120 at_work "$array" 3 || fail "task 3 does not begin"
    note_journals hit second
    scancel --full --signal=TERM "${array}_3"
    ended "$report"
    for task in 0 1 2 3; do
        is "${array}_$task" Restarts 1 || fail "task $task was restarted $(job "${array}_$task" Restarts) times"
        # A pre-emption sends SIGUSR1 and SIGTERM here, and two signals end the program at once.
        [ "$task" = 2 ] || grep -q '^interrupted; run the same command again' hit/slurm/"${array}_$task.log" ||
            fail "task $task did not end by itself"
        grep -qE '^stopped with exit code (138|143)' hit/slurm/"${array}_$task.log" || fail "task $task was killed"
    done
    grep -q '^stopped with exit code 138; back into the queue' hit/slurm/"${array}_1.log" || fail "SIGUSR1"
    grep -q '^stopped with exit code 143; back into the queue' hit/slurm/"${array}_3.log" || fail "SIGTERM"
    first=$(kept_samples first)
    second=$(kept_samples second)
    exact hit
    is "$report" JobState COMPLETED || fail "the report job: $(job "$report" JobState)"
    prove "pre-emption" \
        "requeue, SIGUSR1, urgent job, SIGTERM: 4 restarts, $((first + second)) samples kept, rows exact; $((SECONDS - started)) s"
}

pre_emption_with_notice() {
    local array samples
    array=$(sbatch --parsable --partition gentle --array 0 "${small[@]}" --output told.log "$templates/sweep.sbatch" \
        "$sweep" told 4)
    wait_for 60 at_work "$array" 0 || fail "the task to pre-empt does not begin"
    note_journals told fourth
    urgent_job "${array}_0"
    ended "$array"
    is "${array}_0" Restarts 1 || fail "the task was restarted $(job "${array}_0" Restarts) times"
    grep -q '^stopped with exit code 138; back into the queue' told.log || fail "SIGUSR1 before a pre-emption"
    samples=$(kept_samples fourth)
    prove "pre-emption with notice" "SIGUSR1 within the grace time: 1 restart, $samples samples kept"
}

a_cancelled_task() {
    local array
    array=$(sbatch --parsable --array 0 "${small[@]}" --output cancelled.log "$templates/sweep.sbatch" "$sweep" cancelled)
    wait_for 60 at_work "$array" 0 || fail "the task to cancel does not begin"
    scancel "${array}_0"
    ended "$array" 60
    # Long enough for a requeued task to come back.
    sleep 7
    is "${array}_0" JobState CANCELLED || fail "a cancelled task is $(job "${array}_0" JobState)"
    is "${array}_0" Restarts 0 || fail "a cancelled task was restarted"
    prove "scancel" "the task ends and stays cancelled"
}

a_lost_node() {
    local started=$SECONDS array lost task killed samples
    array=$(sbatch --parsable --array 0-2 "${small[@]}" --exclude node3 --output logs/%A_%a.log \
        "$templates/sweep.sbatch" "$sweep" lost)
    # At the same time: a task near its time limit, which Slurm signals with SIGUSR1.
    at_its_limit
    wait_for 120 at_work "$array" 0 1 2 || fail "the tasks do not begin"
    lost=$(squeue --noheader --jobs "${array}_1" --format %N)
    killed=$(cluster_lose "$work" "$lost")
    note_journals lost third
    wait_for 120 node_is "$lost" down || fail "Slurm does not notice that $lost is gone"
    cluster_node "$work" "$lost"
    ended "$array"
    task=$(job "${array}_1" Restarts)
    [ "$task" = 1 ] || fail "the task of the lost node was restarted $task times"
    samples=$(kept_samples third)
    exact lost
    prove "a node is lost" \
        "$killed processes of $lost killed: its task came back, $samples samples kept, rows exact; $((SECONDS - started)) s"
}

at_its_limit() {
    limited=$(sbatch --parsable --array 0 "${small[@]}" --nodelist node3 --time 1 --signal B:USR1@50 \
        --output limit.log "$templates/sweep.sbatch" "$sweep" limit)
}
time_was_over() {
    local restarts
    ended "$limited"
    restarts=$(job "${limited}_0" Restarts)
    [ "$restarts" -ge 1 ] || fail "Slurm sent no signal before the time was over"
    [ "$(grep -c 'exit code 138; back into the queue' limit.log)" = "$restarts" ] || fail "SIGUSR1 before the time was over"
    exact limit
    prove "time limit" "--signal=B:USR1@50 in a job of one minute: $restarts restart(s), rows exact"
}

a_balanced_array() {
    local array started=$SECONDS once figures
    mkdir times
    cat >timed <<TIMED
#!/usr/bin/env bash
exec 3>&2 4>$work/times/\$SLURM_ARRAY_TASK_ID
TIMEFORMAT='%R %U %S'
{ time "$bench" "\$@" 2>&3; } 2>&4
TIMED
    chmod +x timed
    array=$(TOVA_BENCH=$work/timed sbatch --parsable --array 3-31:4%2 "${small[@]}" --output logs/%A_%a.log \
        "$templates/sweep.sbatch" "$sweep" spread)
    ended "$array"
    once=$(measured logs/"$array"_*.log)
    exact spread
    [ "$once" = "$cells" ] || fail "the tasks measured $once cells, but there are $cells"
    figures=$(awk '{ wall += $1; cpu += $2 + $3; if ($1 > w) w = $1; if ($2 + $3 > c) c = $2 + $3 }
        END { printf "%d %.2f %.2f", NR, c / cpu * NR, w / wall * NR }' times/*)
    [ "${figures%% *}" = 8 ] || fail "8 tasks were asked for, and ${figures%% *} ran"
    prove "--array=3-31:4%2" "8 tasks: $once of $cells cells once, rows exact; $((SECONDS - started)) s"
    figures=${figures#* }
    awk -v most="${figures% *}" 'BEGIN { exit !(most <= 1.3) }' ||
        fail "the longest of 8 shares takes ${figures% *} times the mean in CPU time: $(cat times/*)"
    prove "balance of 8 shares" "longest over mean: ${figures% *} in CPU time (at most 1.3), ${figures#* } on the clock"
}

a_task_again() {
    local array first
    array=$(sbatch --parsable --array 2 "${small[@]}" --output again.log "$templates/sweep.sbatch" "$sweep" again 4)
    ended "$array"
    first=$(measured one/slurm/*_2.log)
    [ "$(measured again.log)" = "$first" ] || fail "task 2 alone measured $(measured again.log) cells, not its $first"
    prove "--array=2 with SHARES 4" "the same $first cells as in the array of 4"
}

an_array_in_one_folder
pre_emption
if [ -z "$quick" ]; then
    a_task_again
    an_array_in_folders
    what_is_missing
    pre_emption_with_notice
    a_cancelled_task
    a_lost_node
    time_was_over
    a_balanced_array
fi
printf '%s\n' "${proved[@]}" | awk -F'|' '{ printf "%-32s %s\n", $1, $2 }'
echo "all checks passed, in $SECONDS s"
