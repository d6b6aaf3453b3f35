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
endforeach()
