#!/bin/sh
# Foretoken beside other programs that decode on a CPU: the same weights, prompts, cores and threads, in turn.
set -eu

usage() {
  cat <<'TXT'
Usage: bench/peers/run.sh [OPTION VALUE]...
  --peers LIST      of foretoken,llama.cpp,ik_llama.cpp,transformers,openvino,vllm (default: all)
  --models LIST     of demo,smollm2,1b,1b-forced (default: all)
  --weights LIST    of bfloat16,int8,int4 (default: all); the others' are bf16, Q8_0 and Q4_0
  --cells LIST      of plain,draft,lookup,prefill,rows,memory,streams,load (default: all)
  --prompts N       prompts of each cell (default: 5)
  --threads N       threads of every peer, and cores that they may use (default: all cores)
  --wait SECONDS    before each figure, at most so long for other work on these cores to end (default: 0)
  --programs DIR    Foretoken's programs (default: build/release/bin)
  --out FILE        the figures, as JSON; beside it the table as .md and a folder -plots (default: WORK/results.json)
  --work DIR        what is installed and converted; used again when it is there (default: build/peers)
  --fixed           Foretoken guesses K tokens whether it pays or not, as the others do
  --install-only    install and convert, measure nothing
Folders and files are those of the repository, if they are not absolute.

Takes the peers from PyPI in the versions that bench/peers/pins names, and builds llama.cpp and ik_llama.cpp with their servers for this
processor: on two cores an hour and a half at first, and some hours for all figures; 25 GB of disk. A peer that cannot be installed is named
above the table with the reason. Needs what deploy/packages/build.txt lists, and python3-venv.
TXT
}

command="bench/peers/run.sh $*"
cd "$(dirname "$0")/../.."
peers=foretoken,llama.cpp,ik_llama.cpp,transformers,openvino,vllm models=demo,smollm2,1b,1b-forced weights=bfloat16,int8,int4
cells=plain,draft,lookup,prefill,rows,memory,streams,load prompts=5 wait=0 threads=$(nproc)
programs=build/release/bin work=build/peers out='' measure=1 fixed=''
while [ $# -gt 0 ]; do
  case "$1" in
    -h|--help) usage; exit 0 ;;
    --install-only) measure=0; shift; continue ;;
    --fixed) fixed=--fixed; shift; continue ;;
    --peers|--models|--weights|--cells|--prompts|--threads|--wait|--programs|--out|--work)
      [ $# -gt 1 ] || { echo "error: $1 needs a value" >&2; exit 2; } ;;
    *) echo "error: unknown option $1" >&2; usage >&2; exit 2 ;;
  esac
  case "$1" in
    --peers) peers=$2 ;;
    --models) models=$2 ;;
    --weights) weights=$2 ;;
    --cells) cells=$2 ;;
    --prompts) prompts=$2 ;;
    --threads) threads=$2 ;;
    --wait) wait=$2 ;;
    --programs) programs=$2 ;;
    --out) out=$2 ;;
    --work) work=$2 ;;
  esac
  shift 2
done

fail() { echo "error: $1" >&2; exit "${2:-1}"; }
step() { echo "== $1" >&2; }
each() { echo "$1" | tr , ' '; }

# only LIST ALLOWED NAME: every word of the list is one that there is.
only() {
  for word in $(each "$1"); do
    case ",$2," in *",$word,"*) ;; *) fail "$3: $word; it must be of $2" 2 ;; esac
  done
}
only "$peers" foretoken,llama.cpp,ik_llama.cpp,transformers,openvino,vllm --peers
only "$models" demo,smollm2,1b,1b-forced --models
only "$weights" bfloat16,int8,int4 --weights
only "$cells" plain,draft,lookup,prefill,rows,memory,streams,load --cells
case "$prompts$threads$wait" in *[!0-9]*) fail "--prompts, --threads and --wait are whole numbers" 2 ;; esac
[ -x "$programs/foretoken" ] || fail "no program foretoken in $programs: build it first (cmake --workflow --preset release)" 6
programs=$(cd "$programs" && pwd)
mkdir -p "$work/src" "$work/models"
work=$(cd "$work" && pwd)
here=$PWD/bench/peers
[ -n "$out" ] || out=$work/results.json

# environment NAME: the virtual environment WORK/NAME with the packages of pins/NAME.txt; the list is the mark that it is whole. That of
# vllm is complete, because pip cannot resolve what its wheel asks for.
environment() {
  if cmp -s "$here/pins/$1.txt" "$work/$1/made-from.txt"; then return; fi
  step "install $1"
  rm -rf "${work:?}/$1"
  python3 -m venv "$work/$1" >"$work/$1.log" 2>&1 || return 1
  case "$1" in vllm) complete=--no-deps ;; *) complete='' ;; esac
  "$work/$1/bin/python" -m pip --disable-pip-version-check install --quiet ${complete:+"$complete"} -r "$here/pins/$1.txt" \
    >>"$work/$1.log" 2>&1 || return 1
  cp "$here/pins/$1.txt" "$work/$1/made-from.txt"
}

