#!/usr/bin/env bash
# Builds, links and starts programs with all combinations of ZeroCore's options: CUDA, UNITY, TORCH, MPI and TESTS, with
# GCC and clang, Ninja and Makefiles; half of the folders have a blank in their paths. The programs are stubs (stub.cpp),
# or without MPI the zero tool. Each folder has one compiler, generator and value of UNITY, and takes the other options in
# turn, so that nothing is compiled twice; a compiler cache, if there is one, serves the second generator. The folders with
# GCC and each source by itself have the flags of CI's release build, and lie next to it, so that they find its objects in
# the cache; all others do not optimize. --quickstart: runs the quickstart as if nvidia-smi answered, instead. --sdist:
# installs the Python package from its source distribution, instead.
# CUDA needs nvcc and TORCH a python3 with torch: if they are missing, a line says so, and these values are left out.
# Usage: combinations.sh FOLDER [--torch-python PYTHON] [--quickstart | --sdist] [--only WORD]
# FOLDER: in it, folders named "combined ..." and combined_... are made anew. --only: those whose names have this word.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$1
shift
python='' quickstart='' sdist='' only=''
while (($#)); do
  case $1 in
    --torch-python) python=$2 && shift ;;
    --only) only=$2 && shift ;;
    --quickstart) quickstart=1 ;;
    --sdist) sdist=1 ;;
    *) sed -n '2,12s/^# //p' "$0" && exit 10 ;;
  esac
  shift
done

if command -v ccache >/dev/null; then
  export CMAKE_{C,CXX,CUDA}_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$source CCACHE_NOHASHDIR=1
fi
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
cuda_values="ON OFF" torch_values="ON OFF"
[[ -x $nvcc ]] || { echo "== without CUDA=ON: there is no nvcc" && cuda_values=OFF; }
[[ -n $python ]] || { echo "== without TORCH=ON: no --torch-python is given" && torch_values=OFF; }
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
gcc=g++
# The name by which CMake finds it, which counts in the cache.
[[ $(readlink -f "$(command -v c++)") != "$(readlink -f "$(command -v g++)")" ]] || gcc=c++

# expect BUILD PROGRAM PATTERN [ARGUMENT]: starts the program; its output proves what it was linked with.
expect() {
  local output
  output=$("$1/bin/$2" "${@:4}" 2>&1) && grep -q "$3" <<<"$output" && return
  echo "$2 says: $output; expected: $3"
  return 1
}

start() {
  local build=$1 cuda=$2 torch=$3 mpi=$4 tests=$5
  if [[ $mpi == OFF ]]; then
    expect "$build" zero "^zero [0-9]" --version
    return
  fi
  expect "$build" stub_cpu "without the CUDA back end" || return
  [[ $cuda == OFF ]] || expect "$build" stub_cuda "a GPU\|no GPU" || return
  [[ $torch == OFF ]] || expect "$build" stub_torch "torch: 1 units" || return
  [[ $tests == OFF ]] || expect "$build" stub_test "SUCCESS"
}

# all_options BUILD OPTION...: every combination that a folder takes in turn. Those that compile more come first.
all_options() {
  local build=$1 mpi cuda torch tests options
  shift
  for mpi in ON OFF; do for cuda in $cuda_values; do for torch in $torch_values; do for tests in ON OFF; do
    options="MPI=$mpi CUDA=$cuda TORCH=$torch TESTS=$tests"
    echo "-- $options"
    cmake -S "$source" -B "$build" "$@" -DZERO_MPI=$mpi -DZERO_CUDA="$cuda" -DZERO_TORCH="$torch" \
      -DZERO_BUILD_TESTS=$tests && cmake --build "$build" -j "$jobs_of_folder" --target stubs &&
      start "$build" "$cuda" "$torch" $mpi $tests || { echo "FAILED with $options" && return 1; }
  done; done; done; done
}

