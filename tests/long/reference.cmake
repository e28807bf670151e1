# Comparisons with the reference implementations on what seeds make: minutes each. The scripts run in a virtual environment
# of pinned packages that python_env.sh makes, and report SKIPPED where it cannot be made.
foreach(probe model_probe tokenizer_probe)
  add_executable(${probe} ${probe}.cc)
  set_target_properties(${probe} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
endforeach()
target_link_libraries(model_probe PRIVATE foretoken_options foretoken::model foretoken::kernels foretoken::base)
target_link_libraries(tokenizer_probe PRIVATE foretoken_options foretoken::tokenizer foretoken::base)

function(reference_test name timeout)
  add_test(NAME long_${name} COMMAND "${CMAKE_SOURCE_DIR}/tests/support/python_env.sh"
    ${CMAKE_CURRENT_SOURCE_DIR}/requirements.txt "${CMAKE_SOURCE_DIR}/build/reference-env" ${CMAKE_CURRENT_SOURCE_DIR}/${name}.py --probes "${CMAKE_BINARY_DIR}/tests" ${ARGN})
  set_tests_properties(long_${name} PROPERTIES LABELS long TIMEOUT ${timeout} SKIP_RETURN_CODE 77
    ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
endfunction()
if(NOT FORETOKEN_SANITIZE)
  reference_test(random_models 7200 --seed 1 --n 60)
  reference_test(random_tokenizers 7200 --seed 1 --n 50)
  reference_test(mistral_tokenizers 1800 --seed 1)
  reference_test(code_points 3600)
  add_test(NAME long_distil_training COMMAND "${CMAKE_SOURCE_DIR}/tests/support/python_env.sh"
    ${CMAKE_CURRENT_SOURCE_DIR}/requirements.txt "${CMAKE_SOURCE_DIR}/build/reference-env" ${CMAKE_SOURCE_DIR}/models/recipe/test_distil_training.py)
  set_tests_properties(long_distil_training PROPERTIES LABELS long TIMEOUT 1800 SKIP_RETURN_CODE 77 ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
  foreach(name compressed_tensors distil)
    add_test(NAME long_${name} COMMAND "${CMAKE_SOURCE_DIR}/tests/support/python_env.sh"
      ${CMAKE_CURRENT_SOURCE_DIR}/requirements.txt "${CMAKE_SOURCE_DIR}/build/reference-env" ${CMAKE_CURRENT_SOURCE_DIR}/${name}_test.py)
    set_tests_properties(long_${name} PROPERTIES LABELS long TIMEOUT 1800 SKIP_RETURN_CODE 77
      ENVIRONMENT "FORETOKEN_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};PYTHONDONTWRITEBYTECODE=1")
  endforeach()
endif()
