#!/usr/bin/env bash
# Installs missing packages, builds, and runs all tests. Exits with 1 if anything failed.
# Usage: tests/run.sh [--quick | --fuzz | --ci]
#   --quick  the release build alone, no sanitizers
#   --fuzz   also some seconds of fuzzing per reader, with clang
#   --ci     warnings are errors, and the first command of the README is run on empty machines too, if root may make
#            these;
#            PyTorch is installed for its tests; CUDA's kernels are compiled for Hopper alone, since the compile time
#            grows with the number of architectures. Libraries are compiled at once, which saves a tenth of the run; a
#            build without that, the default, finds a missing include. Under ThreadSanitizer only the tests run whose threads
#            are unlike those of the others: this saves a sixth.
# In the environment, ZERO_CUDA=OFF leaves CUDA out, and ZERO_TORCH_PYTHON names the python3 whose torch pytorch/ is
# built against, if not the one on the PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# One line per run: preset, target to build, and the tests that ctest runs. Under sanitizers the ranks are threads of
# one process.
runs=(
  "release  all             -LE ^(slow|bench|fresh)$"
  "asan     sanitized_tests -R ^(comm|zero_some|pipeline|optim|config|checkpoint|corruption|background|offload_some|block_store|mock_device_some|gpu_offload_some)_test$"
  "tsan     all_threaded_tests -R ^(comm|zero_some|equivalence_some|background|offload_some|mock_device_some|gpu_offload_some)_test$"
)

configure=(${ZERO_CUDA:+-DZERO_CUDA=$ZERO_CUDA})
at_once=()
case ${1:-} in
  "") ;;
  --ci)
    runs[0]="release  all             -LE ^(slow|bench)$"
    runs[2]="tsan     threaded_tests  -R ^(comm|zero_some|background|offload_some)_test$"
    configure+=(-DZERO_WARNINGS_AS_ERRORS=ON -DCMAKE_CUDA_ARCHITECTURES=90)
    at_once=(-DZERO_UNITY=ON)
    ;;
  --quick) runs=("${runs[0]}") ;;
  --fuzz) runs+=("fuzz fuzz_targets -L ^fuzz$") ;;
  *)
    [[ $1 == --help || $1 == -h ]] || echo "run.sh: unknown argument $1" >&2
    sed -n '2,13s/^# //p' "$0"
    [[ $1 == --help || $1 == -h ]] && exit 0
    exit 10
    ;;
esac

scripts/install_dependencies.sh --tests
# The adapter for PyTorch is only in the release build, since torch is compiled without sanitizers.
torch_python=${ZERO_TORCH_PYTHON:-python3}
torch=(-DZERO_TORCH=OFF)
if [[ ${1:-} == --ci ]] && ! "$torch_python" -c "import torch" 2>/dev/null; then
  torch_python=$(scripts/install_dependencies.sh --torch || echo python3)
fi
if "$torch_python" -c "import torch" 2>/dev/null; then
  torch=(-DZERO_TORCH=ON "-DZERO_TORCH_PYTHON=$(command -v "$torch_python")")
else
  echo "== no tests of pytorch/: $torch_python has no torch (ZERO_TORCH_PYTHON names another one)"
fi
jobs=$(nproc)
if command -v ccache >/dev/null; then
  # Lets checkouts in other folders share compiled files.
  export CMAKE_{C,CXX,CUDA}_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
fi
build() {
  local preset=$1 target=$2 options=("${configure[@]}" "${at_once[@]}")
  [[ $preset != release ]] || options+=("${torch[@]}")
  cmake --preset "$preset" "${options[@]}" >"build/$preset.configure.log" 2>&1 || {
    cat "build/$preset.configure.log"
    return 1
  }
  cmake --build --preset "$preset" --target "$target" -j "$jobs"
}

# The remaining builds run at low priority while the first tests run, since tests wait more than they compute. Errors
# are shown when a build has its turn. They need a session of their own (tests/support/session.py): in this one they slow
# tests of rank threads down to a fifth even at low priority.
build_ahead() {
  local line words
  # Linux has a priority for each session too, unless it is built without.
  { echo 19 >/proc/self/autogroup; } 2>/dev/null || true
  renice -n 19 "$BASHPID" >/dev/null
  for line in "${runs[@]:1}"; do
    read -ra words <<<"$line"
    build "${words[@]:0:2}" >"build/${words[0]}.ahead.log" 2>&1 || return
  done
}

run() {
  local preset=$1 target=$2
  shift 2
  # Addresses must not be random, since recent kernels otherwise place mappings in ThreadSanitizer's shadow.
  local fixed_addresses=()
  if [[ $preset == tsan ]] && setarch "$(uname -m)" -R true 2>/dev/null; then
    fixed_addresses=(setarch "$(uname -m)" -R)
  fi
  echo "== $preset: build"
  build "$preset" "$target" || return 1
  if [[ $preset == release ]]; then
    setsid bash -c "$(declare -p runs configure at_once torch jobs; declare -f build build_ahead); build_ahead" &
    ahead=$!
  fi
  # One more than processors, since tests of faults, restarts and empty machines mostly wait. Without groups by session two
  # tests of ranks at once take ten times as long (tests/support/session.py).
  local parallel=$((jobs + 1))
  [[ $(cat /proc/sys/kernel/sched_autogroup_enabled 2>/dev/null) == 1 ]] || parallel=1
  echo "== $preset: test"
  "${fixed_addresses[@]}" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error \
    --parallel "$parallel" "$@" || return 1
}

mkdir -p build
ahead=
trap 'kill -- ${ahead:+-"$ahead"} 0' INT  # else builds that run ahead do not get the signal
failed=()
for line in "${runs[@]}"; do
  read -ra words <<<"$line"
  start=$SECONDS
  run "${words[@]}" || failed+=("${words[0]}")
  wait
  echo "== ${words[0]}: $((SECONDS - start)) s"
done
if ((${#failed[@]} > 0)); then
  echo "FAILED: ${failed[*]}"
  exit 1
fi
echo "all passed"
