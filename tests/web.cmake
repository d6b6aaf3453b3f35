# The page of web/, in a browser, against the library on this machine. The suite runs this
# where `make web` has built the page, as .ci/run does before.
if(PLSH_BUILD_CLI AND NOT PLSH_SANITIZE)
    find_program(PLSH_PYTHON python3 REQUIRED)
    file(GLOB web_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/web/*.c")
    if(NOT TARGET plsh_lm_static)
        list(FILTER web_sources EXCLUDE REGEX "/model\\.c$")
    endif()
    add_executable(web_native web/native.c ${web_sources} "${PROJECT_SOURCE_DIR}/cli/report/plot.c"
        "${PROJECT_SOURCE_DIR}/cli/report/page.c" "${PROJECT_SOURCE_DIR}/bench/bench.c")
    plsh_apply_flags(web_native)
    target_include_directories(web_native PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/src")
    target_link_libraries(web_native PRIVATE plsh_static Threads::Threads m)
    if(TARGET plsh_lm_static)
        target_link_libraries(web_native PRIVATE plsh_lm_static ${plsh_lm_libraries})
        target_compile_definitions(web_native PRIVATE PLSH_WITH_LM=1)
    endif()
    add_test(NAME web COMMAND ${PLSH_PYTHON} "${CMAKE_CURRENT_SOURCE_DIR}/web/browser.py"
        "${PROJECT_SOURCE_DIR}/build-wasm" $<TARGET_FILE:web_native> "${PLSH_SHARED_DIRECTORY}")
    set_tests_properties(web PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 900)
endif()
