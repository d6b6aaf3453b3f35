/* model: limits of the functions that become vector code. */
#include "model/rowmath.h"

const float plsh_rowmath_limits[2] = {-87.0f, 88.0f};
