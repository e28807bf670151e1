#!/bin/sh
# Everything a machine with an NVIDIA GPU can say about the CUDA backend, in ten minutes: build, checks, timings.
# Needs CUDA 13 (nvcc), CMake, a C++20 compiler and a driver. GoogleTest comes from the system or from a bundle
# (deploy/bundle.sh --dev). Leaves clocks and modes alone.
set -eu

usage() {
  cat <<'TXT'
Usage: bench/gpu/run.sh [--out DIR] [--bundle DIR] [--seconds N] [--device cuda:N] [--peers]
  --out DIR     where report.json, table.txt and logs go (default: build/gpu-report)
  --bundle DIR  a bundle made by deploy/bundle.sh --dev, for GoogleTest
  --seconds N   end within N seconds (default 600)
  --peers       time Transformers on the same shapes too (python3 with torch and transformers; up to 180 s of the N)
TXT
}

cd "$(dirname "$0")/../.."
begun=$(date +%s)
out=build/gpu-report bundle='' seconds=600 device=cuda peers=''
while [ $# -gt 0 ]; do
  case "$1" in
    --out) out=$2; shift 2 ;;
    --bundle) bundle=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    --device) device=$2; shift 2 ;;
    --peers) peers=yes; shift ;;
    -h|--help) usage; exit 0 ;;
    *) echo "error: unknown option $1" >&2; usage >&2; exit 2 ;;
  esac
done

spent() { echo $(($(date +%s) - begun)); }
left() { echo $((seconds - $(spent))); }
for_peers=0
[ -z "$peers" ] || for_peers=180
step() { printf '\n== %s (%s s)\n' "$1" "$(spent)"; }
fail() { echo "error: $1" >&2; exit "${2:-1}"; }
failed=''
note_failure() { failed="$failed; $1"; echo "FAILED: $1" >&2; }

mkdir -p "$out"
echo "budget: $seconds s = build 150, conformance 60, sanitizer 120, handoff 10, peers $for_peers, equality and timings the rest; what finds no time is listed, not forgotten"
step "device"
[ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || nvidia-smi -L >/dev/null 2>&1 ||
  fail "no NVIDIA device on this machine (no /dev/nvidiactl, and nvidia-smi names none): nothing was measured" 3
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || fail "no nvcc: CUDA 13 is needed (PATH or /usr/local/cuda/bin)" 3
command -v cmake >/dev/null || fail "no cmake" 3
{
  date -u +%Y-%m-%dT%H:%M:%SZ
  git rev-parse HEAD 2>/dev/null || echo "no git commit"
  "$nvcc" --version | tail -n 2
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,memory.total,power.limit,compute_mode,mig.mode.current --format=csv 2>/dev/null || echo "nvidia-smi says nothing"
  if pgrep -x nvidia-cuda-mps >/dev/null 2>&1; then echo "MPS: running"; else echo "MPS: not running"; fi
} | tee "$out/machine.txt"

step "build"
generator=''
command -v ninja >/dev/null && generator='-G Ninja'
gtest=''
[ -z "$bundle" ] || gtest="-DGTest_DIR=$(cd "$bundle" && pwd)/dev/lib/cmake/GTest"
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '.')
architecture=90
[ "${capability:-90}" -ge 90 ] || architecture=80
# shellcheck disable=SC2086 # words on purpose
cmake -S . -B build/gpu $generator $gtest -DCMAKE_BUILD_TYPE=Release -DFORETOKEN_KERNELS_ONLY=ON -DFORETOKEN_CUDA=ON \
  "-DFORETOKEN_NVCC=$nvcc" "-DFORETOKEN_CUDA_ARCHITECTURES=$architecture" >"$out/configure.log" 2>&1 ||
  { tail -n 20 "$out/configure.log"; fail "cmake could not configure; $out/configure.log"; }
jobs=$(nproc)
build() { cmake --build build/gpu -j "$jobs" --target "$@" >>"$out/build.log" 2>&1; }
build foretoken_cuda foretoken-bench-gpu foretoken-gpu-handoff || { tail -n 30 "$out/build.log"; fail "the build failed; $out/build.log"; }

step "conformance on the device"
suites='products attention choose accept cuda_paths'
if grep -q 'GTest_DIR:PATH=.*NOTFOUND' build/gpu/CMakeCache.txt; then
  note_failure "conformance was not run: no GoogleTest here (give --bundle)"
