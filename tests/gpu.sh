#!/usr/bin/env bash
# A queue of tests and benchmarks that need a GPU: it fits into a given time, stops at no failure, and the next call
# continues after the last finished entry. Needs python3, whose standard library suffices for all but the comparisons.
# Usage: tests/gpu.sh [--build DIR] PART... [--seconds N] [--results DIR] [--done FILE] [--again PATTERN] [--list]
#        tests/gpu.sh [--build DIR] --pack FILE.tar.xz [--wheel FILE]
#        tests/gpu.sh --run COMMAND...
#   all       every part below, in this order
#   first, second   what a machine that is lent for 15 minutes is used for: calls of 560 s and of 240 s
#   probe     libraries, driver and programs; runs before every part, and ends the call if something is missing
#   contact   PyTorch modules by the Python package, about 50 small trainings next to a plain loop of torch
#   again     those that have failed once more, with what shows the kernel
#   bits      kernels, streams and the trainer on one rank: the bits of the CPU's
#   bench     the optimizer step, the norm and host copies against the device copy
#   gpt2      steps of GPT-2 124M with two vocabularies, next to PyTorch's if python3 has torch
#   stages    equal bits of stages 0-3 on 1, 2 and 4 ranks that share the GPU
#   offload   steps with state in host memory: rates of the copies, and the hidden share of them
#   modules   the GPT-2 of transformers by the Python package, stages 0-3, next to DDP, FSDP2 and no exchange, on one
#             GPU; if the build has the package for a torch with CUDA
#   kernels   one step kernel by kernel, time and bytes of device memory, if there is ncu; the wire formats
#   sanitize  compute-sanitizer's memcheck and racecheck on our own kernels
#   models    steps of GPT-2 1.5B and of a Llama of 1.2B, and next to PyTorch's
#   losses    how far losses in bf16 are from PyTorch's in fp32, and PyTorch's own bf16, over 50 steps
#   --pack    one bundle of programs and libraries for a machine that has only the driver, CUDA and NCCL; for
#             a build of the preset pack; with the Python package of the wheel (scripts/make_wheel.sh --cuda)
#   --run     a command with the environment of an unpacked bundle
# DIR (gpu-results) gets results.jsonl, a line per result as soon as it exists, and log.txt, the whole output;
# tests/gpu/queue/run_queue.py documents more. Without a GPU: one line, and 77.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/release
pack=
wheel=
queue=()
# An unpacked bundle has its own Open MPI. Its programs find their libraries by themselves, because in LD_LIBRARY_PATH
# these would come before those of python3.
bundle=
if [[ -x bin/gpu_test ]]; then
  bundle=$PWD
  export OPAL_PREFIX=$bundle OMPI_MCA_plm=isolated PMIX_MCA_pcompress_base_silence_warning=1
  export PATH=$bundle/bin:$PATH
