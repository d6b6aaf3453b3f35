# The example programs compile against the public headers alone, and run; those in lm/ need
# libplsh_lm.
function(plsh_example source library)
    get_filename_component(name ${source} NAME_WE)
    add_executable(example_${name} ${source})
    plsh_apply_flags(example_${name})
    target_link_libraries(example_${name} PRIVATE ${library} OpenMP::OpenMP_C m)
    add_test(NAME example-${name} COMMAND example_${name})
    # Short parallel regions: waiting by spinning starves them on a busy machine.
    set_tests_properties(example-${name} PROPERTIES ENVIRONMENT "OMP_WAIT_POLICY=passive")
endfunction()

file(GLOB examples CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*.c")
foreach(source IN LISTS examples)
    plsh_example(${source} plsh_static)
endforeach()
file(GLOB examples CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/lm/*.c")
foreach(source IN LISTS examples)
    if(plsh_has_lm)
        plsh_example(${source} plsh_lm_static)
    endif()
endforeach()
