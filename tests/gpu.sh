#!/usr/bin/env bash
# What needs a GPU, in parts that each end within nine minutes; every test has a limit of its own.
# Usage: tests/gpu.sh [--build DIR] [--results FILE] bits | sanitize | bench | peers | losses | torch
#        tests/gpu.sh [--build DIR] --pack FILE.tar.xz
#        tests/gpu.sh --run COMMAND...
#   bits      kernels, streams and stages: equal bits on 1, 2 and 4 ranks that share the GPU
#   sanitize  compute-sanitizer's memcheck and racecheck on the kernels
#   bench     the optimizer step and host copies against the device copy; steps of GPT-2 124M
#   peers     steps of GPT-2 124M and 1.5B and of a Llama of 1.2B beside PyTorch's, where python3 has torch
#   losses    how far losses in bf16 are from PyTorch's in fp32, and PyTorch's own bf16, over 50 steps
#   torch     the GPT-2 of transformers by the Python package, stages 0-3, beside DDP, FSDP2 and no exchange, on one
#             GPU; where the build has the package for a torch with CUDA
#   --pack    one bundle of programs and libraries for a machine that has the driver, CUDA and NCCL alone; for
#             a build of the preset pack
#   --run     a command with the environment of an unpacked bundle
# Results are appended to FILE (gpu-results.txt) after each test. Without a GPU: one line, and 77.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/release
results=gpu-results.txt
pack=
part=
# An unpacked bundle brings its own Open MPI.
bundle=
if [[ -x bin/gpu_test ]]; then
  bundle=$PWD
  export OPAL_PREFIX=$bundle OMPI_MCA_plm=isolated PMIX_MCA_pcompress_base_silence_warning=1
  export PATH=$bundle/bin:$PATH LD_LIBRARY_PATH=$bundle/lib:${LD_LIBRARY_PATH:-}
fi
# As root too, as in a container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
while (($# > 0)); do
  case $1 in
    --build) build=$2 && shift ;;
    --results) results=$2 && shift ;;
    --pack) pack=$2 && shift ;;
    --run) shift && exec "$@" ;;
    bits | sanitize | bench | peers | losses | torch) part=$1 ;;
    *)
      sed -n '2,16s/^# \?//p' "$0"
      [[ $1 == --help || $1 == -h ]] && exit 0
      exit 10
      ;;
  esac
  shift
done
bin=${bundle:-$build}/bin

failed=0
# record LIMIT NAME COMMAND...: runs it, notes the outcome.
record() {
  local limit=$1 name=$2 start=$SECONDS code=0 output
  shift 2
  output=$(timeout -k 5 "$limit" "$@" 2>&1) || code=$?
  [[ $code == 0 || $code == 77 ]] || failed=1
  {
    echo "== $name: exit $code, $((SECONDS - start)) s"
    tail -n 25 <<<"$output"
  } | tee -a "$results"
}

launch() { # launch RANKS PROGRAM ARGUMENTS...
  local ranks=$1
  shift
  if [[ $ranks == 1 ]]; then
    "$@"
  else
    mpirun -n "$ranks" --oversubscribe --bind-to none "$@"
  fi
}
export -f launch

results_of() { grep -oE 'digest .*|stage .*: sent .*' | sort; }

# The stages on GPUs, and the same digests as on CPU ranks.
compare_with_cpu() {
  local ranks=$1 on_gpu on_cpu
  on_gpu=$(launch "$ranks" "$bin/gpu_ranks") || {
    echo "$on_gpu"
    return 1
  }
  on_cpu=$(launch "$ranks" "$bin/gpu_ranks" cpu) || {
    echo "$on_cpu"
    return 1
  }
  echo "$on_gpu"
  [[ $(results_of <<<"$on_gpu") == "$(results_of <<<"$on_cpu")" ]] || {
    echo "the CPU ranks give:" && echo "$on_cpu"
    return 1
  }
}
export -f compare_with_cpu results_of
export bin

run_bits() {
  record 70 "kernels, streams, one rank" "$bin/gpu_test"
  record 100 "the trainer's kernels, models and loop" "$bin/gpt_gpu_test"
  local ranks
  for ranks in 1 2 4; do
    record 90 "stages on $ranks ranks, deterministic, against CPU ranks" bash -c "compare_with_cpu $ranks"
  done
  record 80 "2 ranks, plain NCCL, run to run" bash -c "launch 2 $bin/gpu_ranks plain"
}

