#!/usr/bin/env bash
# A GPT learns the bytes of this repository's README at stage 3 on 4 ranks. Takes some seconds.
# Usage: examples/minute/gpt_on_readme.sh [FOLDER]   of zero and train_gpt; default: build/release/bin, then PATH
set -euo pipefail
if [[ ${1:-} == -* ]]; then
  sed -n '2,/^[^#]/s/^# //p' "$0"
  exit
fi
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=$(realpath -m "${1:-build/release/bin}"):$PATH
zero run -n 4 train_gpt --deepspeed_config examples/configs/zero3.json --data README.md --steps 20
