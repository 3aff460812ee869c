#!/usr/bin/env bash
# Tests the bundle of tests/gpu.sh --pack on a machine that has only the C library, bash and coreutils: every program
# finds its libraries in the bundle, ranks start under its mpirun and train on the CPU, and programs for GPUs
# reach the first call to CUDA, which reports that there is none.
# Usage: pack_test.sh BUILD | BUNDLE.tar.xz (a build of the preset pack, or its bundle). Skipped (77) if user namespaces
# are refused.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

if [[ ${1:-} == --inside ]]; then
  # Runs in the bundle's folder, with that machine's root.
  system='libc|libm|libdl|librt|libpthread|libresolv|ld-linux-x86-64|linux-vdso'
  # Our programs find theirs by themselves, Open MPI's by the path that bin/mpirun sets.
  foreign=$(find bin lib libexec -type f ! -path bin/mpirun | while read -r file; do
    path=$PWD/lib
    [[ $file == bin/g* || $file == bin/train_gpt ]] && path=
    LD_LIBRARY_PATH=$path /lib64/ld-linux-x86-64.so.2 --list "$file" 2>&1 || true
  done | grep -vE "$PWD/(bin/../)?lib/|^\s*/?(lib64/)?($system)\.so|statically linked" | sort -u || true)
  [[ -z $foreign ]] || { echo "not in the bundle: $foreign" && exit 1; }

  code=0
  said=$(tests/gpu.sh bits) || code=$?
  echo "tests/gpu.sh bits: $code, $said"
  [[ $code == 77 && $said == *"no GPU"* ]] || exit 1

  tests/gpu.sh --run mpirun -n 2 --oversubscribe bin/gpu_ranks cpu
  tests/gpu.sh --run mpirun -n 2 --oversubscribe bin/train_gpt --model tiny --steps 2
  code=0
  said=$(tests/gpu.sh --run bin/train_gpt --device cuda --model tiny --steps 2 2>&1) || code=$?
  echo "train_gpt --device cuda: $code, $said"
  [[ $code == 11 && $said == *"no GPU"* ]] || exit 1
  exit
fi

if ! unshare --user --map-root-user --mount true 2>/dev/null; then
  echo "skipped: no user namespaces here"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bundle=$1
if [[ -d $bundle ]]; then
  bundle=$folder/bundle.tar.xz
  tests/gpu.sh --build "$1" --pack "$bundle"
fi

root=$folder/root
mkdir -p "$root"/{bin,lib64,proc,sys,dev,tmp,etc}
mkdir -p "$root/usr" && ln -s ../bin "$root/usr/bin" && ln -s ../lib64 "$root/lib"
for program in bash env cat date dirname find grep head mktemp rm sed sort tail tee timeout true uname; do
  cp -L "$(type -P "$program")" "$root/bin/"
done
ln -s bash "$root/bin/sh"
ldd "$root"/bin/* /lib/x86_64-linux-gnu/libresolv.so.2 | grep -o '/[^ ]*' | grep -v ':$' | sort -u |
  xargs -I{} cp -L {} "$root/lib64/"
for library in libm libdl librt libpthread libresolv; do
  cp -L "$(ldconfig -p | sed -n "s/.*\($library\.so\.[0-9]\) .*=> //p;" | head -n 1)" "$root/lib64/"
done
echo 'root:x:0:0:root:/:/bin/bash' >"$root/etc/passwd"
tar -C "$root" -xJf "$bundle"
mkdir -p "$root/zero-gpu/tests/gpu/queue"
cp tests/gpu/queue/pack_test.sh "$root/zero-gpu/tests/gpu/queue/"
unshare --user --map-root-user --mount bash -c '
  set -e
  for folder in proc sys dev; do mount --rbind /$folder "$1/$folder"; done
  exec chroot "$1" /bin/env -i PATH=/bin LD_LIBRARY_PATH=/lib64 bash -c "cd /zero-gpu && tests/gpu/queue/pack_test.sh --inside"
' - "$root"
