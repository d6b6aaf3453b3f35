# The backward pass against the reference data and the double oracle.
plsh_test(backward attention/test_backward.c problem.c oracle.c golden.c gradients.c)
