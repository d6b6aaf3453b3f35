# The tests that compare with attention in double precision.
foreach(name sampled certificate auto)
    target_sources(test_${name} PRIVATE oracle.c)
endforeach()
