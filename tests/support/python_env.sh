#!/bin/sh
# Runs a Python script with pinned packages from PyPI, in a virtual environment of its own:
#   python_env.sh REQUIREMENTS FOLDER SCRIPT [ARGUMENT...]
# FOLDER is made from the file REQUIREMENTS, and again when that changed. Where the packages cannot be had it says so and exits
# with 77, which is SKIPPED. FORETOKEN_PYTHON_ENV names an environment to use as it is.
set -eu
requirements="$1" folder="$2" script="$3"
shift 3
skip() { echo "SKIPPED: $1"; exit 77; }

if [ -n "${FORETOKEN_PYTHON_ENV:-}" ]; then
  exec "$FORETOKEN_PYTHON_ENV/bin/python" "$script" "$@"
fi
mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9
# The list of packages is the mark that the environment is whole.
if ! cmp -s "$requirements" "$folder/made-from.txt"; then
  rm -rf "$folder"
  log="$folder.log"
  python3 -m venv "$folder" >"$log" 2>&1 || skip "no virtual environment can be made (python3-venv?): $(tail -n 1 "$log")"
  "$folder/bin/python" -m pip --disable-pip-version-check install --quiet --retries 1 --timeout 30 -r "$requirements" \
    >"$log" 2>&1 || skip "PyPI does not give the packages of $requirements: $(tail -n 1 "$log")"
  cp "$requirements" "$folder/made-from.txt"
fi
flock -u 9
exec "$folder/bin/python" "$script" "$@"
