#!/usr/bin/env bash
# Builds, links and starts programs with all combinations of ZeroCore's options: CUDA, UNITY, TORCH, MPI and TESTS, with
# GCC and clang, Ninja and Makefiles; half of the folders have a blank in their paths. The programs are stubs (stub.cpp),
# and without MPI the zero tool. Each folder has one compiler, generator and value of UNITY, and takes the other options in
# turn, so that nothing is compiled twice; a compiler cache, if there is one, serves the second generator. With a cache the
# folders with GCC and each source by itself have the flags of CI's release build, and are next to it, so that they find
# its objects; all others do not optimize. --pairs: a few combinations that have each pair of values, instead of all, without
# a cache, and with the tool in one folder alone, since it compiles for long. --built BUILD COMBINATION: a build that has one
# of them already, with the stubs. --quickstart: runs the quickstart as if nvidia-smi answered, instead. --sdist: installs the
# Python package from its source distribution and trains a step, instead.
# CUDA needs nvcc and TORCH a python3 with torch: if they are missing, or a compiler or generator, a line says so, and these
# values are left out.
# Usage: combinations.sh FOLDER [--torch-python PYTHON] [--pairs | --quickstart | --sdist] [--only WORD]
#                        [--built BUILD "COMPILER GENERATOR UNITY MPI CUDA TORCH TESTS"]
# FOLDER: in it, folders named "combined ..." and combined_... are made anew. --only: those whose names have this word.
# COMPILER: g++ or clang++. GENERATOR: Ninja or Makefiles. The others: ON or OFF.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$1
shift
python='' pairs='' quickstart='' sdist='' only='' built='' built_combination=''
while (($#)); do
  case $1 in
    --torch-python) python=$2 && shift ;;
    --only) only=$2 && shift ;;
    --built) built=$2 built_combination=$3 && shift 2 ;;
    --pairs) pairs=1 ;;
    --quickstart) quickstart=1 ;;
    --sdist) sdist=1 ;;
    *) sed -n '2,/^[^#]/s/^# //p' "$0" && exit 10 ;;
  esac
  shift
done

cache=''
if [[ -n $pairs ]]; then
  unset CMAKE_{C,CXX,CUDA}_COMPILER_LAUNCHER
elif command -v ccache >/dev/null; then
  cache=1
  export CMAKE_{C,CXX,CUDA}_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$source CCACHE_NOHASHDIR=1
