#!/usr/bin/env bash
# Tests the README's first command on an empty machine: runs examples/quickstart.sh of this source tree in a minimal Debian
# of the given release, from the installation of missing packages to the printed table. Exits with 77 if no such root can be
# made.
# Usage: tests/fresh/fresh_machine.sh bookworm|trixie
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/fresh/empty_root.sh

pack_sources "$work/source.tar"
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
empty_root "$1" "" "$mirror" "$work/source.tar"
