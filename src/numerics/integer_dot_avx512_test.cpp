// The sums of Avx512IntegerDot, for the test beside this file. The instruction set is switched on after the standard headers.
#include <cmath>
#include <cstring>

#include "numerics/element.h"

// The compiler's own headers begin some vectors undefined on purpose.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include "numerics/isa/intrinsics.h"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#include "numerics/integer_dot_tools.h"
#include "numerics/isa/integer_dot_avx512.h"

namespace lockstep {
template void integer_dot_test<Avx512IntegerDot<false>, Avx512Vec>(int, const std::uint8_t*, const std::int8_t*, const float*, IntegerDotResult&);
template void integer_dot_test<Avx512IntegerDot<true>, Avx512Vec>(int, const std::uint8_t*, const std::int8_t*, const float*, IntegerDotResult&);
}  // namespace lockstep
#pragma GCC pop_options

namespace lockstep {
IntegerDotTest avx512_integer_dot() { return integer_dot_test<Avx512IntegerDot<false>, Avx512Vec>; }
IntegerDotTest avx512_vnni_integer_dot() { return integer_dot_test<Avx512IntegerDot<true>, Avx512Vec>; }
}  // namespace lockstep
