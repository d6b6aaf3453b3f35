# Training: runs that are killed and resumed.
if(plsh_has_lm AND PLSH_BUILD_CLI)
    find_program(PLSH_PYTHON python3 REQUIRED)
    add_test(NAME train-killed COMMAND ${PLSH_PYTHON} "${CMAKE_CURRENT_SOURCE_DIR}/train/kill_test.py"
        "$<TARGET_FILE:plsh>" "${CMAKE_CURRENT_SOURCE_DIR}/support/write_model.py")
    set_tests_properties(train-killed PROPERTIES TIMEOUT 300)
    # Every call that changes a file fails in turn, or the process is killed there; a few of them in the
    # suite, all with --all. Sanitizers have their own calls before all others.
    if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT PLSH_SANITIZE)
        add_library(plsh_fault MODULE train/fault.c)
        target_compile_definitions(plsh_fault PRIVATE _GNU_SOURCE)
        set_target_properties(plsh_fault PROPERTIES C_VISIBILITY_PRESET default)
        target_link_libraries(plsh_fault PRIVATE ${CMAKE_DL_LIBS})
        add_test(NAME train-faults COMMAND ${PLSH_PYTHON} "${CMAKE_CURRENT_SOURCE_DIR}/train/fault_test.py"
            "$<TARGET_FILE:plsh>" "$<TARGET_FILE:plsh_fault>" "${CMAKE_CURRENT_SOURCE_DIR}/support/write_model.py")
        set_tests_properties(train-faults PROPERTIES TIMEOUT 600)
    endif()
    # The scripts of the tables, a few short steps each.
    foreach(experiment table-scratch table-protocol table-lora streaming full-scale bfloat-training) # sanitizers see the same code in other tests
        add_test(NAME experiment-${experiment} COMMAND
            "${PROJECT_SOURCE_DIR}/experiments/${experiment}/run" --tiny "$<TARGET_FILE:plsh>")
        set_tests_properties(experiment-${experiment} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300
            ENVIRONMENT "PLSH_SHARED=${PLSH_SHARED_DIRECTORY}" LABELS "statistics;serial")
    endforeach()
    set_tests_properties(experiment-streaming PROPERTIES DEPENDS experiment-table-lora)
    # What is written of their runs follows from them.
    foreach(experiment table-scratch table-protocol table-lora)
        add_test(NAME written-${experiment} COMMAND ${PLSH_PYTHON} "${PROJECT_SOURCE_DIR}/experiments/compare.py"
            --check "${PROJECT_SOURCE_DIR}/experiments/${experiment}")
    endforeach()
    add_test(NAME written-factors COMMAND ${PLSH_PYTHON} "${PROJECT_SOURCE_DIR}/experiments/table-protocol/factors.py" --check)
endif()