fi
# CUDA's own tools, if they are in their installer's folders.
for folder in /usr/local/cuda/bin /usr/local/cuda/compute-sanitizer /opt/nvidia/nsight-compute/*; do
  [[ -d $folder ]] && PATH=$PATH:$folder
done
# Runs as root too, for containers.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
if command -v python3 >/dev/null; then
  LD_LIBRARY_PATH=$(python3 tests/gpu/queue/probe.py --path)
  export LD_LIBRARY_PATH
fi
while (($# > 0)); do
  case $1 in
    --build) build=$2 && shift ;;
    --pack) pack=$2 && shift ;;
    --wheel) wheel=$2 && shift ;;
    --run) shift && exec "$@" ;;
    --help | -h)
      sed -n '2,28s/^# \?//p' "$0"
      exit
      ;;
    *) queue+=("$1") ;;
  esac
  shift
done
bin=${bundle:-$build}/bin

mpi_path() { ompi_info --parsable --path "$1" | sed -n "1s/path:$1://p"; }

# Relocates Open MPI next to our programs; libraries of CUDA and the C library stay out.
make_pack() {
  local program library
  folder=$(mktemp -d) # global: the trap outlives the function
  trap 'rm -rf "$folder"' EXIT
  mkdir -p "$folder/zero-gpu"/{bin,lib,libexec,tests/bench/peers,tests/gpu/queue,tests/gpu/modules}
  cp tests/gpu.sh "$folder/zero-gpu/tests/"
  cp tests/gpu/queue/*.py "$folder/zero-gpu/tests/gpu/queue/"
  cp tests/gpu/modules/*.py "$folder/zero-gpu/tests/gpu/modules/"
  cp tests/bench/{gpu_*,training,turns}.py "$folder/zero-gpu/tests/bench/"
  cp tests/bench/peers/*.py "$folder/zero-gpu/tests/bench/peers/"
  [[ -z $wheel ]] || python3 -m zipfile -e "$wheel" "$folder/zero-gpu/python" || return 1
  local programs=("$bin/gpu_test" "$bin/gpu_ranks" "$bin/gpu_bench" "$bin/gpt_gpu_test" "$bin/train_gpt"
    "$(command -v orted)")
  for program in "${programs[@]}"; do
    cp -L "$program" "$folder/zero-gpu/bin/" || return 1
  done
  # A wrapper, since Debian's mpirun has no path to its libraries, unlike our programs.
  cp -L "$(command -v mpirun)" "$folder/zero-gpu/libexec/" || return 1
  printf '%s\n' '#!/usr/bin/env bash' 'export LD_LIBRARY_PATH=$OPAL_PREFIX/lib:${LD_LIBRARY_PATH:-}' \
    'exec -a mpirun "$OPAL_PREFIX/libexec/mpirun" "$@"' >"$folder/zero-gpu/bin/mpirun"
  chmod +x "$folder/zero-gpu/bin/mpirun"
  # The folder in which OPAL_PREFIX will look for them.
  local prefix path
  prefix=$(mpi_path prefix)
  for path in "$(mpi_path pkglibdir)" "$(mpi_path pkgdatadir)"; do
    mkdir -p "$folder/zero-gpu/$(dirname "${path#"$prefix"/}")"
    cp -rL "$path" "$folder/zero-gpu/${path#"$prefix"/}" || return 1
  done
  while read -r library; do
    cp -Ln "$library" "$folder/zero-gpu/lib/"
  done < <(find "$folder/zero-gpu"/{bin,lib,libexec} -type f -exec ldd {} + 2>/dev/null |
    sed -n 's/.*=> \(\/[^ ]*\).*/\1/p' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*|libcuda|libnccl|libcudnn[^/]*|libcublas[^/]*)\.so')
  strip --strip-unneeded "$folder"/zero-gpu/{bin,libexec}/* "$folder"/zero-gpu/lib/*.so* 2>/dev/null
  find "$folder"/zero-gpu -type f -name '*.so*' -exec python3 tests/gpu/queue/inherit_rpath.py {} + || return 1
  tar -C "$folder" -cJf "$pack" zero-gpu || return 1
  local bytes
  bytes=$(stat -c %s "$pack")
  echo "$pack: $bytes bytes; unpack it, then run its tests/gpu.sh all"
  ((bytes < 60 * 1024 * 1024)) || { echo "that is more than 60 MiB" && return 1; }
}

if [[ -n $pack ]]; then
  make_pack
  exit
fi
((${#queue[@]} > 0)) || exec "$0" --help
code=0
"$bin/gpu_test" --count >/dev/null 2>&1 || code=$?
if ((code == 77)); then
  "$bin/gpu_test" | head -n 1
  exit 77
fi
if ((code == 11)); then  # a driver that is too old
  "$bin/gpu_test"
  exit 11
fi
ZERO_GPU_PROGRAMS=$bin exec python3 tests/gpu/queue/run_queue.py "${queue[@]}"
