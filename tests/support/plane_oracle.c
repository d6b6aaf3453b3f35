/* tests: attention with positions that are points, in double and in float. */
#include "support/plane_oracle.h"

#include <math.h>
#include <stdlib.h>

#include "support/oracle.h"

#define REAL double
#define NAME(x) double_##x
#include "support/plane_template.h"
#undef REAL
#undef NAME

#define REAL float
#define NAME(x) float_##x
#include "support/plane_template.h"