run_sanitize() {
  local tool
  if ! command -v compute-sanitizer >/dev/null; then
    echo "== sanitize: no compute-sanitizer here" | tee -a "$results"
    return
  fi
  for tool in memcheck racecheck; do
    record 120 "compute-sanitizer $tool" compute-sanitizer --tool "$tool" --error-exitcode 1 \
      "$bin/gpu_test" --test-case='*updates*,*bins*,*decision*'
    record 120 "compute-sanitizer $tool, the trainer's kernels" compute-sanitizer --tool "$tool" --error-exitcode 1 \
      "$bin/gpt_gpu_test" --test-case='*norms*,*embedding*,*attention*,*entropy*'
  done
}

run_bench() {
  record 200 "optimizer step and norm against the device copy" "$bin/gpu_bench"
  record 200 "GPT-2 124M, bf16, 64 x 1024 tokens" "$bin/train_gpt" --device cuda --model gpt2 --steps 30 \
    --set bf16.enabled=true --set train_micro_batch_size_per_gpu=64 --sequence-length 1024
}

# One lease, one program at a time; the limits add up to less than nine minutes.
beside_torch() { # beside_torch LIMIT speed|losses MODEL OPTIONS...
  local limit=$1 what=$2 model=$3
  shift 3
  record "$limit" "$what of $model beside PyTorch" python3 tests/bench/gpu_training.py "$what" "$bin/train_gpt" \
    --model "$model" "$@"
}

run_peers() {
  beside_torch 150 speed gpt2 --fsdp2
  beside_torch 200 speed gpt2-xl --repeat 1 --steps 10
  beside_torch 170 speed llama-1.2b --repeat 1 --steps 10
}

run_losses() {
  beside_torch 200 losses gpt2
  beside_torch 300 losses llama-1.2b --batch 2
}

run_torch() {
  local dtype
  for dtype in "" --bf16; do
    record 250 "GPT-2 of transformers ${dtype:-in fp32}" python3 tests/bench/training.py "$build/python" --ranks 1 \
      --device cuda --batch 8 --tokens 1024 --turns 5 --steps 5 $dtype 0:alone 0:ddp 3:fsdp2 0:1 0:2 0:3
  done
}

mpi_path() { ompi_info --parsable --path "$1" | sed -n "1s/path:$1://p"; }

# Open MPI relocated beside our programs; libraries of CUDA and the C library stay out.
make_pack() {
  local program library
  folder=$(mktemp -d) # global: the trap outlives the function
  trap 'rm -rf "$folder"' EXIT
  mkdir -p "$folder/zero-gpu/bin" "$folder/zero-gpu/lib" "$folder/zero-gpu/tests"
  cp tests/gpu.sh "$folder/zero-gpu/tests/"
  mkdir "$folder/zero-gpu/tests/bench"
  cp tests/bench/gpu_models.py tests/bench/gpu_training.py "$folder/zero-gpu/tests/bench/"
  local programs=("$bin/gpu_test" "$bin/gpu_ranks" "$bin/gpu_bench" "$bin/gpt_gpu_test" "$bin/train_gpt"
    "$(command -v mpirun)" "$(command -v orted)")
  for program in "${programs[@]}"; do
    cp -L "$program" "$folder/zero-gpu/bin/" || return 1
  done
  # Where OPAL_PREFIX will look for them.
  local prefix path
  prefix=$(mpi_path prefix)
  for path in "$(mpi_path pkglibdir)" "$(mpi_path pkgdatadir)"; do
    mkdir -p "$folder/zero-gpu/$(dirname "${path#"$prefix"/}")"
    cp -rL "$path" "$folder/zero-gpu/${path#"$prefix"/}" || return 1
  done
  while read -r library; do
    cp -Ln "$library" "$folder/zero-gpu/lib/"
  done < <(find "$folder/zero-gpu/bin" "$folder/zero-gpu/lib" -type f -exec ldd {} + 2>/dev/null |
    sed -n 's/.*=> \(\/[^ ]*\).*/\1/p' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*|libcuda|libnccl|libcudnn[^/]*|libcublas[^/]*)\.so')
  strip --strip-unneeded "$folder"/zero-gpu/bin/* "$folder"/zero-gpu/lib/*.so* 2>/dev/null
  tar -C "$folder" -cJf "$pack" zero-gpu || return 1
  local bytes
  bytes=$(stat -c %s "$pack")
  echo "$pack: $bytes bytes; unpack it, then run its tests/gpu.sh bits"
  ((bytes < 40 * 1024 * 1024)) || { echo "that is more than 40 MiB" && return 1; }
}

if [[ -n $pack ]]; then
  make_pack
  exit
fi
[[ -n $part ]] || exec "$0" --help
if ! "$bin/gpu_test" --count >/dev/null 2>&1; then
  "$bin/gpu_test" | head -n 1
  exit 77
fi
echo "# $part, $(date -u +%FT%TZ), $(nvidia-smi -L 2>/dev/null | head -n 1)" >>"$results"
"run_$part"
exit "$failed"
