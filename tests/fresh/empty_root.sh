# Functions for tests on empty machines, to be sourced. They make a minimal system for one script, because developers'
# machines have packages that a script may forget to install. The current folder must be the source tree; $work is a
# temporary folder.

skip() {
  echo "skipped: $1"
  exit 77
}

# Takes a lock, since several tests may run at once, but apt may not.
exec {lock}<tests/fresh/empty_root.sh
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
mirror=${mirror:-http://deb.debian.org/debian}
root_options=(--quiet --variant=minbase --format=null)
for file in /etc/apt/apt.conf.d/*; do
  if grep -q Acquire "$file" 2>/dev/null; then root_options+=(--aptopt="$file"); fi
done
# Trust the same certificates as this machine, which may use a proxy with its own.
if [[ -e /etc/ssl/certs/ca-certificates.crt ]]; then
  root_options+=("--customize-hook=copy-in /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs")
fi

# pack_sources FILE: writes the working tree, without build results, to a tar file.
pack_sources() {
  if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard
  else
    find . -path ./build -prune -o -type f -print0
  fi | tar -c --null --ignore-failed-read -T - -f "$1" 2>/dev/null
}

# empty_root SUITE PACKAGES SOURCE [FILE ...]: runs $work/inside in a new root of this release, with only these packages
# (separated by commas), from SOURCE, a mirror or a line of apt's sources.list. Copies the files and folders to / there, and
# its /results to $work/results at the end.
empty_root() {
  local suite=$1 packages=$2 source=$3 file copies=()
  shift 3
  for file in "$work/inside" "$@"; do copies+=("--customize-hook=copy-in '$file' /"); done
  rm -f "$work/made"
  # The machine may refuse to make an empty root; only the commands that run in it are tested.
  mmdebstrap "${root_options[@]}" --include="ca-certificates${packages:+,$packages}" "${copies[@]}" \
    --customize-hook="touch '$work/made'" --customize-hook='chroot "$1" bash /inside' \
    --customize-hook="if [ -d \"\$1/results\" ]; then cp -r \"\$1/results\" '$work'; fi" \
    "$suite" /dev/null "$source" 2>&1 | tee "$work/log" ||
    { [[ -e $work/made ]] && exit 1 || skip "no empty $suite can be made here: $(tail -n 1 "$work/log")"; }
}
