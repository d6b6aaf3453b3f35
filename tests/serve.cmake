# plsh serve, as its clients see it.
if(plsh_has_serve)
    find_program(PLSH_PYTHON python3 REQUIRED)
    foreach(part encoder generator limits)
        add_test(NAME serve-${part} COMMAND ${PLSH_PYTHON} "${CMAKE_CURRENT_SOURCE_DIR}/serve/routes.py"
            "$<TARGET_FILE:plsh>" ${part})
        set_tests_properties(serve-${part} PROPERTIES TIMEOUT 600)
    endforeach()
    add_test(NAME serve-load COMMAND ${PLSH_PYTHON} "${CMAKE_CURRENT_SOURCE_DIR}/serve/load.py"
        "$<TARGET_FILE:plsh>" --requests 300)
    set_tests_properties(serve-load PROPERTIES TIMEOUT 600)
    if(NOT PLSH_SANITIZE)
        add_test(NAME serve-clients COMMAND ${PLSH_PYTHON} "${CMAKE_CURRENT_SOURCE_DIR}/serve/clients.py"
            "$<TARGET_FILE:plsh>")
        set_tests_properties(serve-clients PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
        add_test(NAME serve-browser COMMAND ${PLSH_PYTHON} "${CMAKE_CURRENT_SOURCE_DIR}/serve/browser.py"
            "$<TARGET_FILE:plsh>")
        set_tests_properties(serve-browser PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
    endif()
endif()
