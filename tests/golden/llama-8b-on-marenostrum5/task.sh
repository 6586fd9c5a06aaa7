#!/bin/bash
# Runs once in every task of the training srun. MASTER_ADDR, MASTER_PORT and PRETRAINCTL_* come with the srun.
set -u

# --- who this task is: known only here, so never written by the batch script ---
export RANK="$SLURM_PROCID"
export LOCAL_RANK="$SLURM_LOCALID"
export WORLD_SIZE="$SLURM_NTASKS"
export LOCAL_WORLD_SIZE=4

# --- caches of kernel compilers: on this node, since many small files are slow on the shared file system ---
caches="${TMPDIR:-/tmp}/pretrainctl-$SLURM_JOB_ID"
mkdir -p "$caches"
export APPTAINER_BIND="${APPTAINER_BIND:+$APPTAINER_BIND,}$caches" SINGULARITY_BIND="${SINGULARITY_BIND:+$SINGULARITY_BIND,}$caches"
export TRITON_CACHE_DIR="${TRITON_CACHE_DIR:-$caches/triton}"
export TORCHINDUCTOR_CACHE_DIR="${TORCHINDUCTOR_CACHE_DIR:-$caches/inductor}"
export TORCH_EXTENSIONS_DIR="${TORCH_EXTENSIONS_DIR:-$caches/extensions}"

# --- the training program ---
program=(
  singularity
  exec
  --nv
  --bind=/home/you/runs/llama-8b
  --bind=/home/you/data
  /gpfs/projects/ehpc01/images/training.sif
  python3
  -m
  pretrainctl.trainer
  /home/you/runs/llama-8b/bundle/training.json
)

# --- signals: TERM and USR1 mean "save"; the program is told, and this script lives as long as the program ---
child=
signals=()
pass_on() { [ -n "$child" ] && kill -s "$1" "$child" 2>/dev/null; }
trap 'signals+=(TERM); pass_on TERM' TERM
trap 'signals+=(USR1); pass_on USR1' USR1

"${program[@]}" &
child=$!
# What came before the program was there is passed on now.
for name in ${signals[@]+"${signals[@]}"}; do pass_on "$name"; done

# A signal ends `wait` before the program has ended: wait again until no signal came meanwhile.
seen=-1
status=0
while [ "${#signals[@]}" -ne "$seen" ]; do
  seen=${#signals[@]}
  wait "$child"
  status=$?
done

# --- the first task that ends badly says so; 75 is a checkpoint and a wish to go on. So does the first that ends well
# where rank 0 writes no end record meanwhile ---
now=$(date +%s.%N)
folder="$PRETRAINCTL_RUN_DIR/attempts/$(printf '%04d' "$PRETRAINCTL_ATTEMPT")/restart-$PRETRAINCTL_RESTART"
record() {
  local node aside
  node=${SLURMD_NODENAME:-$(hostname)}
  aside="$folder/.$1.$SLURM_PROCID"
  printf '{"rank": %d, "node": "%s", "status": %d, "time": %s}\n' \
    "$SLURM_PROCID" "${node//[^A-Za-z0-9._-]/_}" "$status" "$now" >"$aside" &&
    ln "$aside" "$folder/$1.json"
  rm -f "$aside"
}
has_ended() {
  local try
  for try in {1..10}; do
    [ -e "$folder/end.json" ] && return 0
    [ "$SLURM_PROCID" -eq 0 ] && return 1
    [ "$try" -lt 10 ] && sleep 0.3
  done
  return 1
}
if [ "$status" -ne 0 ] && [ "$status" -ne 75 ]; then
  record failure 2>/dev/null
elif ! has_ended; then
  record left 2>/dev/null
fi
exit "$status"
