# Attention: the forward tests once per instruction set, the kernels, and what the caches need.

foreach(isa avx512 avx2 wide reference)
    add_test(NAME forward_${isa} COMMAND test_forward)
    set_tests_properties(forward_${isa} PROPERTIES ENVIRONMENT "PLSH_ISA=${isa}"
                         SKIP_RETURN_CODE 77 TIMEOUT 600)
endforeach()

# Many short parallel regions: waiting by spinning starves them on a busy machine.
set_tests_properties(cache cache_file PROPERTIES ENVIRONMENT "OMP_WAIT_POLICY=passive")
