#!/usr/bin/env bash
# Tests the README's first command on an empty machine: runs examples/quickstart.sh of this source tree in a minimal Debian
# of the given release, from the installation of missing packages to the printed table. Exits with 77 if no such root can be
# made.
# Usage: tests/fresh/fresh_machine.sh bookworm|trixie [--pretended-gpu]
#   --pretended-gpu  on a machine with PyPI's nvcc of CUDA 13, and with an nvidia-smi that lists a GPU
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/fresh/empty_root.sh

packages=''
[[ ${2:-} != --pretended-gpu ]] || packages=python3-venv,python3-pip
pack_sources "$work/source.tar"
cat >"$work/inside" <<INSIDE
set -eu
pretended_gpu=${packages:+1}
INSIDE
cat >>"$work/inside" <<'INSIDE'
mkdir /source
tar -x -C /source -f /source.tar
cd /source
export HOME=/root RANKS=2 STEPS=3
# Without optimization, which takes a third of the compile time: other tests compile with it.
printf '#!/bin/sh\nexec "$@" -O0\n' >/usr/local/bin/compile_quickly
chmod +x /usr/local/bin/compile_quickly
export CMAKE_CXX_COMPILER_LAUNCHER=/usr/local/bin/compile_quickly
if [ -n "$pretended_gpu" ]; then
  python3 -m venv /venv
  /venv/bin/pip install --quiet "cuda-toolkit[nvcc,cccl,cublas,nvtx]==13.*"
  toolkit=$(echo /venv/lib/python3*/site-packages/nvidia/cu13)
  ln -s libcudart.so.13 "$toolkit/lib/libcudart.so"
  printf '#!/bin/sh\necho "GPU 0: NVIDIA H100 (pretended)"\n' >/usr/local/bin/nvidia-smi
  chmod +x /usr/local/bin/nvidia-smi
  export PATH="$toolkit/bin:$PATH" CUDAToolkit_ROOT=$toolkit CUDAARCHS=90
fi
examples/quickstart.sh
grep -q '"bits_equal"' build/quickstart/*.json
ls build/quickstart/*.html
if [ -n "$pretended_gpu" ]; then
  grep "CUDA .*NCCL" build/quickstart/configure.log
  on_gpu=$(build/release/bin/train_gpt --deepspeed_config examples/configs/zero0.json \
    --model examples/configs/quickstart_model.json --steps 1 --device cuda 2>&1) && exit 1
  echo "$on_gpu"
  echo "$on_gpu" | grep -q "sees no GPU"
fi
INSIDE
empty_root "$1" "$packages" "$mirror" "$work/source.tar"
