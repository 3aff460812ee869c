#!/usr/bin/env bash
# Tests the wheel: scripts/make_wheel.sh builds it in a minimal Debian 12, for the Python of the given release, and the
# commands of docs/install.md install it and train with it in a minimal system of that release, which has Python but no
# compiler, MPI or package lists. Debian 12 has only one Python, so any other is compiled there from the sources of the release. Exits with
# 77 if no such root can be made. WHEELS in the environment names a folder that has the wheel already, or where it is stored;
# TORCH the minor versions of torch, for --torch.
# Usage: tests/fresh/wheel.sh bookworm|trixie|noble
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/fresh/empty_root.sh

suite=$1
case $suite in
  bookworm) python=3.11 source=$mirror sources="deb-src $mirror bookworm main" ;;
  trixie) python=3.13 source=$mirror sources="deb-src $mirror trixie main" ;;
  noble)
    # Debian does not have Ubuntu's keys, and only this test uses the packages.
    ubuntu="[trusted=yes] http://archive.ubuntu.com/ubuntu noble main universe"
    python=3.12 source="deb $ubuntu" sources="deb-src $ubuntu"
    ;;
esac
wheels=${WHEELS:-$work/wheels}
mkdir -p "$wheels"
settings='set -euo pipefail
unset "${!PIP_@}"
export HOME=/root PIP_ROOT_USER_ACTION=ignore PIP_CERT=/etc/ssl/certs/ca-certificates.crt'

make_wheel() {
  pack_sources "$work/source.tar"
  cat >"$work/inside" <<INSIDE
$settings
mkdir /source
tar -x -C /source -f /source.tar
interpreter=python3
if [[ $suite != bookworm ]]; then
  echo "$sources" >/etc/apt/sources.list.d/python.list
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends g++ make xz-utils zlib1g-dev libssl-dev libffi-dev libbz2-dev \
    liblzma-dev libsqlite3-dev >/dev/null
  cd /root
  apt-get source -qq --download-only python$python
  tar -x -f python${python}_*.orig.tar.xz
  cd Python-$python*
  ./configure -q --prefix=/opt/python --disable-test-modules >/dev/null
  make -s -j "\$(nproc)" install >make.log 2>&1 || { tail -n 20 make.log && exit 1; }
  interpreter=/opt/python/bin/python$python
fi
cd /source
scripts/install_dependencies.sh --python >/dev/null
# As a user of the machine, and for one kind of GPU, to save time.
useradd --create-home builder
chown -R builder /source
mkdir /results && chown builder /results
su builder -c "CUDAARCHS=90 scripts/make_wheel.sh --cuda ${TORCH:+--torch $TORCH} --python \$interpreter /results"
INSIDE
  empty_root bookworm "" "$mirror" "$work/source.tar"
  mv "$work"/results/*.whl "$wheels"
}

try_wheel() {
  cat >"$work/commands" <<'COMMANDS'
pip install dist/zerocore-*.whl
zero doctor
zero plan --model gpt2 --ranks 2
python -m zerocore
torchrun --nproc-per-node 2 examples/minute/ddp_to_stage3.py stage3
pip install transformers accelerate
ZEROCORE_AS_DEEPSPEED=1 torchrun --nproc-per-node 2 examples/trainer/train.py
COMMANDS
  cat >"$work/inside" <<INSIDE
$settings
for program in cc c++ gcc g++ clang mpirun nvcc; do
  ! command -v \$program || { echo "the machine is not empty: it has \$program" && exit 1; }
done
rm -rf /var/lib/apt/lists
echo "127.0.0.1 localhost \$(uname -n)" >/etc/hosts  # as installers and container engines do
mkdir /user
cd /user
mv /dist /commands /examples .
python3 -m venv venv
. venv/bin/activate
. ./commands 2>&1 | tee log
grep -E '^Open MPI +not found .*libmpi.so.40' log
grep -E '^MPICH +not found .*libmpi.so.12' log
grep -E '^zerocore [0-9.]+: stage 3 \(FULL_SHARD\), CPU, ' log
grep -E '^step 100: loss 2\.28' log
grep -E '^loss 4\.[0-9]+ at step 10, 2\.[0-9]+ at step 60' log
ls trained/model.safetensors
INSIDE
  mkdir -p "$work/dist"
  cp "$wheels"/zerocore-*-cp"${python/./}"-*.whl "$work/dist"
  # torch needs libstdc++, which no system with apt lacks; a minimal root of Ubuntu has no apt.
  empty_root "$suite" libstdc++6,python3,python3-venv "$source" "$work/commands" "$work/dist" examples
}

ls "$wheels"/zerocore-*-cp"${python/./}"-*.whl >/dev/null 2>&1 || make_wheel
try_wheel
