# The kernels, once per instruction set; those that the machine lacks are skipped. NEON is
# cross-compiled and runs under qemu-user where both are installed.

foreach(topic kernels backward_kernels decode_kernels pair_kernels)
    plsh_test_program(check_${topic} attention/kernels/check_${topic}.c)
    set(isas avx512 avx2 wide neon reference)
    if(topic STREQUAL "pair_kernels")
        set(isas avx512bf16 wide)
    endif()
    foreach(isa IN LISTS isas)
        add_test(NAME ${topic}_${isa} COMMAND check_${topic})
        set_tests_properties(${topic}_${isa} PROPERTIES ENVIRONMENT "PLSH_ISA=${isa}"
                             SKIP_RETURN_CODE 77 TIMEOUT 600)
    endforeach()
endforeach()

find_program(PLSH_CROSS_COMPILER aarch64-linux-gnu-gcc)
find_program(PLSH_CROSS_EMULATOR NAMES qemu-aarch64 qemu-aarch64-static)
if(PLSH_CROSS_COMPILER AND PLSH_CROSS_EMULATOR AND NOT PLSH_SANITIZE)
    set(sources ../src/attention/kernels/neon.c ../src/attention/kernels/reference.c
                ../src/attention/kernels/choose.c ../src/base/cpu.c ../src/base/status.c)
    list(TRANSFORM sources PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
    file(GLOB headers "${PROJECT_SOURCE_DIR}/src/attention/kernels/*.h"
         "${PROJECT_SOURCE_DIR}/src/base/simd/*.h")
    foreach(topic kernels backward_kernels decode_kernels)
        set(check "${CMAKE_CURRENT_SOURCE_DIR}/attention/kernels/check_${topic}.c")
        add_custom_command(OUTPUT check_${topic}_neon
            COMMAND ${PLSH_CROSS_COMPILER} -std=c17 -O2 -static -D_GNU_SOURCE ${plsh_kernel_flags}
                    -Wall -Wextra -I "${PROJECT_SOURCE_DIR}/include" -I "${PROJECT_SOURCE_DIR}/src"
                    -I "${CMAKE_CURRENT_SOURCE_DIR}" ${check} ${sources} -o check_${topic}_neon -lm
            DEPENDS ${check} ${sources} ${headers}
                    "${CMAKE_CURRENT_SOURCE_DIR}/attention/kernels/check.h" VERBATIM)
        add_custom_target(check_${topic}_cross ALL DEPENDS check_${topic}_neon)
        add_test(NAME ${topic}_neon_emulated
            COMMAND ${PLSH_CROSS_EMULATOR} "${CMAKE_CURRENT_BINARY_DIR}/check_${topic}_neon")
        set_tests_properties(${topic}_neon_emulated PROPERTIES ENVIRONMENT "PLSH_ISA=neon"
                             TIMEOUT 600)
    endforeach()
endif()
