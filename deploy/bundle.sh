#!/bin/sh
# deploy/bundle.sh: the programs with the shared libraries they need, in one folder that runs where it is put. For hosts
# without a package registry. The C library stays the host's (glibc 2.36 or newer) unless --with-libc is given.
set -eu

usage() {
  cat <<'TXT'
Usage: deploy/bundle.sh [--build DIR] [--with-libc] [--dev] OUT
  --build DIR   where the programs were built (default build/release)
  --with-libc   bring the C library and its loader too: for hosts with an older one
  --dev         GoogleTest's headers and libraries under OUT/dev, for bench/gpu/run.sh --bundle OUT
Run OUT/bin/foretoken. The tokenizer's chat templates need Debian's python3 and python3-jinja2 on the host.
TXT
}

from=$(pwd)
cd "$(dirname "$0")/.."
build=build/release with_libc=0 dev=0 out=''
# A path as the caller wrote it.
below() { case "$1" in /*) echo "$1" ;; *) echo "$from/$1" ;; esac; }
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=$(below "$2"); shift 2 ;;
    --with-libc) with_libc=1; shift ;;
    --dev) dev=1; shift ;;
    -h|--help) usage; exit 0 ;;
    -*) echo "error: unknown option $1" >&2; usage >&2; exit 2 ;;
    *) out=$(below "$1"); shift ;;
  esac
done
[ -n "$out" ] || { usage >&2; exit 2; }
[ ! -e "$out" ] || [ -z "$(ls -A "$out")" ] || { echo "error: $out is there and not empty" >&2; exit 1; }
[ -x "$build/bin/foretoken" ] || { echo "error: $build/bin/foretoken is missing; build first: ./start, or ninja -C $build foretoken_programs" >&2; exit 1; }

mkdir -p "$out/bin" "$out/libexec" "$out/lib" "$out/share/foretoken"
for program in "$build"/bin/foretoken "$build"/bin/foretoken-*; do
  [ -x "$program" ] || continue
  name=$(basename "$program")
  install -m 755 "$program" "$out/libexec/$name"
  # The real program is beside its neighbours in libexec/, so those it starts are found and inherit the libraries.
  cat >"$out/bin/$name" <<'TXT'
#!/bin/sh
here=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH
exec "$here/libexec/$(basename "$0")" "$@"
TXT
  chmod 755 "$out/bin/$name"
done
[ ! -f "$build/lib/libforetoken_cuda.so" ] || install -m 755 "$build/lib/libforetoken_cuda.so" "$out/lib/"
cp -r models "$out/share/foretoken/models" 2>/dev/null || true
# Where an installation has it, and draft distil looks for it.
[ ! -d "$out/share/foretoken/models/recipe" ] || mv "$out/share/foretoken/models/recipe" "$out/share/foretoken/recipe"
cp LICENSE README.md "$out/"

# The C library's own parts must come from one place, all of them or none.
is_libc() {
  case "$1" in
    ld-linux*|libc.so*|libm.so*|libpthread.so*|libdl.so*|librt.so*|libresolv.so*|libutil.so*|libmvec.so*|libanl.so*) return 0 ;;
  esac
  return 1
}
unresolved=''
libraries=$(for file in "$out"/libexec/* "$out"/lib/*.so; do [ -f "$file" ] && ldd "$file"; done | sort -u)
unresolved=$(printf '%s\n' "$libraries" | grep 'not found' || true)
[ -z "$unresolved" ] || { echo "error: libraries are missing here: $unresolved" >&2; exit 1; }
printf '%s\n' "$libraries" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*ld-linux[^ ]*\) .*/\1/p' | sort -u |
  while read -r library; do
    name=$(basename "$library")
    if is_libc "$name" && [ "$with_libc" = 0 ]; then continue; fi
    install -m 755 "$(readlink -f "$library")" "$out/lib/$name"
    # Whose file it is, for the licence list.
    dpkg -S "$library" "$(readlink -f "$library")" 2>/dev/null | head -n 1 | cut -d: -f1 >>"$out/packages.new" || true
  done
if [ "$with_libc" = 1 ]; then
  # The running program is then the loader, which is not beside the others.
  loader=$(basename "$(find "$out/lib" -name "ld-linux*" | head -n 1)")
  for name in "$out"/bin/*; do
    sed -i "s|^exec \"\$here/libexec|exec \"\$here/lib/$loader\" --argv0 \"\$0\" --library-path \"\$LD_LIBRARY_PATH\" \"\$here/libexec|; s|^export LD_LIBRARY_PATH|export FORETOKEN_PROGRAMS=\"\$here/bin\"|" "$name"
  done
fi
if [ -f "$out/packages.new" ]; then
  sort -u "$out/packages.new" | while read -r package; do
    dpkg-query -W -f='${Package} ${Version}\n' "$package"
    [ ! -f "/usr/share/doc/$package/copyright" ] || install -D -m 644 "/usr/share/doc/$package/copyright" "$out/share/doc/$package/copyright"
  done >"$out/PACKAGES"
  rm "$out/packages.new"
fi

if [ "$dev" = 1 ]; then
  multiarch=$(c++ -print-multiarch)
  [ -f "/usr/lib/$multiarch/libgtest.a" ] || { echo "error: --dev needs libgtest-dev and libgmock-dev here" >&2; exit 1; }
  mkdir -p "$out/dev/include" "$out/dev/lib/cmake/GTest"
  cp -r /usr/include/gtest /usr/include/gmock "$out/dev/include/"
  cp "/usr/lib/$multiarch"/libgtest*.a "/usr/lib/$multiarch"/libgmock*.a "$out/dev/lib/"
  # Written by hand: Debian's own file knows only Debian's places.
  cat >"$out/dev/lib/cmake/GTest/GTestConfig.cmake" <<'TXT'
get_filename_component(root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
find_package(Threads REQUIRED)
foreach(name gtest gmock gmock_main)
  if(NOT TARGET GTest::${name})
    add_library(GTest::${name} STATIC IMPORTED)
    set_target_properties(GTest::${name} PROPERTIES IMPORTED_LOCATION "${root}/lib/lib${name}.a"
      INTERFACE_INCLUDE_DIRECTORIES "${root}/include")
  endif()
endforeach()
set_property(TARGET GTest::gtest PROPERTY INTERFACE_LINK_LIBRARIES Threads::Threads)
set_property(TARGET GTest::gmock PROPERTY INTERFACE_LINK_LIBRARIES GTest::gtest)
set_property(TARGET GTest::gmock_main PROPERTY INTERFACE_LINK_LIBRARIES GTest::gmock)
set(GTest_FOUND TRUE)
TXT
fi

# Everything but the C library must now come from the bundle itself.
strangers=$(for file in "$out"/libexec/* "$out"/lib/*.so*; do
  LD_LIBRARY_PATH="$(cd "$out" && pwd)/lib" ldd "$file" 2>/dev/null | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p'
done | grep -v "^$(cd "$out" && pwd)/" | sort -u | while read -r library; do is_libc "$(basename "$library")" || echo "$library"; done)
[ -z "$strangers" ] || { echo "error: not from the bundle: $strangers" >&2; exit 1; }
echo "$out: $(find "$out/libexec" -type f | wc -l) programs, $(find "$out/lib" -type f | wc -l) libraries, $(du -sm "$out" | cut -f1) MB"
