#!/usr/bin/env bash
# A job of two ranks loses one by SIGKILL, goes on from its newest checkpoint without anybody's help, and ends with the
# bits of a job that nothing has disturbed. Takes some seconds.
# Usage: examples/minute/lose_a_rank.sh [FOLDER]   of zero and train_gpt; default: build/release/bin, then PATH
set -euo pipefail
if [[ ${1:-} == -* ]]; then
  sed -n '2,/^[^#]/s/^# //p' "$0"
  exit
fi
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=$(realpath -m "${1:-build/release/bin}"):$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# train NAME [OPTION OF zero run ...]
train() {
  local name=$1
  shift
  zero run -n 2 "$@" train_gpt --model tiny --data README.md --steps 400 --checkpoint "$work/$name" --save-every 50 \
    --log-json "$work/$name.jsonl" >"$work/$name.out" 2>&1
}
digest_of() { sed -n 's/.*"digest":"\([0-9a-f]*\)".*/\1/p' "$work/$1.jsonl" | tail -n 1; }

echo "A job that nothing disturbs: 400 steps on 2 ranks"
train quiet || { cat "$work/quiet.out"; exit 1; }

echo "The same job; a rank is killed after the first checkpoint"
train lossy --restarts 3 &
job=$!
until [[ -d $work/lossy/step-50 ]]; do
  kill -0 $job 2>/dev/null || { cat "$work/lossy.out"; exit 1; }
  sleep 0.02
done
pkill -KILL -n -f "train_gpt .*$work/lossy" || { echo "the job had ended before a rank could be killed"; exit 1; }
wait $job || { cat "$work/lossy.out"; exit 1; }
grep '^zero run: ' "$work/lossy.out" | sed "s|$work/||g"

echo "weights and optimizer states, undisturbed: $(digest_of quiet)"
echo "weights and optimizer states, with a loss: $(digest_of lossy)"
[[ $(digest_of quiet) == "$(digest_of lossy)" ]] && echo "equal bits"
