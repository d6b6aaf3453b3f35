# The tile kernels, once per instruction set; those that the machine lacks are skipped. NEON is
# cross-compiled and runs under qemu-user where both are installed.

plsh_test_program(check_kernels kernels/check_kernels.c)
foreach(isa avx512 avx2 wide neon reference)
    add_test(NAME kernels_${isa} COMMAND check_kernels)
    set_tests_properties(kernels_${isa} PROPERTIES ENVIRONMENT "PLSH_ISA=${isa}"
                         SKIP_RETURN_CODE 77 TIMEOUT 600)
endforeach()

find_program(PLSH_CROSS_COMPILER aarch64-linux-gnu-gcc)
find_program(PLSH_CROSS_EMULATOR NAMES qemu-aarch64 qemu-aarch64-static)
if(PLSH_CROSS_COMPILER AND PLSH_CROSS_EMULATOR AND NOT PLSH_SANITIZE)
    set(sources kernels/check_kernels.c ../src/attention/kernels/neon.c
                ../src/attention/kernels/reference.c ../src/attention/kernels/choose.c
                ../src/base/status.c)
    list(TRANSFORM sources PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
    file(GLOB headers "${PROJECT_SOURCE_DIR}/src/attention/kernels/*.h")
    add_custom_command(OUTPUT check_kernels_neon
        COMMAND ${PLSH_CROSS_COMPILER} -std=c17 -O2 -static -D_GNU_SOURCE ${plsh_kernel_flags}
                -Wall -Wextra -I "${PROJECT_SOURCE_DIR}/include" -I "${PROJECT_SOURCE_DIR}/src"
                ${sources} -o check_kernels_neon -lm
        DEPENDS ${sources} ${headers} VERBATIM)
    add_custom_target(check_kernels_cross ALL DEPENDS check_kernels_neon)
    add_test(NAME kernels_neon_emulated
             COMMAND ${PLSH_CROSS_EMULATOR} "${CMAKE_CURRENT_BINARY_DIR}/check_kernels_neon")
    set_tests_properties(kernels_neon_emulated PROPERTIES ENVIRONMENT "PLSH_ISA=neon" TIMEOUT 600)
endif()
