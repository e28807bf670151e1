# Runs when cpack starts: the CUDA library is built on request, so whether there is one is known only now.
if(EXISTS "${CPACK_FORETOKEN_CUDA_LIBRARY}")
  list(APPEND CPACK_COMPONENTS_ALL cuda)
endif()