# build NAME: llama_peer on the library of that release, and its llama-server. Ninja goes on where an interrupted build ended.
build() {
  case "$1" in llama.cpp) package=llama-cpp-python ;; *) package=ik-llama-cpp-python ;; esac
  archive=$(echo "$package" | tr - _)
  if ! cmp -s "$here/pins/$1.txt" "$work/src/$1.txt"; then
    step "fetch $1"
    rm -rf "$work/src/$archive"-*
    "$work/env/bin/python" -m pip --disable-pip-version-check download --quiet --no-deps --no-binary "$package" --require-hashes \
      --dest "$work/src" -r "$here/pins/$1.txt" >"$work/$1.log" 2>&1 || return 1
    tar -xzf "$work/src/$archive"-*.tar.gz -C "$work/src" >>"$work/$1.log" 2>&1 || return 1
    cp "$here/pins/$1.txt" "$work/src/$1.txt"
  fi
  step "build $1"
  cmake -G Ninja -S "$here/llama" -B "$work/$1" -DPEER_SOURCE="$(echo "$work/src/$archive"-*/vendor/"$1")" >"$work/$1.log" 2>&1 || return 1
  ninja -C "$work/$1" llama_peer >>"$work/$1.log" 2>&1 || return 1
  ninja -C "$work/$1" llama-server >>"$work/$1.log" 2>&1 || echo "$1 has no server, see $work/$1.log: no streams of it" >&2
}

step "packages of the comparison itself"
environment env || fail "PyPI does not give the packages of bench/peers/pins/env.txt: $(tail -n 1 "$work/env.log")"
set --
quantizer=''
case ",$peers," in
  *,llama.cpp,*|*,ik_llama.cpp,*) ;;
  *,openvino,*)
    build llama.cpp || fail "OpenVINO reads what llama.cpp's quantiser writes, which was not built: $(tail -n 1 "$work/llama.cpp.log")"
    quantizer=$work/llama.cpp/llama_peer ;;
esac
for peer in $(each "$peers"); do
  case "$peer" in
    foretoken) continue ;;
    llama.cpp|ik_llama.cpp) if build "$peer"; then [ -n "$quantizer" ] || quantizer=$work/$peer/llama_peer; continue; fi ;;
    *)
      if environment "$peer"; then
        if [ -e "$here/${peer}_peer.py" ]; then continue; fi
        echo "bench/peers has no ${peer}_peer.py yet, which would ask it" >"$work/$peer.log"
      fi ;;
  esac
  reason=$(tail -n 1 "$work/$peer.log" | cut -c 1-200)
  echo "$peer is left out: $reason" >&2
  set -- "$@" --missing "$peer:left out: $reason"
done

# made FILE COMMAND...: a command that writes FILE.part, which gets its name when it is whole.
made() {
  file=$1
  shift
  if [ -e "$file" ]; then return; fi
  step "write ${file#"$work"/}"
  "$@" && mv "$file.part" "$file"
}

# gguf MODEL ROLE: files of all types beside the folder MODEL/ROLE.
gguf() {
  base=$work/models/$1/$2
  made "$base.bf16.gguf" "$work/env/bin/python" "$here/convert.py" "$base" "$base.bf16.gguf.part"
  types='q8_0 q4_0'
  case ",$peers," in *,openvino,*) types="f16 $types" ;; esac
  for type in $types; do
    made "$base.$type.gguf" "$quantizer" quantize "$base.bf16.gguf" "$base.$type.gguf.part" "$type" "$threads"
  done
}

random_1b() {
  "$programs/foretoken" model init-random "$1" --shape 1b --dtype bfloat16 --tokenizer models/demo-target --positions 16384 >/dev/null
}

# forced_pair FOLDER: target and draft, the draft right about four tokens of five.
forced_pair() {
  if [ -e "$1/draft" ]; then return; fi
  step "write $model/target and draft"
  rm -rf "$1/target" "$1/draft.part"
  random_1b "$1/target" &&
    "$programs/foretoken" model init-random "$1/draft.part" --layers 2 --hidden 256 --heads 4 --kv-heads 2 --ffn 1024 --vocab 4096 \
      --dtype bfloat16 --tokenizer models/demo-target --positions 16384 >/dev/null &&
    "$work/env/bin/python" "$here/forced.py" "$1/target" "$1/draft.part" 0.8 && mv "$1/draft.part" "$1/draft"
}

for model in $(each "$models"); do
  folder=$work/models/$model
  mkdir -p "$folder"
  case "$model" in
    demo)
      [ -e "$folder/target" ] || ln -s "$PWD/models/demo-target" "$folder/target"
      [ -e "$folder/draft" ] || ln -s "$PWD/models/demo-draft" "$folder/draft" ;;
    smollm2)
      "$work/env/bin/python" tests/real/smollm2.py "$folder/target" >/dev/null ||
        fail "SmolLM2 cannot be had; leave it out with --models" ;;
    1b|1b-forced)
      if [ "$model" = 1b ]; then made "$folder/target" random_1b "$folder/target.part"; else forced_pair "$folder"; fi
      made "$folder/target.int4" "$programs/foretoken" model quantize "$folder/target" "$folder/target.int4.part" --to int4 \
        --group 128 --down-proj --no-compare >/dev/null ;;
  esac
  if [ -n "$quantizer" ]; then
    gguf "$model" target
    [ ! -e "$folder/draft" ] || gguf "$model" draft
  fi
done
[ "$measure" = 1 ] || exit 0

step "measure"
"$work/env/bin/python" "$here/compare.py" --work "$work" --programs "$programs" --out "$out" --peers "$peers" --models "$models" \
  --weights "$weights" --cells "$cells" --prompts "$prompts" --threads "$threads" --wait "$wait" --command "$command" ${fixed:+"$fixed"} "$@"
"$work/env/bin/python" "$here/table.py" "$out" >"${out%.json}.md"
"$work/env/bin/python" "$here/plots.py" "${out%.json}-plots" "$out" >/dev/null
cat "${out%.json}.md"
