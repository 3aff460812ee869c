#!/usr/bin/env bash
# Installs what is missing, builds the trainer, trains a small GPT with 4 ranks at ZeRO stages 0 to 3 on
# the built-in text, prints one table and writes a report. Usage: examples/quickstart.sh
# RANKS, STEPS and MODEL (a preset or a config.json) in the environment change the run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ranks=${RANKS:-4} steps=${STEPS:-30} model=${MODEL:-examples/configs/quickstart_model.json}

scripts/install_dependencies.sh
out=build/quickstart
mkdir -p "$out"
echo "building the trainer (logs in $out)"
cmake --preset release >"$out/configure.log" 2>&1 || {
  cat "$out/configure.log"
  exit 1
}
cmake --build --preset release --target train_gpt zero

bin=build/release/bin
"$bin/zero" run -n "$ranks" "$bin/train_gpt" --deepspeed_config examples/configs/zero0.json --model "$model" \
  --steps "$steps" --compare-stages 0,1,2,3 --report "$out" --log-json "$out/log.jsonl"
