# Attention on other processors than this one.

# plsh_test_again(name test environment...): the program of a test under another name.
function(plsh_test_again name test)
    add_test(NAME ${name} COMMAND test_${test})
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${ARGN}"
                         SKIP_RETURN_CODE 77 TIMEOUT 600)
endfunction()

# 16 lanes wherever there is AVX2. Features switched off one by one: without any of AVX-512's the
# choice is AVX2, without any of the others it is plain C, so two of them stand for all where a test
# takes long.
plsh_test_again(short-wide short PLSH_ISA=wide)
foreach(feature avx512f avx512bw avx512dq avx512vl avx2 fma f16c)
    plsh_test_again(short-without-${feature} short PLSH_TEST_CPU_OFF=${feature})
endforeach()
set(again)
if(NOT PLSH_SANITIZE) # the short test runs the same kernels
    plsh_test_again(forward-wide forward PLSH_ISA=wide)
    plsh_test_again(plane-wide plane PLSH_ISA=wide)
    set(again forward plane long backward sampled certificate cache cache_file cache_steps output)
endif()
foreach(feature avx512f avx2)
    foreach(test IN LISTS again)
        plsh_test_again(${test}-without-${feature} ${test} PLSH_TEST_CPU_OFF=${feature})
    endforeach()
endforeach()

# A processor without AVX. Not with it: qemu 7.2's vmaskmovps (-cpu Haswell) reads the lanes that the
# mask leaves out, and so faults where they lie in a page that may not be read. A processor does not:
# three floats at the end of a page, loaded through a mask of three lanes, are enough to see it. The
# kernels' guard pages stand right there.
find_program(PLSH_X86_EMULATOR NAMES qemu-x86_64 qemu-x86_64-static)
if(PLSH_X86_EMULATOR AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64" AND NOT PLSH_SANITIZE)
    foreach(program test_cpu test_short check_kernels check_backward_kernels check_decode_kernels)
        string(REGEX REPLACE "^(test|check)_" "" test ${program})
        add_test(NAME ${test}-nehalem COMMAND ${PLSH_X86_EMULATOR} -cpu Nehalem
                 $<TARGET_FILE:${program}>)
        set_tests_properties(${test}-nehalem PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
    endforeach()
endif()
