# Decoding: the tests that share the cases of cache_cases.c.
foreach(test test_cache test_cache_file)
    target_sources(${test} PRIVATE cache_cases.c)
endforeach()

# Many short parallel regions: waiting by spinning starves them on a busy machine.
set_tests_properties(cache cache_file PROPERTIES ENVIRONMENT "OMP_WAIT_POLICY=passive")
