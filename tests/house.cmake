# The rules of the house, and the installation as somebody else would use it.

add_test(NAME house COMMAND "${PROJECT_SOURCE_DIR}/scripts/check-house")
if(NOT PLSH_SANITIZE AND PLSH_BUILD_CLI AND PLSH_BUILD_SHARED)
    add_test(NAME install COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/install.sh"
        "${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}" "${CMAKE_C_COMPILER}")
endif()

# The library alone, as the Python package builds it: no tests, no program, no ARPACK.
if(NOT PLSH_SANITIZE)
    add_test(NAME minimal COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/minimal.sh"
        "${PROJECT_SOURCE_DIR}" "${CMAKE_C_COMPILER}")
endif()
