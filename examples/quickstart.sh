#!/usr/bin/env bash
# Installs what is missing, builds the trainer, trains a small GPT with 4 ranks at ZeRO stages 0 to 3 on
# the built-in text, and prints one table. Usage: examples/quickstart.sh
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
train() {
  "$bin/zero" run -n "$ranks" "$bin/train_gpt" --deepspeed_config "examples/configs/zero$1.json" \
    --model "$model" --steps "$steps" --log-json "$2"
}

logs=()
for stage in 0 1 2 3; do
  echo
  echo "== stage $stage"
  log=$out/stage$stage.jsonl
  # On a terminal one sees it train; elsewhere the table is enough.
  if [[ -t 1 ]]; then
    train "$stage" "$log"
  else
    train "$stage" "$log" >"$out/stage$stage.log" || {
      cat "$out/stage$stage.log"
      exit 1
    }
  fi
  logs+=("stage $stage=$log")
done
echo
python3 examples/compare_stages.py "${logs[@]}"
