# The kernels of linear layers for NEON, cross-compiled, under qemu-user where both are installed.
# test_linear runs those of every instruction set that the machine has.
if(PLSH_CROSS_COMPILER AND PLSH_CROSS_EMULATOR AND NOT PLSH_SANITIZE)
    set(sources linear/check_linear_kernels.c ../src/linear/kernels/neon.c
                ../src/linear/kernels/reference.c ../src/linear/kernels/int8_neon.c
                ../src/linear/kernels/int8_reference.c ../src/linear/types.c ../src/linear/quantise.c
                ../src/base/status.c ../src/base/memory.c)
    list(TRANSFORM sources PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
    file(GLOB headers "${PROJECT_SOURCE_DIR}/src/linear/kernels/*.h"
         "${PROJECT_SOURCE_DIR}/src/base/simd/*.h")
    # -O1: half the time to compile, for a program that an emulator runs in a second.
    add_custom_command(OUTPUT check_linear_kernels_neon
        COMMAND ${PLSH_CROSS_COMPILER} -std=c17 -O1 -static -D_GNU_SOURCE ${plsh_kernel_flags}
                -Wall -Wextra -I "${PROJECT_SOURCE_DIR}/include" -I "${PROJECT_SOURCE_DIR}/src"
                ${sources} -o check_linear_kernels_neon -lm
        DEPENDS ${sources} ${headers} VERBATIM)
    add_custom_target(check_linear_kernels_cross ALL DEPENDS check_linear_kernels_neon)
    add_test(NAME linear_kernels_neon_emulated COMMAND ${PLSH_CROSS_EMULATOR}
        "${CMAKE_CURRENT_BINARY_DIR}/check_linear_kernels_neon")
endif()
