# Runs when cpack has written the packages, and puts right what CMake 3.25 makes of two of them. In the package of debug symbols
# (.ddeb) md5sums names files of the machine that built it, and there is no copyright. A library of our own, which only our
# programs load, needs no ldconfig.
cmake_policy(VERSION 3.25)

function(take_apart file)
  execute_process(COMMAND dpkg-deb -R "${file}" "${file}.parts" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(put_together file)
  execute_process(COMMAND dpkg-deb --root-owner-group "-Z${CPACK_DEBIAN_COMPRESSION_TYPE}" -b "${file}.parts" "${file}"
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE_RECURSE "${file}.parts")
endfunction()

foreach(file IN LISTS CPACK_PACKAGE_FILES)
  if(file MATCHES "/([^/_]+)-dbgsym_[^/]*[.]ddeb$")
    set(package "${CMAKE_MATCH_1}")
    take_apart("${file}")
    file(READ "${file}.parts/DEBIAN/md5sums" sums)
    string(REGEX REPLACE "(  )[^\n]*/(usr/lib/debug/)" "\\1\\2" sums "${sums}")
    file(WRITE "${file}.parts/DEBIAN/md5sums" "${sums}")
    file(READ "${file}.parts/DEBIAN/control" control)
    string(REPLACE "Package-Type: ddeb\n" "" control "${control}")
    file(WRITE "${file}.parts/DEBIAN/control" "${control}")
    # It depends on exactly this version of the programs, whose copyright and changelog are its own.
    file(MAKE_DIRECTORY "${file}.parts/usr/share/doc")
    file(CREATE_LINK "${package}" "${file}.parts/usr/share/doc/${package}-dbgsym" SYMBOLIC)
    put_together("${file}")
  elseif(file MATCHES "/foretoken-cuda_[^/]*[.]deb$")
    take_apart("${file}")
    file(REMOVE "${file}.parts/DEBIAN/postinst" "${file}.parts/DEBIAN/postrm")
    put_together("${file}")
  endif()
endforeach()
