#!/bin/sh
# Runs a Python script with the reference implementations, in a virtual environment of its own:
#   reference_env.sh FOLDER SCRIPT [ARGUMENT...]
# FOLDER is made from requirements.txt beside this file if it is not there yet: some gigabytes from PyPI. Where that
# cannot be had it says so and exits with 77, which is SKIPPED. FORETOKEN_REFERENCE_ENV names an environment to use as it is.
set -eu
here="$(cd "$(dirname "$0")" && pwd)"
folder="$1" script="$2"
shift 2
skip() { echo "SKIPPED: $1"; exit 77; }

if [ -n "${FORETOKEN_REFERENCE_ENV:-}" ]; then
  exec "$FORETOKEN_REFERENCE_ENV/bin/python" "$script" "$@"
fi
mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9
# The list of packages is the mark that the environment is whole.
if ! cmp -s "$here/requirements.txt" "$folder/made-from.txt"; then
  rm -rf "$folder"
  log="$folder.log"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || skip "the reference packages need Python 3.10 or newer"
  python3 -m venv "$folder" >"$log" 2>&1 || skip "no virtual environment can be made (python3-venv?): $(tail -n 1 "$log")"
  # mistral-common is here for its model files alone: no dependencies of its own.
  grep -v '^mistral-common' "$here/requirements.txt" >"$folder/with-dependencies.txt"
  pip() { "$folder/bin/python" -m pip --disable-pip-version-check install --quiet --retries 1 --timeout 30 "$@"; }
  pip -r "$folder/with-dependencies.txt" >"$log" 2>&1 || skip "PyPI does not give the reference packages: $(tail -n 1 "$log")"
  pip --no-deps "$(grep '^mistral-common' "$here/requirements.txt")" >"$log" 2>&1 ||
    skip "PyPI does not give the reference packages: $(tail -n 1 "$log")"
  cp "$here/requirements.txt" "$folder/made-from.txt"
fi
flock -u 9
exec "$folder/bin/python" "$script" "$@"
