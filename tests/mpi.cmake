# Attention over ranks of MPI: all of them on this machine, more than it has cores.
if(plsh_has_mpi)
    plsh_test_program(test_ranks mpi/test_ranks.c)
    target_link_libraries(test_ranks PRIVATE plsh_test_support plsh_mpi_static MPI::MPI_C)
    foreach(ranks 1 2 3 4 7)
        add_test(NAME mpi-ranks-${ranks} COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/mpi/mpirun.sh"
            ${ranks} $<TARGET_FILE:test_ranks>)
        set_tests_properties(mpi-ranks-${ranks} PROPERTIES LABELS mpi SKIP_RETURN_CODE 77
            TIMEOUT 300 ENVIRONMENT PLSH_THREADS=1)
    endforeach()
    add_test(NAME mpi-hosts COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/mpi/hosts.sh"
        $<TARGET_FILE:test_ranks>)
    if(PLSH_BUILD_CLI)
        add_test(NAME mpi-program COMMAND ${PLSH_PYTHON}
            "${CMAKE_CURRENT_SOURCE_DIR}/mpi/program_test.py" $<TARGET_FILE:plsh>
            $<TARGET_FILE:plsh-mpi> "${CMAKE_CURRENT_SOURCE_DIR}/mpi/mpirun.sh")
        set_tests_properties(mpi-program PROPERTIES LABELS mpi TIMEOUT 300)
        # The bytes in plsh_mpi_stats are those given to MPI (counted by wrappers of its calls).
        foreach(method exact window dense)
            add_test(NAME mpi-bytes-${method} COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/mpi/mpirun.sh" 3
                $<TARGET_FILE:plsh-bench-ranks> ${method} 1000 3 16 backward 1)
            set_tests_properties(mpi-bytes-${method} PROPERTIES LABELS mpi TIMEOUT 100
                PASS_REGULAR_EXPRESSION "\tyes\t")
        endforeach()
    endif()
    set_tests_properties(mpi-hosts PROPERTIES LABELS mpi SKIP_RETURN_CODE 77 TIMEOUT 300)
    # Models over ranks, in the tests' own program.
    if(plsh_has_lm)
        plsh_test_program(test_lm mpi/test_lm.c)
        target_link_libraries(test_lm PRIVATE plsh_lm_static plsh_mpi_static MPI::MPI_C)
        set(model "${CMAKE_CURRENT_BINARY_DIR}/mpi-model")
        add_test(NAME mpi-model COMMAND ${PLSH_PYTHON}
            "${CMAKE_CURRENT_SOURCE_DIR}/support/write_model.py" "${model}")
        set_tests_properties(mpi-model PROPERTIES LABELS mpi FIXTURES_SETUP mpi_model)
        foreach(ranks 1 2 3 4 7)
            add_test(NAME mpi-lm-${ranks} COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/mpi/mpirun.sh"
                ${ranks} $<TARGET_FILE:test_lm> "${model}")
            set_tests_properties(mpi-lm-${ranks} PROPERTIES LABELS mpi SKIP_RETURN_CODE 77
                TIMEOUT 300 ENVIRONMENT PLSH_THREADS=1 FIXTURES_REQUIRED mpi_model)
        endforeach()
    endif()
    # The same by the program: files, figures, checkpoints, ranks that are killed.
    if(plsh_has_lm AND PLSH_BUILD_CLI)
        foreach(what 1 2 3 4 7 resume kill stop disagree)
            add_test(NAME mpi-models-${what} COMMAND ${PLSH_PYTHON}
                "${CMAKE_CURRENT_SOURCE_DIR}/mpi/models_test.py"
                "${CMAKE_CURRENT_SOURCE_DIR}/mpi/mpirun.sh" "$<TARGET_FILE:plsh>"
                "$<TARGET_FILE:plsh-mpi>" "${CMAKE_CURRENT_SOURCE_DIR}/support/write_model.py" ${what})
            set_tests_properties(mpi-models-${what} PROPERTIES LABELS mpi SKIP_RETURN_CODE 77
                TIMEOUT 300 ENVIRONMENT PLSH_THREADS=1)
        endforeach()
        foreach(what hosts cut)
            add_test(NAME mpi-models-${what} COMMAND ${PLSH_PYTHON}
                "${CMAKE_CURRENT_SOURCE_DIR}/mpi/models_test.py"
                "${CMAKE_CURRENT_SOURCE_DIR}/mpi/hosts.sh" "$<TARGET_FILE:plsh>"
                "$<TARGET_FILE:plsh-mpi>" "${CMAKE_CURRENT_SOURCE_DIR}/support/write_model.py" ${what})
            set_tests_properties(mpi-models-${what} PROPERTIES LABELS mpi SKIP_RETURN_CODE 77 TIMEOUT 300)
        endforeach()
    endif()
else()
    add_test(NAME mpi COMMAND ${CMAKE_COMMAND} -E echo "skipped: no MPI was found (openmpi-bin libopenmpi-dev)")
    set_tests_properties(mpi PROPERTIES LABELS mpi SKIP_REGULAR_EXPRESSION "skipped: ")
endif()