fi
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
cuda=1 torch=1
[[ -x $nvcc ]] || { echo "== without CUDA=ON: there is no nvcc" && cuda=''; }
[[ -n $python ]] || { echo "== without TORCH=ON: no --torch-python is given" && torch=''; }
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
gcc=g++
# The name by which CMake finds it, which counts in the cache.
[[ $(readlink -f "$(command -v c++)") != "$(readlink -f "$(command -v g++)")" ]] || gcc=c++
built_combination=${built_combination/#g++/$gcc}

# expect BUILD PROGRAM PATTERN [ARGUMENT]: starts the program; its output proves what it was linked with.
expect() {
  local output
  output=$("$1/bin/$2" "${@:4}" 2>&1) && grep -q "$3" <<<"$output" && return
  echo "$2 says: $output; expected: $3"
  return 1
}

# start BUILD MPI CUDA TORCH TESTS
start() {
  local build=$1 mpi=$2 cuda=$3 torch=$4 tests=$5
  if [[ $mpi == OFF ]]; then
    expect "$build" stub_alone "without the CUDA back end" || return
    [[ ! -e $build/bin/zero ]] || expect "$build" zero "^zero [0-9]" --version
    return
  fi
  expect "$build" stub_cpu "without the CUDA back end" || return
  [[ $cuda == OFF ]] || expect "$build" stub_cuda "a GPU\|no GPU" || return
  [[ $torch == OFF ]] || expect "$build" stub_torch "torch: 1 units" || return
  [[ $tests == OFF ]] || expect "$build" stub_test "SUCCESS"
}

# Prints the combinations, one a line; those of a folder follow each other, and those that compile more come first.
combinations() {
  local compiler unity generator mpi cuda torch tests
  if [[ -n $pairs ]]; then
    cat <<TABLE
$gcc    Ninja     OFF  ON  ON  ON  ON
$gcc    Makefiles ON   ON  ON  OFF ON
$gcc    Makefiles ON   ON  OFF ON  OFF
$gcc    Makefiles ON   OFF ON  ON  OFF
clang++ Ninja     ON   ON  ON  ON  OFF
clang++ Ninja     ON   ON  OFF OFF ON
clang++ Ninja     ON   OFF OFF OFF ON
clang++ Makefiles OFF  ON  OFF OFF OFF
clang++ Makefiles OFF  OFF OFF OFF ON
TABLE
    return
  fi
  for compiler in $gcc clang++; do for unity in ON OFF; do for generator in Ninja Makefiles; do
    for mpi in ON OFF; do for cuda in ON OFF; do for torch in ON OFF; do for tests in ON OFF; do
      echo "$compiler $generator $unity $mpi $cuda $torch $tests"
    done; done; done; done
  done; done; done
}

# Each value of a column must meet each value of every other one; without MPI the options after it have no effect, so only
# lines with MPI count for pairs without that column.
check_pairs() {
  combinations | awk '
    { for (i = 1; i < NF; ++i) for (j = i + 1; j <= NF; ++j)
        if ($4 == "ON" || i == 4 || j == 4) found[i, j, $i, $j] = 1 }
    END { pairs = NF * (NF - 1) / 2 * 4
          if (length(found) != pairs) { print length(found) " of " pairs " pairs of values are in the table"; exit 1 } }'
}

# all_options BUILD COMBINATIONS TARGETS OPTION...: builds the folder with these combinations, lines of MPI CUDA TORCH TESTS,
# in turn. TARGETS: those without MPI.
all_options() {
  local build=$1 combinations=$2 without_mpi=$3 mpi cuda torch tests options targets
  shift 3
  while read -r -u 3 mpi cuda torch tests; do
    options="MPI=$mpi CUDA=$cuda TORCH=$torch TESTS=$tests"
    echo "-- $options"
    targets=stubs
    [[ $mpi == ON ]] || targets=$without_mpi
    cmake -S "$source" -B "$build" "$@" -DZERO_MPI="$mpi" -DZERO_CUDA="$cuda" -DZERO_TORCH="$torch" \
      -DZERO_BUILD_TESTS="$tests" && cmake --build "$build" -j "$jobs" --target $targets &&
      start "$build" "$mpi" "$cuda" "$torch" "$tests" || { echo "FAILED with $options" && return 1; }
  done 3<<<"$combinations"
}

# folder COMPILER GENERATOR UNITY: succeeds if all combinations of the folder do.
folder() {
  local compiler=$1 generator=$2 unity=$3 name="combined $1 $2 unity_$3" of_folder
  [[ $unity == ON ]] || name=${name// /_}
  [[ $name == *"$only"* ]] || return 0
  command -v "$compiler" "$([[ $generator == Ninja ]] && echo ninja || echo make)" >/dev/null ||
    { echo "== $name: left out, since one of these programs is missing" && return; }
  local build="$work/$name" log="$work/$name.log" begin=$SECONDS
  local optimize=(-DCMAKE_BUILD_TYPE=None "-DCMAKE_CUDA_FLAGS=-Xcicc -O0 -Xptxas -O0") without_mpi="stubs zero"
  [[ $compiler$unity$cache != "$gcc"OFF1 ]] || optimize=(-DCMAKE_BUILD_TYPE=Release)
  [[ -z $pairs || $compiler$unity == clang++ON ]] || without_mpi=stubs
  [[ $generator == Ninja ]] || generator="Unix Makefiles"
  of_folder=$(combinations | awk -v folder="$*" -v cuda="$cuda" -v torch="$torch" '$1 " " $2 " " $3 == folder {
    options = $4 " " (cuda ? $5 : "OFF") " " (torch ? $6 : "OFF") " " $7
    if (!found[options]++) print options }')
  if [[ "$* $of_folder" == "$built_combination" ]]; then
    start "$built" $of_folder && echo "== $name: 1 combination, built already" && return
    echo "== $name: FAILED in $built" && return 1
  fi
  rm -rf "$build"
  if all_options "$build" "$of_folder" "$without_mpi" -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" \
    -DZERO_UNITY="$unity" "${optimize[@]}" -DCMAKE_CUDA_ARCHITECTURES=90 \
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

folders_of() {
  local compiler generator unity failed=0
  while read -r compiler generator unity; do
    folder "$compiler" "$generator" "$unity" </dev/null || failed=1
  done < <(combinations | awk -v compiler="$1" '$1 == compiler { print $1, $2, $3 }' | uniq)
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
  --preset) exec "$cmake" "\$@" -DZERO_UNITY=OFF -DZERO_COLD_OPTIONS=-O1 -DZERO_WARNINGS_AS_ERRORS=ON ;;
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
  PYTHONPATH="$folder/installed" "$python" -m zerocore | grep ^CUDA || return 1
  PYTHONPATH="$folder/installed" "$python" -W ignore -c 'import torch, zerocore
engine, *_ = zerocore.initialize(model=torch.nn.Linear(4, 1), config={"train_micro_batch_size_per_gpu": 1,
    "zero_optimization": {"stage": 3}, "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}})
losses = []
for _ in range(2):
    loss = (engine(torch.ones(1, 4)) - 10).square().sum()
    engine.backward(loss)
    engine.step()
    losses.append(float(loss))
assert losses[1] < losses[0], losses
print("losses", *losses)'
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
[[ -z $pairs ]] || check_pairs
folders_of $gcc &
of_gcc=$!
failed=0
folders_of clang++ || failed=1
wait $of_gcc || failed=1
exit $failed
