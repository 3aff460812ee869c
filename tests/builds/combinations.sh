#!/usr/bin/env bash
# Builds, links and starts ZeroCore with combinations of its options: CUDA, UNITY, TORCH, MPI and TESTS, with GCC and
# clang, Ninja and Makefiles, in a path with a blank. Together with the release build that CI makes first (g++, Ninja,
# CUDA, TORCH, MPI, TESTS), every pair of values occurs. Code is not optimized, and a row builds the fewest programs
# that link the parts under test. CUDA's rows need nvcc and TORCH's a python3 with torch; if these are missing, the rows
# are named and left out. The row "sdist" is pip's: the Python package from its source distribution.
# Usage: combinations.sh FOLDER [--torch-python PYTHON] [--all] [ROW ...]
# FOLDER is emptied first. --all: all combinations instead, takes hours. ROW: the names of rows, to run these alone.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$1
shift
python='' all='' only=' '
while (($#)); do
  case $1 in
    --torch-python) python=$2 && shift ;;
    --all) all=1 ;;
    *) only+="$1 " ;;
  esac
  shift
done

# name: compiler generator CUDA UNITY TORCH MPI TESTS folder ("_" is a blank) programs
rows=(
  "clang_unity:     clang++ Makefiles OFF ON  ON  ON  ON  plain    mlp zerocore_python"
  "clang_tool:      clang++ Ninja     ON  OFF OFF OFF OFF a_blank  zero"
  "makefiles_tool:  g++     Makefiles OFF OFF OFF OFF OFF a_blank  zero"
  "unity_tool:      g++     Makefiles ON  ON  ON  OFF ON  plain    zero"
  "ninja_tool:      g++     Ninja     OFF ON  OFF OFF OFF plain    zero"
)
every_row() {
  local compiler generator cuda unity torch mpi tests
  for compiler in g++ clang++; do for generator in Ninja Makefiles; do for cuda in ON OFF; do for unity in ON OFF; do
    for torch in ON OFF; do for mpi in ON OFF; do for tests in ON OFF; do
      local programs=zero name=${compiler/++/}_${generator}_$cuda$unity$torch$mpi$tests
      [[ $mpi == ON ]] && programs="zero train_gpt"
      [[ $mpi$torch == ONON ]] && programs+=" zerocore_python"
      [[ $mpi$tests$cuda == ONONON ]] && programs+=" gpu_ranks"
      echo "$name: $compiler $generator $cuda $unity $torch $mpi $tests ${name}_of_all $programs"
    done; done; done
  done; done; done; done
}
if [[ -n $all ]]; then
  mapfile -t rows < <(every_row)
fi

if command -v ccache >/dev/null; then
  export CMAKE_{C,CXX,CUDA}_COMPILER_LAUNCHER=ccache
fi
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
quick=(-DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DCMAKE_CUDA_FLAGS_DEBUG=-O0 -DCMAKE_CUDA_ARCHITECTURES=90)
failed=()

# Starts the program; its output proves that it was linked.
start() {
  local build=$1 program
  shift
  for program in "$@"; do
    case $program in
      mlp) (cd "$build" && bin/mlp "$source/examples/configs/zero0.json" | tail -n 1) ;;
      zerocore_python) PYTHONPATH=$build/python "$python" -c "import zerocore; print(zerocore.__file__)" ;;
      gpu_ranks) [[ -x $build/bin/gpu_ranks ]] ;;
      *) "$build/bin/$program" --version ;;
    esac || return 1
  done
}

# missing NAME CUDA TORCH: returns whether this machine lacks a requirement of the row.
missing() {
  if [[ $2 == ON && ! -x $nvcc ]]; then
    echo "== $1: left out, there is no nvcc"
  elif [[ $3 == ON && -z $python ]]; then
    echo "== $1: left out, no --torch-python is given"
  else
    return 1
  fi
}

