#!/bin/sh
# Runs a Python script with the official client packages of requirements.txt, in a virtual environment of its own:
#   client_env.sh FOLDER SCRIPT [ARGUMENT...]
# FOLDER is made if it is not there yet. Where PyPI cannot be had it says so and exits with 77, which is SKIPPED.
# FORETOKEN_CLIENT_ENV names an environment to use as it is.
set -eu
here="$(cd "$(dirname "$0")" && pwd)"
folder="$1" script="$2"
shift 2
skip() { echo "SKIPPED: $1"; exit 77; }

if [ -n "${FORETOKEN_CLIENT_ENV:-}" ]; then
  exec "$FORETOKEN_CLIENT_ENV/bin/python" "$script" "$@"
fi
mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9
# The list of packages is the mark that the environment is whole.
if ! cmp -s "$here/requirements.txt" "$folder/made-from.txt"; then
  rm -rf "$folder"
  log="$folder.log"
  python3 -m venv "$folder" >"$log" 2>&1 || skip "no virtual environment can be made (python3-venv?): $(tail -n 1 "$log")"
  "$folder/bin/python" -m pip --disable-pip-version-check install --quiet --retries 1 --timeout 30 -r "$here/requirements.txt" \
    >"$log" 2>&1 || skip "PyPI does not give the client packages: $(tail -n 1 "$log")"
  cp "$here/requirements.txt" "$folder/made-from.txt"
fi
flock -u 9
exec "$folder/bin/python" "$script" "$@"
