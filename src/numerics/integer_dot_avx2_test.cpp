#include "numerics/isa/integer_dot_avx2.h"
#include "numerics/integer_dot_tools.h"

namespace lockstep {
IntegerDotTest avx2_integer_dot() { return integer_dot_test<Avx2IntegerDot, Avx2Vec>; }
}  // namespace lockstep
