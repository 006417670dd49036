#include "kernels/kernel_parts.h"

#include "base/give_way.h"
#include "base/give_way_everywhere.h"

namespace lockstep {

std::int64_t longest_part() {
  if (gives_way_everywhere()) return 1;
  return thread_pause_point ? thread_pause_point->longest_kernel() : 0;
}

void end_of_part() {
  if (gives_way_everywhere()) overwrite_scratch();
  give_way();
}

}  // namespace lockstep
