#!/bin/sh
# Tries the Slurm job on this machine alone: a private Slurm (munge, slurmctld, slurmd of Debian's packages) in a folder
# of its own, one job with two ranks, one request, a drain. Needs root, as slurmd does; changes nothing outside the folder.
#   apt-get install --no-install-recommends munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins
#   deploy/slurm/try-local.sh [RANKS] [BIN_DIR]
set -eu

ranks=${1:-2}
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "${2:-$here/../../build/release/bin}" && pwd)
for program in munged slurmctld slurmd srun sbatch; do
  command -v $program >/dev/null || { echo "error: $program is not installed" >&2; exit 1; }
done
[ "$(id -u)" = 0 ] || { echo "error: slurmd needs root" >&2; exit 1; }

work=$(mktemp -d /tmp/foretoken-slurm-XXXXXX)
host=$(hostname -s)
cores=$(nproc)
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
client=tcp://127.0.0.1:$(free_port)
pids=''
job=''
stop() {
  if [ -n "$job" ]; then  # Slurm's daemons must live until it is gone: nothing else ends its tasks
    scancel --full --signal=KILL "$job" 2>/dev/null || true
    scancel "$job" 2>/dev/null || true
    for _ in $(seq 100); do
      [ -n "$(squeue --noheader --job="$job" 2>/dev/null)" ] || break
      sleep 0.2
    done
  fi
  # shellcheck disable=SC2086 # process ids are words
  kill $pids 2>/dev/null || true
  # shellcheck disable=SC2086
  wait $pids 2>/dev/null || true
  if [ "${KEEP:-0}" = 1 ]; then echo "kept: $work"; else rm -rf "$work"; fi
}
trap stop EXIT

mkdir -p "$work/state" "$work/spool" "$work/munge"
chmod 700 "$work/munge"
dd if=/dev/urandom of="$work/munge/key" bs=1 count=1024 2>/dev/null
chmod 400 "$work/munge/key"
cat >"$work/slurm.conf" <<CONF
ClusterName=foretoken
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
KillWait=35
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cores State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
CONF
mkdir "$work/pmix"
echo "PMIxCliTmpDirBase=$work/pmix" >"$work/mpi.conf"
echo 'CgroupPlugin=cgroup/v1' >"$work/cgroup.conf"
export SLURM_CONF="$work/slurm.conf"

munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" \
  --pid-file="$work/munge/pid" --log-file="$work/munge/log" --seed-file="$work/munge/seed" >"$work/munge.out" 2>&1 &
pids="$pids $!"
slurmctld -D -f "$SLURM_CONF" >"$work/ctld.out" 2>&1 &
pids="$pids $!"
slurmd -D -f "$SLURM_CONF" -N "$host" >"$work/slurmd.out" 2>&1 &
pids="$pids $!"

wait_for() {  # wait_for SECONDS WHAT COMMAND...: until the command succeeds
  limit=$1 what=$2
  shift 2
  end=$(($(date +%s) + limit))
  until "$@" >/dev/null 2>&1; do
    if [ "$(date +%s)" -ge "$end" ]; then
      echo "error: not within $limit s: $what" >&2
      tail -n 20 "$work"/*.out "$work"/*.log >&2
      exit 1
    fi
    sleep 0.2
  done
}
node_is_idle() { sinfo --noheader --format=%T | grep -q -E 'idle|mixed'; }
job_is_gone() { [ -z "$(squeue --noheader --job="$job" 2>/dev/null)" ]; }
answers() { "$bin/foretoken" generate --set bus.client="$client" "The water" --temperature 0 --max-tokens 24 >"$work/answer"; }

wait_for 30 "the node is up" node_is_idle
begun=$(date +%s)
export FORETOKEN_BIN_DIR="$bin"
export FORETOKEN_SETTINGS="--set bus.client=$client --set kv_cache.memory=256MiB --set draft.memory=128MiB ${FORETOKEN_SETTINGS:-}"
job=$(sbatch --parsable --ntasks="$ranks" --overcommit --output="$work/job.out" "$here/foretoken.sbatch")
wait_for 60 "the job answers" answers
echo "job $job, $ranks ranks by srun --mpi=pmix: answered $(($(date +%s) - begun)) s after sbatch:"
cat "$work/answer"
cp "$work/answer" "$work/first"
ranks_running() { pgrep -f "^$bin/foretoken-target " || true; }
[ "$(ranks_running | wc -l)" = "$ranks" ] || { echo "error: not $ranks ranks: $(ranks_running)" >&2; exit 1; }

killed=$(ranks_running | tail -n 1)
kill -KILL "$killed"
begun=$(date +%s)
is_replaced() { answers && ! kill -0 "$killed" && [ "$(ranks_running | wc -l)" = "$ranks" ]; }
wait_for 60 "a killed rank's group is started again" is_replaced
cmp "$work/first" "$work/answer"
echo "one rank killed: the same answer from a new group $(($(date +%s) - begun)) s later"

kill -KILL "$(pgrep -f "^$bin/foretoken-router ")"
wait_for 60 "a killed router is started again" answers
cmp "$work/first" "$work/answer"
echo "the router killed: the same answer from a new one"

begun=$(date +%s)
scancel --signal=TERM --batch "$job"
wait_for 45 "the job has drained" job_is_gone
echo "drained and gone $(($(date +%s) - begun)) s after scancel"
grep -q stopped "$work/job.out" || { tail -n 20 "$work/job.out" >&2; exit 1; }
[ -z "$(ranks_running)" ] || { echo "error: ranks are left" >&2; exit 1; }
echo "nothing is left"
