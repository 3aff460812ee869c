#!/usr/bin/env bash
# The README's first command on an empty machine: a minimal Debian of the given release, this source tree in it, and
# examples/quickstart.sh from the installation of missing packages to the printed table. Developers' machines hide
# packages that a script forgets to install. Exits with 77 if no such root can be made.
# Usage: tests/fresh/fresh_machine.sh bookworm|trixie
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
suite=$1

skip() {
  echo "skipped: $1"
  exit 77
}

# Takes a lock, since both suites may run at once, but apt may not.
exec {lock}<tests/fresh/fresh_machine.sh
flock "$lock"
if ! command -v mmdebstrap >/dev/null; then
  [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || skip "mmdebstrap is not installed"
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends mmdebstrap; } >/dev/null 2>&1 ||
    skip "mmdebstrap cannot be installed"
fi
exec {lock}<&-

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Uses the same mirror of Debian as this machine.
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
options=()
for file in /etc/apt/apt.conf.d/*; do
  if grep -q Acquire "$file" 2>/dev/null; then options+=(--aptopt="$file"); fi
done

# Copies the working tree without build results.
if git rev-parse --git-dir >/dev/null 2>&1; then
  git ls-files -z --cached --others --exclude-standard
else
  find . -path ./build -prune -o -type f -print0
fi | tar -c --null --ignore-failed-read -T - -f "$work/source.tar" 2>/dev/null

cat >"$work/inside" <<'INSIDE'
set -eu
mkdir /source
tar -x -C /source -f /source.tar
cd /source
export HOME=/root RANKS=2 STEPS=3
examples/quickstart.sh
grep -q '"bits_equal"' build/quickstart/*.json
ls build/quickstart/*.html
INSIDE

# The machine may refuse to make an empty root; only the commands that run in it are tested.
mmdebstrap --quiet --variant=minbase --include=ca-certificates --format=null "${options[@]}" \
  --customize-hook="touch '$work/made'" \
  --customize-hook="copy-in '$work/source.tar' '$work/inside' /" \
  --customize-hook='chroot "$1" bash /inside' \
  "$suite" /dev/null "${mirror:-http://deb.debian.org/debian}" 2>&1 | tee "$work/log" ||
  { [[ -e $work/made ]] && exit 1 || skip "no empty root can be made here: $(tail -n 1 "$work/log")"; }