try() {
  local name=$1 compiler=$2 generator=$3 cuda=$4 unity=$5 torch=$6 mpi=$7 tests=$8
  local build="$work/${9//_/ }/$name"
  shift 9
  local makefiles=Ninja
  [[ $generator == Makefiles ]] && makefiles="Unix Makefiles"
  mkdir -p "$build"
  cmake -S "$source" -B "$build" -G "$makefiles" -DCMAKE_CXX_COMPILER="$compiler" "${quick[@]}" -DZERO_CUDA="$cuda" \
    -DZERO_UNITY="$unity" -DZERO_TORCH="$torch" -DZERO_TORCH_PYTHON="$python" -DZERO_MPI="$mpi" \
    -DZERO_BUILD_TESTS="$tests" -DZERO_WARNINGS_AS_ERRORS=ON &&
    cmake --build "$build" -j "$jobs" --target "$@" && start "$build" "$@"
}

# Runs the quickstart as if nvidia-smi answered, from a tree with a blank in its path, made of links.
quickstart() {
  local tree="$work/a tree" bin="$work/bin" entry cmake
  mkdir -p "$tree" "$bin"
  for entry in "$source"/*; do
    [[ ${entry##*/} == build ]] || ln -sfn "$entry" "$tree/${entry##*/}"
  done
  printf '#!/bin/sh\necho "GPU 0: NVIDIA H100 (pretended)"\n' >"$bin/nvidia-smi"
  # Passes all of its options except the optimization level.
  cmake=$(command -v cmake)
  cat >"$bin/cmake" <<SHIM
#!/bin/sh
case \$1 in
  --preset) exec "$cmake" "\$@" -DCMAKE_CXX_FLAGS_RELEASE=-O0 -DCMAKE_CUDA_FLAGS_RELEASE=-O0 ;;
  *) exec "$cmake" "\$@" ;;
esac
SHIM
  chmod +x "$bin"/*
  PATH="$bin:$PATH" CUDAARCHS=90 RANKS=2 STEPS=1 "$tree/examples/quickstart.sh" || return 1
  grep -q "CUDA .*NCCL" "$tree/build/quickstart/configure.log" || { echo "the quickstart left CUDA out" && return 1; }
  if [[ -n $python ]]; then
    # A folder of its own, with the Python package.
    cmake "$tree/build/release" -DZERO_TORCH=ON -DZERO_TORCH_PYTHON="$python" -DZERO_BUILD_TESTS=OFF &&
      cmake --build "$tree/build/release" -j "$jobs" --target zerocore_python &&
      start "$tree/build/release" zerocore_python
  fi
}

# Installs the Python package from its source distribution, with CUDA if nvcc and a torch with CUDA are there.
sdist() {
  local folder="$work/sdist" expected="for CPU ranks alone, without CUDA"
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

jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
run() {
  local name=$1 log="$work/$1.log" begin=$SECONDS
  shift
  if "$@" >"$log" 2>&1; then
    echo "== $name: $((SECONDS - begin)) s; $(tail -n 1 "$log")"
  else
    cat "$log"
    echo "== $name: FAILED"
    failed+=("$name")
  fi
}

rm -rf "$work"
mkdir -p "$work"
work=$(cd "$work" && pwd)
if [[ -z $all && ($only == ' ' || $only == *" quickstart "*) ]]; then
  missing quickstart ON OFF || run quickstart quickstart
fi
if [[ -z $all && ($only == ' ' || $only == *" sdist "*) ]]; then
  missing sdist OFF ON || run sdist sdist
fi
for row in "${rows[@]}"; do
  name=${row%%:*}
  read -ra words <<<"${row#*:}"
  [[ $only == ' ' || $only == *" $name "* ]] || continue
  missing "$name" "${words[2]}" "${words[4]}" || run "$name" try "$name" "${words[@]}"
done
if ((${#failed[@]} > 0)); then
  echo "FAILED: ${failed[*]}"
  exit 1
fi
