# The rules of the house, and the installation as another project uses it.

if(PLSH_BUILD_SHARED AND NOT PLSH_SANITIZE)
    set(libraries --build "${PROJECT_BINARY_DIR}")
endif()
add_test(NAME house COMMAND "${PROJECT_SOURCE_DIR}/scripts/check-house" ${libraries})
if(NOT PLSH_SANITIZE AND PLSH_BUILD_CLI AND PLSH_BUILD_SHARED)
    add_test(NAME install COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/install/install.sh"
        "${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}" "${CMAKE_C_COMPILER}")
endif()

# The library alone, as the Python package builds it: no tests, no program, no ARPACK.
if(NOT PLSH_SANITIZE)
    add_test(NAME minimal COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/install/minimal.sh"
        "${PROJECT_SOURCE_DIR}" "${CMAKE_C_COMPILER}")
endif()

# Partitions are the same on another processor, and without the FMA forms of libm on this one.
plsh_test_program(portable partition/portable.c)
if(NOT PLSH_SANITIZE)
    add_test(NAME portable COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/partition/portable.sh"
        "${PROJECT_SOURCE_DIR}" $<TARGET_FILE:portable>)
    set_tests_properties(portable PROPERTIES SKIP_RETURN_CODE 77)
    add_test(NAME portable-libm COMMAND bash -c
        "diff <($<TARGET_FILE:portable>) <(GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2_Usable,-FMA_Usable,-FMA4_Usable,-AVX2,-FMA,-FMA4 $<TARGET_FILE:portable>)")
endif()

# The pages of measurements are those that their scripts write.
if(NOT PLSH_SANITIZE)
    find_program(PLSH_PYTHON python3 REQUIRED)
    add_test(NAME conformance-page COMMAND ${PLSH_PYTHON} "${PROJECT_SOURCE_DIR}/scripts/conformance" --check)
    add_test(NAME bench-results COMMAND ${PLSH_PYTHON} "${PROJECT_SOURCE_DIR}/bench/results.py" --check)
endif()

# What a target installs, and `make run MODEL=file` without Python.
if(NOT PLSH_SANITIZE AND TARGET plsh_lm_static AND PLSH_BUILD_CLI)
    add_test(NAME scripts COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/support/check_scripts.sh"
        "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/plsh")
endif()
