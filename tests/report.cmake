# The page of plsh report, in a browser.
if(PLSH_BUILD_CLI AND NOT PLSH_SANITIZE)
    find_program(PLSH_PYTHON python3 REQUIRED)
    add_test(NAME report-browser COMMAND ${PLSH_PYTHON} "${CMAKE_CURRENT_SOURCE_DIR}/report/browser.py"
        "$<TARGET_FILE:plsh>")
    set_tests_properties(report-browser PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
endif()

# What the tables of trained models are compared by.
find_program(PLSH_PYTHON python3)
if(PLSH_PYTHON AND NOT PLSH_SANITIZE)
    add_test(NAME experiments-compare COMMAND ${PLSH_PYTHON}
        "${CMAKE_CURRENT_SOURCE_DIR}/report/compare_test.py")
endif()