else
  targets=''
  for suite in $suites; do targets="$targets conformance_${suite}_test"; done
  # shellcheck disable=SC2086
  build $targets || { tail -n 30 "$out/build.log"; fail "the tests could not be built; $out/build.log"; }
  for suite in $suites; do
    if [ "$(left)" -lt 300 ]; then note_failure "conformance of $suite: no time left"; continue; fi
    log="$out/conformance_$suite.log"
    if ! timeout 300 "build/gpu/tests/conformance_${suite}_test" --gtest_filter='Cuda/*' >"$log" 2>&1; then
      note_failure "conformance of $suite ($log)"
      grep -E '^\[  FAILED' "$log" | head -n 5 || true
    elif grep -q 'SKIPPED' "$log"; then
      note_failure "conformance of $suite skipped cases ($log)"
    else
      grep 'PASSED' "$log" | sed "s/^/$suite: /"
    fi
  done
fi

step "compute-sanitizer on small shapes"
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
if [ -z "$sanitizer" ]; then
  echo "not run: no compute-sanitizer here"
elif [ "$(left)" -lt 240 ]; then
  echo "not run: no time left"
else
  # racecheck counts an arrival at a barrier in shared memory for the lane that makes it alone. In the ring one lane arrives for
  # its warp after __syncwarp(), so the tool reports the other lanes; where all 32 arrived it reported nothing (H200).
  for tool in memcheck racecheck synccheck; do
    for small in 'cuda_paths Cuda/*ARecording*:Cuda/*Largest*:Cuda/*Squares*' 'choose Cuda/Advance*' 'accept Cuda/*'; do
      [ "$tool ${small%% *}" != 'racecheck cuda_paths' ] || continue
      log="$out/sanitizer_${tool}_${small%% *}.log"
      if timeout 60 "$sanitizer" --tool "$tool" --error-exitcode 9 "build/gpu/tests/conformance_${small%% *}_test" \
        --gtest_filter="${small#* }" >"$log" 2>&1; then
        echo "$tool, ${small%% *}: clean"
      else
        note_failure "compute-sanitizer $tool, ${small%% *} ($log)"
      fi
    done
  done
fi

step "handoff between processes, launch of a long graph"
index=${device#cuda}
status=0
timeout 60 build/gpu/bin/foretoken-gpu-handoff --device "${index#:}" >"$out/handoff.json" 2>"$out/handoff.err" || status=$?
cat "$out/handoff.json" "$out/handoff.err"
[ "$status" = 0 ] || note_failure "foretoken-gpu-handoff ended with status $status"

step "equality and timings"
status=0
build/gpu/bin/foretoken-bench-gpu --device "$device" --json "$out/report.json" --seconds "$(($(left) - 60 - for_peers))" \
  >"$out/rows.txt" 2>"$out/bench.err" || status=$?
[ "$status" = 0 ] || { cat "$out/bench.err" >&2; note_failure "foretoken-bench-gpu ended with status $status"; }
sed -n '/^$/,$p' "$out/rows.txt" | tail -n +2 | tee "$out/table.txt"

# The table has up to 24 lines; what the other programs say follows.
sed -n 's/.*"what": "\([^"]*\)".*"us_median": \([0-9.]*\), "us_p99": \([0-9.]*\).*/\1: \2 us (p99 \3)/p' "$out/handoff.json" |
  paste -s -d ';' | sed "s/;/; /g; s/\$/; $(sed -n 's/^MPS: /MPS /p' "$out/machine.txt")/" | tee -a "$out/table.txt"
if [ -n "$peers" ]; then
  step "peers"
  build/gpu/bin/foretoken-bench-gpu --shapes >"$out/shapes.json"
  if [ "$(left)" -lt 40 ]; then
    echo '{"not_there": "no time left"}' >"$out/peers.json"
  else
    timeout "$(($(left) - 10))" python3 bench/gpu/peers.py --device "$device" --seconds "$(($(left) - 60))" <"$out/shapes.json" \
      >"$out/peers.json" 2>"$out/peers.err" || echo '{"not_there": "the program ended early"}' >>"$out/peers.json"
  fi
  sed -n 's/.*"what": "\([^"]*\)".*"dtype": "\([^"]*\)", "context": \([0-9]*\).*"microseconds": \([0-9.]*\).*/transformers, static cache: \1 \2 at \3: \4 us/p;
    s/.*"not_there": "\([^"]*\)".*/transformers: not there: \1/p' "$out/peers.json" | sort -u | head -n 6 | tee -a "$out/table.txt"
fi

step "done"
echo "reports: $out"
[ -z "$failed" ] || fail "not everything passed:${failed#;}"
