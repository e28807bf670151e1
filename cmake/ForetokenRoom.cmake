# Build vocabulary: foretoken_room(), foretoken_service(), foretoken_test(). Everything is a target; nothing is
# set globally except what every translation unit must agree on.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)  # reading headers is a quarter of a unit's time, so: few units, as long as all cores have one
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_CXX_FLAGS_RELEASE "")  # properties instead, so that a target can do without (foretoken_test_options)
set(CMAKE_CXX_FLAGS_DEBUG "")
# CMake ends the RUNPATH of a build, which an installation would replace, with an empty entry. The dynamic linker takes that
# for the current folder, and would load a library that somebody put there.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
if(FORETOKEN_PACKAGE)
  # Without them cpack fails after the whole build, or makes packages that depend on nothing.
  foreach(program dpkg-shlibdeps file)
    find_program(FORETOKEN_PROGRAM_${program} ${program})
    if(NOT FORETOKEN_PROGRAM_${program})
      message(FATAL_ERROR "packages need ${program}: apt install dpkg-dev file")
    endif()
  endforeach()
  # What Debian's own packages are compiled with, in addition to its compiler's defaults
  set(CMAKE_SKIP_RPATH ON)  # its libraries are where the dynamic linker looks anyway
  add_compile_options(-D_FORTIFY_SOURCE=2 -fstack-protector-strong "-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.")
  add_link_options(-pie -Wl,-z,relro,-z,now)
else()
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
endif()
# Without optimisation a sixth of GCC's time is the collection of its own garbage, which begins at 128 MiB: with a GiB for each
# compiler that time is saved. Optimised code gains nothing from it.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(unoptimised -O0 --param=ggc-min-heapsize=1048576)
else()
  set(unoptimised -O0)
endif()
add_compile_options(-g1 $<$<CONFIG:Release>:-O2> "$<$<CONFIG:Debug>:${unoptimised}>")

if(NOT FORETOKEN_KERNELS_ONLY)
  find_package(PkgConfig REQUIRED)
