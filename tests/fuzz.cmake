# Fuzz targets: tests/fuzz/fuzz_<name>.c defines LLVMFuzzerTestOneInput. With every compiler
# fuzz_<name> runs over its seed corpus, tests/fuzz/corpus/<name>, as the test fuzz-<name>; with the
# preset `fuzz` (clang) it is libFuzzer's program, and the test a short run of it. To run one for long:
#     build-fuzz/tests/fuzz_<name> -max_total_time=600 FOLDER tests/fuzz/corpus/<name>
file(GLOB fuzz_targets CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/fuzz/fuzz_*.c")
if(NOT plsh_has_lm)
    set(fuzz_targets)
endif()
foreach(source IN LISTS fuzz_targets)
    get_filename_component(target ${source} NAME_WE)
    string(REGEX REPLACE "^fuzz_" "" name ${target})
    set(corpus "${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name}")
    if(PLSH_FUZZ)
        plsh_test_program(${target} ${source})
        target_link_options(${target} PRIVATE -fsanitize=fuzzer)
        set(found "${CMAKE_CURRENT_BINARY_DIR}/fuzz-${name}") # inputs that reach something new
        file(MAKE_DIRECTORY "${found}")
        add_test(NAME fuzz-${name} COMMAND ${target} -max_total_time=20 -rss_limit_mb=2048
            "${found}" "${corpus}")
    else()
        plsh_test_program(${target} ${source} fuzz/replay.c)
        add_test(NAME fuzz-${name} COMMAND ${target} "${corpus}")
    endif()
    target_link_libraries(${target} PRIVATE plsh_lm_static ${plsh_lm_libraries})
    if(name STREQUAL "request") # a part of the program, not of a library
        target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/cli/serve/request.c")
        target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
    endif()
endforeach()

# A short run of libFuzzer on the readers of files in the ordinary suite too, where clang has it: those
# programs need a few sources only, compiled apart from everything else.
if(plsh_has_lm AND NOT PLSH_SANITIZE)
    find_program(PLSH_FUZZ_COMPILER clang)
    set(fuzz_flags -std=c17 -O1 -g -D_GNU_SOURCE -pthread -fno-sanitize-recover=all
                   -fsanitize=fuzzer,address,undefined)
    if(PLSH_FUZZ_COMPILER AND NOT DEFINED PLSH_FUZZ_WORKS)
        set(fuzz_probe "${CMAKE_CURRENT_BINARY_DIR}/fuzz_probe")
        file(WRITE "${fuzz_probe}.c" "#include <stddef.h>\n"
            "int LLVMFuzzerTestOneInput(const char *bytes, size_t size);\n"
            "int LLVMFuzzerTestOneInput(const char *bytes, size_t size) {\n"
            "    return bytes == NULL && size > 0;\n}\n")
        execute_process(COMMAND ${PLSH_FUZZ_COMPILER} ${fuzz_flags} ${fuzz_probe}.c -o ${fuzz_probe}
            RESULT_VARIABLE fuzz_failed OUTPUT_QUIET ERROR_QUIET)
        if(fuzz_failed)
            set(PLSH_FUZZ_WORKS OFF CACHE INTERNAL "")
        else()
            set(PLSH_FUZZ_WORKS ON CACHE INTERNAL "")
        endif()
    endif()
endif()
if(PLSH_FUZZ_WORKS AND NOT PLSH_SANITIZE)
    file(GLOB fuzz_sources "${PROJECT_SOURCE_DIR}/src/base/*.c" "${PROJECT_SOURCE_DIR}/src/formats/*.c"
         "${PROJECT_SOURCE_DIR}/src/linear/types.c"
         "${PROJECT_SOURCE_DIR}/src/linear/quantise.c"
         "${PROJECT_SOURCE_DIR}/src/model/config*.c" "${PROJECT_SOURCE_DIR}/src/model/family.c")
    foreach(name gguf safetensors pickle config)
        set(source "${CMAKE_CURRENT_SOURCE_DIR}/fuzz/fuzz_${name}.c")
        add_custom_command(OUTPUT short_fuzz_${name}
            COMMAND ${PLSH_FUZZ_COMPILER} ${fuzz_flags} -I "${PROJECT_SOURCE_DIR}/include"
                    -I "${PROJECT_SOURCE_DIR}/src" -I "${CMAKE_CURRENT_SOURCE_DIR}"
                    ${source} ${fuzz_sources} -o short_fuzz_${name} -ljansson -lm
            DEPENDS ${source} ${fuzz_sources} "${CMAKE_CURRENT_SOURCE_DIR}/fuzz/weights_walk.h"
            VERBATIM)
        add_custom_target(short_fuzz_${name}_program ALL DEPENDS short_fuzz_${name})
        set(found "${CMAKE_CURRENT_BINARY_DIR}/found-${name}/")
        file(MAKE_DIRECTORY "${found}")
        add_test(NAME fuzz-${name}-short
            COMMAND "${CMAKE_CURRENT_BINARY_DIR}/short_fuzz_${name}" -max_total_time=10
            -rss_limit_mb=2048 -malloc_limit_mb=256 "-artifact_prefix=${found}" "${found}"
            "${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name}")
    endforeach()
endif()
