# Debian packages: cmake --workflow --preset package writes them to build/package/packages. A package is a component of
# install(); what only packages have (configuration, copyright, changelog) is EXCLUDE_FROM_ALL.
#   foretoken              programs, units, manual pages, completion, documents
#   foretoken-demo-models  the demo pair
#   foretoken-dbgsym       their debug symbols
#   python3-foretoken      the Python client
#   foretoken-cuda         libforetoken_cuda.so, where it was built (ninja foretoken_cuda) before cpack runs
# Who builds packages for others says who that is: -DFORETOKEN_MAINTAINER="Name <address>".
set(FORETOKEN_MAINTAINER "Foretoken maintainers <maintainers@foretoken.invalid>" CACHE STRING "Maintainer of the Debian packages")
set(FORETOKEN_PACKAGE_REVISION 1 CACHE STRING "The part of the package version behind the dash")

# Unlike `make install`, a package may write to /etc: dpkg keeps what a site has changed there. Every key is commented out,
# so that a default that changes reaches a site that did not set it.
file(READ "${CMAKE_SOURCE_DIR}/configs/foretoken.toml" listing)
string(REGEX REPLACE "^# Generated[^\n]*\n" "# Every key with its default; take away the # before those you change. See foretoken.toml(5).\n" listing "${listing}")
string(REGEX REPLACE "\n([a-z_]+ = )" "\n#\\1" listing "${listing}")
file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/etc/foretoken.toml" "${listing}")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/etc/foretoken.toml" DESTINATION /etc/foretoken COMPONENT foretoken EXCLUDE_FROM_ALL)

configure_file("${CMAKE_CURRENT_LIST_DIR}/python3-foretoken/PKG-INFO.in" "${CMAKE_CURRENT_BINARY_DIR}/PKG-INFO" @ONLY)
set(python_packages lib/python3/dist-packages)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/clients/python/foretoken" DESTINATION ${python_packages} COMPONENT python EXCLUDE_FROM_ALL
  FILES_MATCHING PATTERN "*.py" PATTERN py.typed)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/PKG-INFO" DESTINATION ${python_packages} RENAME "foretoken-${PROJECT_VERSION}.egg-info"
  COMPONENT python EXCLUDE_FROM_ALL)

set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME foretoken)
set(CPACK_PACKAGE_VENDOR "Foretoken")
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_DIRECTORY "${CMAKE_BINARY_DIR}/packages")
set(CPACK_PACKAGE_CONTACT "${FORETOKEN_MAINTAINER}")
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR ON)  # the prefix of the units is /usr, not the folder in which a package is put together
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL foretoken demo-models python)
set(CPACK_PROJECT_CONFIG_FILE "${CMAKE_CURRENT_LIST_DIR}/cuda_if_built.cmake")
set(CPACK_POST_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/repair_packages.cmake")
set(CPACK_FORETOKEN_CUDA_LIBRARY "${CMAKE_BINARY_DIR}/lib/libforetoken_cuda.so")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE "${FORETOKEN_PACKAGE_REVISION}")
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(version "${PROJECT_VERSION}-${FORETOKEN_PACKAGE_REVISION}")

set(CPACK_DEBIAN_FORETOKEN_PACKAGE_NAME foretoken)
set(CPACK_DEBIAN_FORETOKEN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_FORETOKEN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_FORETOKEN_DEBUGINFO_PACKAGE ON)
set(CPACK_DEBIAN_FORETOKEN_PACKAGE_DEPENDS "python3-jinja2")  # chat templates
set(CPACK_DEBIAN_FORETOKEN_PACKAGE_RECOMMENDS "foretoken-demo-models")
set(CPACK_DEBIAN_FORETOKEN_PACKAGE_SUGGESTS "foretoken-cuda, gnuplot-nox, openmpi-bin, python3-foretoken")
set(CPACK_DEBIAN_FORETOKEN_DESCRIPTION "speculative decoding of language models as separate services
A small model guesses, a large model checks, and the text of the large model is
there sooner. The same prompt, parameters and seed give the same text with or
without the guesses.
.
Router, tokenizer, draft, target and an HTTP edge are services joined by
ZeroMQ, on one machine or several, with systemd units. The edge speaks to
clients of OpenAI, Anthropic and Triton, and to browsers. No unit is enabled
or started when the package is installed; the command foretoken starts the
services for one user.")
set(CPACK_DEBIAN_FORETOKEN_PACKAGE_CONTROL_EXTRA "${CMAKE_CURRENT_LIST_DIR}/foretoken/postinst"
  "${CMAKE_CURRENT_LIST_DIR}/foretoken/prerm" "${CMAKE_CURRENT_LIST_DIR}/foretoken/postrm" "${CMAKE_CURRENT_LIST_DIR}/foretoken/conffiles")

set(CPACK_DEBIAN_DEMO-MODELS_PACKAGE_NAME foretoken-demo-models)
set(CPACK_DEBIAN_DEMO-MODELS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_DEMO-MODELS_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_DEMO-MODELS_PACKAGE_ENHANCES foretoken)
set(CPACK_DEBIAN_DEMO-MODELS_DESCRIPTION "demo models of Foretoken
A draft of 5 and a target model of 60 megabytes, trained by the project on text
that it generated, with the prompts of the demo. They show how speculative
decoding works and are no use for anything else.")

set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-foretoken)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3:any, python3-zmq, python3-msgpack")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS foretoken)
set(CPACK_DEBIAN_PYTHON_DESCRIPTION "Python client of Foretoken
A client of the inference services of the package foretoken, on ZeroMQ and
msgpack: whole answers and streams, blocking and with asyncio, with encryption
and with retries that give the same text.")
set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA "${CMAKE_CURRENT_LIST_DIR}/python3-foretoken/postinst"
  "${CMAKE_CURRENT_LIST_DIR}/python3-foretoken/prerm")

set(CPACK_DEBIAN_CUDA_PACKAGE_NAME foretoken-cuda)
set(CPACK_DEBIAN_CUDA_PACKAGE_SECTION contrib/science)  # it needs NVIDIA's driver
set(CPACK_DEBIAN_CUDA_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_CUDA_DEBUGINFO_PACKAGE ON)
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "foretoken (= ${version})")
set(CPACK_DEBIAN_CUDA_DESCRIPTION "CUDA backend of Foretoken
A library that the services of the package foretoken load where their device is
\"cuda\". It needs the driver of NVIDIA and a device of compute capability 8.0 or
newer.")

foreach(pair foretoken=foretoken demo-models=foretoken-demo-models python=python3-foretoken cuda=foretoken-cuda)
  string(REGEX MATCH "^(.*)=(.*)$" matched "${pair}")
  install(CODE "
  set(FORETOKEN_PACKAGE \"${CMAKE_MATCH_2}\")
  set(FORETOKEN_PACKAGE_VERSION \"${version}\")
  set(FORETOKEN_MAINTAINER \"${FORETOKEN_MAINTAINER}\")
  set(FORETOKEN_SCRATCH \"${CMAKE_CURRENT_BINARY_DIR}/documents\")" COMPONENT ${CMAKE_MATCH_1} EXCLUDE_FROM_ALL)
  string(REGEX MATCH "^(.*)=" matched "${pair}")
  install(SCRIPT packages/install_documents.cmake COMPONENT ${CMAKE_MATCH_1} EXCLUDE_FROM_ALL)
endforeach()

include(CPack)
