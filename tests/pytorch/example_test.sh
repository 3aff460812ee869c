#!/usr/bin/env bash
# Trains an example for LibTorch on two ranks at each stage: the printed lines must be the same, and the loss must fall.
# Usage: example_test.sh MPIEXEC PROGRAM FOLDER_OF_CONFIGS
set -euo pipefail
mpiexec=$1 program=$2 configs=$3
for stage in 0 1 2 3; do
  lines=$("$mpiexec" -n 2 --oversubscribe "$program" --deepspeed_config "$configs/zero$stage.json" --steps 100 |
    grep -E '^(step|accuracy)')
  if ((stage == 0)); then
    expected=$lines
  elif [[ $lines != "$expected" ]]; then
    diff <(echo "$expected") <(echo "$lines") || true
    echo "stage $stage differs from stage 0"
    exit 1
  fi
done
loss() { echo "$expected" | sed -n "s/^step $1: loss \([0-9.]*\),.*/\1/p"; }
awk -v first="$(loss 1)" -v last="$(loss 100)" 'BEGIN { exit !(last < 0.8 * first) }' || {
  echo "$expected"
  echo "the loss did not fall"
  exit 1
}
