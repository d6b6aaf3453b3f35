# The forward pass against double and the reference data, once per instruction set.
target_sources(test_forward PRIVATE problem.c oracle.c golden.c)
foreach(isa avx512 avx2 wide reference)
    add_test(NAME forward_${isa} COMMAND test_forward)
    set_tests_properties(forward_${isa} PROPERTIES ENVIRONMENT "PLSH_ISA=${isa}"
                         SKIP_RETURN_CODE 77 TIMEOUT 600)
endforeach()
