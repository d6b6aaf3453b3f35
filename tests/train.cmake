# Training: runs that are killed and resumed.
if(plsh_has_lm AND PLSH_BUILD_CLI)
    find_program(PLSH_PYTHON python3 REQUIRED)
    add_test(NAME train-killed COMMAND ${PLSH_PYTHON} "${CMAKE_CURRENT_SOURCE_DIR}/train/kill_test.py"
        "$<TARGET_FILE:plsh>" "${CMAKE_CURRENT_SOURCE_DIR}/support/write_model.py")
    set_tests_properties(train-killed PROPERTIES TIMEOUT 300)
endif()
