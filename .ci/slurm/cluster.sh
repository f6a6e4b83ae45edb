# shellcheck shell=bash
# A small Slurm cluster on this machine, with its own key, ports and folder; sourced by try.sh.
#
# Starts munge, the controller and node daemons. Each node pretends to have 8 cores, 128 GB and a GPU, so that templates run
# unchanged, and no two tasks that request a GPU share a node. Nothing needs root; daemons listen on the loopback address.

# Debian installs the daemons where only root's PATH looks.
PATH=$PATH:/usr/sbin:/sbin

cluster_missing() { # prints the first tool that is not installed
    local tool
    for tool in munged slurmctld slurmd sbatch squeue scontrol scancel sinfo; do
        command -v "$tool" >/dev/null || { echo "$tool" && return 0; }
    done
    return 1
}

cluster_write() { # FOLDER NODES: writes the configuration
    local folder=$1 last=$(($2 - 1)) host user base
    host=$(uname -n)
    host=${host%%.*}
    user=$(id -un)
    # Away from Slurm's own ports and those of another trial.
    base=$((20000 + RANDOM % 10000))
    mkdir -p "$folder/state"
    (umask 077 && head -c 1024 /dev/urandom >"$folder/munge.key")
    cat >"$folder/slurm.conf" <<CONF
ClusterName=trial
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$base
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
# A requeued job waits until its old credential expires, two minutes by default.
AuthInfo=socket=$folder/munge.sock,cred_expire=5
StateSaveLocation=$folder/state
SlurmctldPidFile=$folder/slurmctld.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdSpoolDir=$folder/%n/spool
SlurmdPidFile=$folder/%n/slurmd.pid
SlurmdLogFile=$folder/%n/slurmd.log
# No cgroups, which containers seldom allow.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=2,sched_min_interval=100000,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
KillWait=30
MinJobAge=600
# Seconds without an answer after which a node counts as lost.
SlurmdTimeout=5
TCPTimeout=1
MessageTimeout=5
ReturnToService=2
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=node[0-$last] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((base + 1))-$((base + $2))] CPUs=8 RealMemory=128000 Gres=gpu:1
PartitionName=work Nodes=ALL Default=YES PriorityTier=1
# Like work, but with a signal a minute before a pre-emption.
PartitionName=gentle Nodes=ALL PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL PriorityTier=9
CONF
    # No device is used; the file only has to exist.
    cat >"$folder/gres.conf" <<CONF
AutoDetect=off
NodeName=node[0-$last] Name=gpu File=/dev/null
CONF
}

cluster_start() { # FOLDER NODES: starts all daemons; fails if they do not come up
    local folder=$1 node variable
    # Forget the variables of a cluster that this script itself may run on.
    while read -r variable; do unset "$variable"; done < <(compgen -e | grep -E '^(SLURM|SBATCH|SQUEUE|SCANCEL|SINFO)')
    cluster_write "$folder" "$2"
    export SLURM_CONF=$folder/slurm.conf
    munged --force --foreground --key-file="$folder/munge.key" --socket="$folder/munge.sock" \
        --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/munge.seed" \
        </dev/null >"$folder/munged.out" 2>&1 &
    disown
    wait_for 10 test -S "$folder/munge.sock" || return 1
    slurmctld -D </dev/null >"$folder/slurmctld.out" 2>&1 &
    disown
    for ((node = 0; node < $2; node++)); do
        cluster_node "$folder" "node$node"
    done
    wait_for 30 cluster_idle "$2"
}

cluster_node() { # FOLDER NODE: starts one node's daemon
    mkdir -p "$1/$2/spool"
    # Slurm sets this variable for jobs; set here, cluster_lose finds the daemon as well.
    SLURMD_NODENAME=$2 slurmd -D -N "$2" </dev/null >"$1/$2/slurmd.out" 2>&1 &
    disown
}

cluster_idle() { # NODES: whether all nodes are idle
    [ "$(sinfo --noheader --Node --partition work --format %T 2>/dev/null | grep -c '^idle$')" = "$1" ]
}

# The processes of this cluster, daemons and jobs; if variables are given, only those whose environment has them all. The
# supervisor of a job comes before it, so that the job's end is not reported.
cluster_processes() { # FOLDER [VARIABLE=VALUE...]
    local folder=$1 environments variable parent
    shift
    environments=(/proc/[0-9]*/environ)
    for variable in "SLURM_CONF=$folder/slurm.conf" "$@"; do
        mapfile -t environments < <(grep -slzxF -e "$variable" "${environments[@]}" /dev/null)
    done
    for variable in "${environments[@]}"; do
        # slurmstepd overwrites its environment with its title.
        parent=$(sed -n 's/^PPid:[[:space:]]*//p' "${variable%environ}status")
        case $(cat "/proc/$parent/comm") in slurmstepd*) echo "$parent" ;; esac
        variable=${variable%/environ}
        echo "${variable#/proc/}"
    done 2>/dev/null
}

cluster_lose() { # FOLDER NODE: kills all processes of a node at once, and prints their number
    local processes
    mapfile -t processes < <(cluster_processes "$1" "SLURMD_NODENAME=$2")
    kill -KILL "${processes[@]}" 2>/dev/null || true
    echo "${#processes[@]}"
}

cluster_stop() { # FOLDER: kills all processes of the cluster, whatever its state
    local processes
    unset SLURM_CONF
    while mapfile -t processes < <(cluster_processes "$1" && cluster_steps "$1") && [ "${#processes[@]}" -gt 0 ]; do
        kill -KILL "${processes[@]}" 2>/dev/null || true
        sleep 0.2
    done
}

# Steps that have just started are not yet found by cluster_processes, but have files open in the folder.
cluster_steps() { # FOLDER
    local process
    while read -r process; do
        case $(cat "/proc/$process/comm") in slurm*) echo "$process" ;; esac
    done < <(find /proc/[0-9]*/fd -lname "$1/*" 2>/dev/null | cut -d/ -f3 | sort -u) 2>/dev/null
}

wait_for() { # SECONDS COMMAND...: until it succeeds
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$until" ] || return 1
        sleep 0.2
    done
}
