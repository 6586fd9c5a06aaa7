#!/bin/bash
# Runs once in every task of the training srun. MASTER_ADDR, MASTER_PORT and PRETRAINCTL_* come with the srun.
set -u

# --- caches of kernel compilers: in the run folder, since nodes have no disk and home folders fill up ---
caches="$PRETRAINCTL_RUN_DIR/caches/${SLURMD_NODENAME:-$(hostname)}"
export TRITON_CACHE_DIR="${TRITON_CACHE_DIR:-$caches/triton}"
export TORCHINDUCTOR_CACHE_DIR="${TORCHINDUCTOR_CACHE_DIR:-$caches/inductor}"
export TORCH_EXTENSIONS_DIR="${TORCH_EXTENSIONS_DIR:-$caches/extensions}"

# --- the training program ---
# torchrun starts the ranks of this node and tells each who it is; which node this is, is known only here.
program=(
  /e/project1/exalab/training/bin/python
  -m
  torch.distributed.run
  --nnodes=64
  --nproc-per-node=4
  --max-restarts=0
  --no-python
  --node-rank="$SLURM_PROCID"
  --master-addr="$MASTER_ADDR"
  --master-port="$MASTER_PORT"
  /e/project1/exalab/training/bin/python
  -m
  pretrainctl.trainer
  /home/you/runs/salamandra-7b/bundle/training.json
)

# --- signals: TERM and USR1 mean "save"; the program is told, and this script lives as long as the program ---
child=
signals=()
# torchrun knows TERM only: it tells its ranks, and gives them 30 s. USR1 would end it and leave them.
pass_on() { [ -n "$child" ] && kill -s TERM "$child" 2>/dev/null; }
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
