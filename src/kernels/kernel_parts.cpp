#include "kernels/kernel_parts.h"

#include "base/give_way.h"

namespace lockstep {

std::int64_t longest_part() { return thread_pause_point ? thread_pause_point->longest_kernel() : 0; }
void end_of_part() { give_way(); }

}  // namespace lockstep
