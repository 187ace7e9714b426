/* Every kernel, for the instructions that the including file chose by LANES; it exports them as one table. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "vector.h"
#include "attention.h"
#include "rows.h"
#include "vocabulary.h"
#include "loss.h"
#include "int8.h"
