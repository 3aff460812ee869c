#!/usr/bin/env bash
# Installs missing packages, builds the trainer, trains a small GPT with 4 ranks at ZeRO stages 0 to 3 on the built-in
# text, prints one table and writes a report.
# Usage: examples/quickstart.sh
# RANKS, STEPS and MODEL (a preset or a config.json) in the environment change the run. The ranks are on the CPU.
# ZERO_CUDA=AUTO, ON or OFF decides whether the CUDA back end is built too; by default it is if there is a GPU.
set -euo pipefail
if [[ ${1:-} == --help || ${1:-} == -h ]]; then
  sed -n '2,/^[^#]/s/^# //p' "$0"
  exit
fi
if (($#)); then
  echo "quickstart.sh: unexpected argument $1; variables change the run, as in RANKS=2 STEPS=10 $0" >&2
  exit 10
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ranks=${RANKS:-4} steps=${STEPS:-30} model=${MODEL:-examples/configs/quickstart_model.json}
cuda=${ZERO_CUDA:-$(nvidia-smi -L >/dev/null 2>&1 && echo AUTO || echo OFF)}

scripts/install_dependencies.sh
out=build/quickstart
mkdir -p "$out"
# An existing build folder keeps its setting, since a change would compile everything again.
preset=release
[[ -e build/release/CMakeCache.txt ]] || preset=quickstart
cmake --preset "$preset" -DZERO_CUDA="$cuda" >"$out/configure.log" 2>&1 || {
  cat "$out/configure.log"
  exit 1
}
echo "building train_gpt and zero in build/release, some minutes (logs in $out; ZERO_CUDA=$cuda):"
sed -n 's/^-- \(CUDA .*\|CUDA: .*\|train_gpt: .*\)/  \1/p' "$out/configure.log"
NINJA_STATUS='[%f/%t] ' cmake --build --preset quickstart 2>&1 | tee "$out/build.log" |
  python3 scripts/build_progress.py || {
  grep -m 1 -A 20 -E 'FAILED|error:' "$out/build.log" || tail -n 20 "$out/build.log"
  exit 1
}

bin=build/release/bin
"$bin/zero" run -n "$ranks" "$bin/train_gpt" --deepspeed_config examples/configs/zero0.json --model "$model" \
  --steps "$steps" --compare-stages 0,1,2,3 --report "$out" --log-json "$out/log.jsonl"

echo
echo "next, on a text of yours (a byte is a token), with all that stage 3 shards:"
echo "  $bin/zero run -n $ranks $bin/train_gpt --deepspeed_config examples/configs/zero3.json --data README.md --steps 20"