endif()
find_package(Threads REQUIRED)
find_program(FORETOKEN_CCACHE ccache)
if(FORETOKEN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Relative paths: a unity file lies in the build folder, and its object serves every preset that compiles it alike.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" "${FORETOKEN_CCACHE}")
endif()

add_library(foretoken_warnings INTERFACE)
# -ffp-contract=off: a multiply and an add fuse only where the source says fma, so the same
# expression has the same bits in every translation unit and on every compiler.
target_compile_options(foretoken_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow
  # Designated initialisers leave the rest to the defaults beside the members, on purpose.
  -Wno-missing-field-initializers -ffp-contract=off
  $<$<BOOL:${FORETOKEN_WERROR}>:-Werror>)
# Links programs of tests, and all programs under sanitizers (edge_test in a third of the time); shipped programs use the compiler's linker.
find_program(FORETOKEN_LLD ld.lld)
# What we ship.
add_library(foretoken_options INTERFACE)
target_link_libraries(foretoken_options INTERFACE foretoken_warnings)
if(FORETOKEN_SANITIZE)  # a list with commas, which a generator expression would take apart
  target_compile_options(foretoken_options INTERFACE -fsanitize=${FORETOKEN_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(foretoken_options INTERFACE -fsanitize=${FORETOKEN_SANITIZE})
  # Linked after foretoken_options: of two such flags the later one counts, and options of a target come first.
  add_library(foretoken_unchecked_pointers INTERFACE)
  target_compile_options(foretoken_unchecked_pointers INTERFACE -fno-sanitize=null,alignment)
  if(FORETOKEN_LLD)
    target_link_options(foretoken_options INTERFACE -fuse-ld=lld)
  endif()
endif()

# How the code of tests themselves is compiled: the same in the release build and under ASan and UBSan, so that one finds
# the objects of the other in the compiler cache; what they test is instrumented there, but for templates and inline
# functions of which the linker takes a test's copy. ThreadSanitizer must see all code.
function(foretoken_test_options target is_optimised)
  if(FORETOKEN_SANITIZE MATCHES "thread" OR TEST_HEADERS_ONLY)
    target_link_libraries(${target} PRIVATE foretoken_options)
  else()
    target_link_libraries(${target} PRIVATE foretoken_warnings)
    target_link_options(${target} PRIVATE $<TARGET_PROPERTY:foretoken_options,INTERFACE_LINK_OPTIONS>)
    set_target_properties(${target} PROPERTIES COMPILE_OPTIONS "$<IF:$<BOOL:${is_optimised}>,-O2,${unoptimised}>")
  endif()
  if(FORETOKEN_LLD AND NOT FORETOKEN_SANITIZE)
    target_link_options(${target} PRIVATE -fuse-ld=lld)
  endif()
endfunction()

# Adds every folder that matches a pattern and has a CMakeLists.txt.
function(foretoken_add_folders)
  foreach(pattern IN LISTS ARGN)
    file(GLOB lists CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/${pattern}/CMakeLists.txt")
    foreach(list IN LISTS lists)
      get_filename_component(folder "${list}" DIRECTORY)
      add_subdirectory("${folder}")
    endforeach()
  endforeach()
endfunction()

# foretoken_room(NAME kv DEPENDS base kernels [LIBRARIES pkg...] [EXCLUDE file.cc...] [HOT] [CASTS])
# A static library foretoken::<name> of all .cc files in the folder. DEPENDS are rooms, LIBRARIES outside targets. HOT:
# tests spend their time in its loops, so it is optimised a little under sanitizers too. In rooms that are HOT or have CASTS
# of pointers each access is checked there for null and alignment; the others compile in two thirds of the time without, and
# ASan meets a null where it is used.
function(foretoken_room)
  cmake_parse_arguments(ROOM "HOT;CASTS" "NAME" "DEPENDS;LIBRARIES;EXCLUDE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cc")
  foreach(excluded IN LISTS ROOM_EXCLUDE)
    list(REMOVE_ITEM sources "${CMAKE_CURRENT_SOURCE_DIR}/${excluded}")
  endforeach()
  list(TRANSFORM ROOM_DEPENDS PREPEND foretoken::)
  if(sources)
    add_library(foretoken_${ROOM_NAME} STATIC ${sources})
    target_include_directories(foretoken_${ROOM_NAME} PUBLIC "${CMAKE_SOURCE_DIR}")
    target_link_libraries(foretoken_${ROOM_NAME} PRIVATE foretoken_options
      PUBLIC ${ROOM_DEPENDS} Threads::Threads PRIVATE ${ROOM_LIBRARIES})
    if(ROOM_HOT)
      target_compile_options(foretoken_${ROOM_NAME} PRIVATE $<$<CONFIG:Debug>:-O1>)
    elseif(FORETOKEN_SANITIZE MATCHES "undefined" AND NOT ROOM_CASTS)
      target_link_libraries(foretoken_${ROOM_NAME} PRIVATE foretoken_unchecked_pointers)
    endif()
  else()
    add_library(foretoken_${ROOM_NAME} INTERFACE)
    target_include_directories(foretoken_${ROOM_NAME} INTERFACE "${CMAKE_SOURCE_DIR}")
    target_link_libraries(foretoken_${ROOM_NAME} INTERFACE ${ROOM_DEPENDS} Threads::Threads)
  endif()
  add_library(foretoken::${ROOM_NAME} ALIAS foretoken_${ROOM_NAME})
endfunction()

# foretoken_service(NAME router DEPENDS ...): room foretoken::service_<name> from all .cc files but main.cc,
# and the executable foretoken-<name> (or EXECUTABLE) from main.cc.
function(foretoken_service)
  cmake_parse_arguments(SERVICE "" "NAME;EXECUTABLE" "DEPENDS;LIBRARIES;MAIN_DEPENDS" ${ARGN})
  foretoken_room(NAME service_${SERVICE_NAME} DEPENDS ${SERVICE_DEPENDS} LIBRARIES ${SERVICE_LIBRARIES} EXCLUDE main.cc)
  if(NOT SERVICE_EXECUTABLE)
    set(SERVICE_EXECUTABLE foretoken-${SERVICE_NAME})
  endif()
  list(TRANSFORM SERVICE_MAIN_DEPENDS PREPEND foretoken::)
  add_executable(${SERVICE_EXECUTABLE} main.cc)
  target_link_libraries(${SERVICE_EXECUTABLE} PRIVATE foretoken_options foretoken::service_${SERVICE_NAME} ${SERVICE_MAIN_DEPENDS})
  set_property(GLOBAL APPEND PROPERTY FORETOKEN_EXECUTABLES ${SERVICE_EXECUTABLE})
  install(TARGETS ${SERVICE_EXECUTABLE} RUNTIME COMPONENT foretoken)
endfunction()

# What ./check --quick builds: tests of rooms and services in one process, but for those of CUDA, of the edge (a sixth of all code
# to compile) and the command's own (a seventh).
add_custom_target(foretoken_room_tests)
# What every ./check builds under ASan and UBSan, the label sanitized: code that reads what comes from outside, and the
# ledgers. --long takes all others there, too.
add_custom_target(foretoken_sanitized_tests)

# foretoken_test(NAME kv_test SOURCES a_test.cc ... DEPENDS kv [LIBRARIES ...] [LABELS unit] [TIMEOUT 60] [OPTIMISED] [SANITIZED] [HEADERS_ONLY])
# OPTIMISED: the code of the test itself takes most of its time, and what it saves is more than its compilation takes longer.
# SANITIZED: under ASan and UBSan in every ./check, not with --long alone.
# HEADERS_ONLY: what is tested is in headers, so that sanitizers see it nowhere else.
function(foretoken_test)
  cmake_parse_arguments(TEST "HEADERS_ONLY;OPTIMISED;SANITIZED" "NAME;TIMEOUT" "SOURCES;DEPENDS;LIBRARIES;LABELS;ENVIRONMENT" ${ARGN})
  if(FORETOKEN_KERNELS_ONLY)
    find_package(GTest QUIET)  # a GPU machine may lack it; bench/gpu/run.sh then says that nothing was checked
    if(NOT GTest_FOUND)
      return()
    endif()
  else()
    find_package(GTest REQUIRED)
  endif()
  list(TRANSFORM TEST_DEPENDS PREPEND foretoken::)
  if(NOT TEST_LABELS)
    set(TEST_LABELS unit)
  endif()
  add_executable(${TEST_NAME} ${TEST_SOURCES})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  foretoken_test_options(${TEST_NAME} "${TEST_OPTIMISED}")
  set_target_properties(${TEST_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  target_compile_definitions(${TEST_NAME} PRIVATE FORETOKEN_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(${TEST_NAME} PRIVATE ${TEST_DEPENDS} ${TEST_LIBRARIES} GTest::gmock_main)
  if(FORETOKEN_SANITIZE MATCHES "thread")
    list(APPEND TEST_ENVIRONMENT "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/support/tsan.supp")
  endif()
  add_test(NAME ${TEST_NAME} COMMAND ${TEST_NAME})
  set_tests_properties(${TEST_NAME} PROPERTIES LABELS "${TEST_LABELS}" TIMEOUT ${TEST_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "${TEST_ENVIRONMENT}")
  if("process" IN_LIST TEST_LABELS)  # real services need the cores to themselves
    set_tests_properties(${TEST_NAME} PROPERTIES RUN_SERIAL ON)
  elseif(NOT TEST_LABELS MATCHES "long|command|cuda|edge")
    add_dependencies(foretoken_room_tests ${TEST_NAME})
  endif()
  if(TEST_SANITIZED)
    list(APPEND TEST_LABELS sanitized)
    set_tests_properties(${TEST_NAME} PROPERTIES LABELS "${TEST_LABELS}")
    add_dependencies(foretoken_sanitized_tests ${TEST_NAME})
  endif()
endfunction()
