# The example programs compile against the public headers alone, and run; those in lm/ need
# libplsh_lm.
function(plsh_example source library)
    get_filename_component(name ${source} NAME_WE)
    add_executable(example_${name} ${source})
    plsh_apply_flags(example_${name})
    target_link_libraries(example_${name} PRIVATE ${library} Threads::Threads m)
    add_test(NAME example-${name} COMMAND example_${name} ${ARGN})
endfunction()

file(GLOB examples CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*.c")
foreach(source IN LISTS examples)
    plsh_example(${source} plsh_static)
endforeach()
if(plsh_has_lm)
    # Models of random weights to run them on.
    set(models "${CMAKE_CURRENT_BINARY_DIR}/models")
    find_program(PLSH_PYTHON python3 REQUIRED)
    add_test(NAME example-models COMMAND bash -c "${PLSH_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/support/write_model.py ${models}/llama && ${PLSH_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/support/write_model.py ${models}/bert bert")
    set_tests_properties(example-models PROPERTIES FIXTURES_SETUP example_models)
    plsh_example("${PROJECT_SOURCE_DIR}/examples/lm/tokenize.c" plsh_lm_static)
    plsh_example("${PROJECT_SOURCE_DIR}/examples/lm/generate.c" plsh_lm_static
        ${models}/llama "Once upon a time" 8)
    plsh_example("${PROJECT_SOURCE_DIR}/examples/lm/embed.c" plsh_lm_static
        ${models}/bert "a cat on a mat" "a feline on a rug")
    set_tests_properties(example-generate example-embed PROPERTIES FIXTURES_REQUIRED example_models)
endif()
