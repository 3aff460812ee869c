#!/usr/bin/env bash
# Before anybody rents a machine: which stages of a 7B decoder fit on 8 GPUs, how long 20 billion tokens take, and what they
# cost; then on how many GPUs they take at most three days. No GPU is needed, and it takes a second.
# Usage: examples/minute/plan.sh [FOLDER]   the folder of zero; default: build/release/bin, then PATH
set -euo pipefail
if [[ ${1:-} == -* ]]; then
  sed -n '2,/^[^#]/s/^# //p' "$0"
  exit
fi
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=$(realpath -m "${1:-build/release/bin}"):$PATH
run=(--params 7Bx32 --sequence-length 2048 --micro-batch 1 --recompute --device h100 --total-tokens 20B --price 2.5)
zero plan "${run[@]}" --ranks 8
echo
zero plan "${run[@]}" --deadline 72 | tail -n 1