# folder COMPILER GENERATOR UNITY: succeeds if all combinations of the folder do.
folder() {
  local compiler=$1 generator=$2 unity=$3 name="combined $1 $2 unity_$3"
  [[ $unity == ON ]] || name=${name// /_}
  [[ $name == *"$only"* ]] || return 0
  local build="$work/$name" log="$work/$name.log" begin=$SECONDS optimize=()
  [[ $compiler$unity == "$gcc"OFF ]] || optimize=(-DCMAKE_CXX_FLAGS_RELEASE=-O0)
  [[ $generator == Ninja ]] || generator="Unix Makefiles"
  rm -rf "$build"
  if all_options "$build" -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" -DZERO_UNITY="$unity" \
    -DCMAKE_BUILD_TYPE=Release "${optimize[@]}" -DCMAKE_CUDA_ARCHITECTURES=90 \
    -DZERO_TORCH_PYTHON="$python" -DZERO_WARNINGS_AS_ERRORS=ON \
    -DCMAKE_PROJECT_ZeroCore_INCLUDE="$source/tests/builds/stubs.cmake" >"$log" 2>&1; then
    echo "== $name: $(grep -c "^-- MPI=" "$log") combinations, $((SECONDS - begin)) s"
    rm -rf "$build"
    return
  fi
  tail -n 60 "$log"
  echo "== $name: FAILED; the log is $log"
  return 1
}

# The second generator of a compiler finds the objects of the first in the cache.
folders_of() {
  local unity generator failed=0
  for unity in ON OFF; do for generator in Ninja Makefiles; do
    folder "$1" $generator $unity || failed=1
  done; done
  return $failed
}

# From a tree with a blank in its path, made of links, in which nvidia-smi answers.
run_quickstart() {
  local tree="$work/combined quickstart/tree" bin="$work/combined quickstart/bin" entry cmake
  rm -rf "$work/combined quickstart"
  mkdir -p "$tree" "$bin"
  for entry in "$source"/*; do
    [[ ${entry##*/} == build ]] || ln -sfn "$entry" "$tree/${entry##*/}"
  done
  printf '#!/bin/sh\necho "GPU 0: NVIDIA H100 (pretended)"\n' >"$bin/nvidia-smi"
  # The options of CI's release build, whose objects it finds in the cache.
  cmake=$(command -v cmake)
  cat >"$bin/cmake" <<SHIM
#!/bin/sh
case \$1 in
  --preset) exec "$cmake" "\$@" -DZERO_UNITY=OFF -DZERO_WARNINGS_AS_ERRORS=ON ;;
  *) exec "$cmake" "\$@" ;;
esac
SHIM
  chmod +x "$bin"/*
  PATH="$bin:$PATH" CUDAARCHS=90 RANKS=2 STEPS=1 "$tree/examples/quickstart.sh" || return 1
  grep -q "CUDA .*NCCL" "$tree/build/quickstart/configure.log" || { echo "the quickstart left CUDA out" && return 1; }
  [[ -n $python ]] || return 0
  cmake "$tree/build/release" -DZERO_TORCH=ON -DZERO_TORCH_PYTHON="$python" -DZERO_BUILD_TESTS=OFF &&
    cmake --build "$tree/build/release" -j "$jobs" --target zerocore_python &&
    PYTHONPATH="$tree/build/release/python" "$python" -c "import zerocore; print(zerocore.__file__)"
}

# Installs the package with CUDA if nvcc and a torch with CUDA are there.
run_sdist() {
  local folder="$work/combined sdist" expected="for CPU ranks alone, without CUDA"
  rm -rf "$folder"
  mkdir -p "$folder"
  if [[ -x $nvcc ]] && "$python" -c "import sys, torch; sys.exit(torch.version.cuda is None)"; then
    expected="for CPU ranks and GPUs (CUDA "
  fi
  (cd "$source" && "$python" -c "import sys; from scikit_build_core.build import build_sdist
build_sdist(sys.argv[1])" "$folder") || return 1
  CUDAARCHS=90 "$python" -m pip install -v --no-build-isolation --no-deps --target "$folder/installed" \
    --config-settings=cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0 --config-settings=cmake.define.CMAKE_CUDA_FLAGS_RELEASE=-O0 \
    --config-settings=cmake.define.ZERO_UNITY=ON "$folder"/zerocore-*.tar.gz >"$folder/log" 2>&1 ||
    { cat "$folder/log" && return 1; }
  grep -F "Python package: $expected" "$folder/log" || { echo "pip does not say: $expected" && return 1; }
  PYTHONPATH="$folder/installed" "$python" -c "import zerocore.as_deepspeed as shim; shim.install()
import importlib.metadata; print('as deepspeed', importlib.metadata.version('deepspeed'))" || return 1
  PYTHONPATH="$folder/installed" "$python" -m zerocore | grep ^CUDA
}

mkdir -p "$work"
work=$(cd "$work" && pwd)
if [[ -n $quickstart ]]; then
  run_quickstart
  exit
fi
if [[ -n $sdist ]]; then
  run_sdist
  exit
fi
jobs_of_folder=$(((jobs + 1) / 2))
folders_of $gcc &
of_gcc=$!
failed=0
folders_of clang++ || failed=1
wait $of_gcc || failed=1
exit $failed
