# Transcripts of the command line: tests/cli/<name>.test is the test cli-<name>.
if(PLSH_BUILD_CLI)
    find_program(PLSH_PYTHON python3 REQUIRED)
    file(GLOB transcripts CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/cli/*.test")
    foreach(transcript IN LISTS transcripts)
        get_filename_component(name ${transcript} NAME_WE)
        add_test(NAME cli-${name} COMMAND ${PLSH_PYTHON} "${CMAKE_CURRENT_SOURCE_DIR}/cli/run"
            "${transcript}" "${PROJECT_BINARY_DIR}")
    endforeach()
    # The guide's commands run as they stand.
    add_test(NAME cli-guide COMMAND ${PLSH_PYTHON} "${CMAKE_CURRENT_SOURCE_DIR}/cli/run"
        "${PROJECT_SOURCE_DIR}/docs/guide.md" "${PROJECT_BINARY_DIR}")
endif()
