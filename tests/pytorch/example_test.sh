#!/usr/bin/env bash
# Trains an example for LibTorch on two ranks at each stage: the printed lines must be the same, and the loss must fall.
# Those of torchrun must be the same too.
# Usage: example_test.sh MPIEXEC PROGRAM FOLDER_OF_CONFIGS PYTHON
set -euo pipefail
mpiexec=$1 program=$2 configs=$3 python=$4
by_mpirun=("$mpiexec" -n 2 --oversubscribe --bind-to none)  # as torchrun: as many threads
by_torchrun=("$python" -m torch.distributed.run --nproc-per-node 2 --no-python)
expected=
check() {
  local stage=$1 lines
  shift
  lines=$("$@" "$program" --deepspeed_config "$configs/zero$stage.json" --steps 100 | grep -E '^(step|accuracy)')
  expected=${expected:-$lines}
  [[ $lines == "$expected" ]] && return
  diff <(echo "$expected") <(echo "$lines") || true
  echo "stage $stage by $1 differs from stage 0"
  exit 1
}
for stage in 0 1 2 3; do
  check $stage "${by_mpirun[@]}"
done
check 3 "${by_torchrun[@]}"
loss() { echo "$expected" | sed -n "s/^step $1: loss \([0-9.]*\),.*/\1/p"; }
awk -v first="$(loss 1)" -v last="$(loss 100)" 'BEGIN { exit !(last < 0.8 * first) }' || {
  echo "$expected"
  echo "the loss did not fall"
  exit 1
}
