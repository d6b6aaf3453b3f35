# Models: many short parallel regions; waiting by spinning starves them on a busy machine.
if(plsh_has_lm)
    set_tests_properties(families session gradients PROPERTIES ENVIRONMENT "OMP_WAIT_POLICY=passive")
endif()
