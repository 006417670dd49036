#include "http/prompt_thread.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace lockstep {

void prefer_prompt_wakeups() {
  // The kernel's sched_attr, first version. Its header and the C library's do not go together.
  struct {
    std::uint32_t size = 48, policy = 0;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 0, deadline = 0, period = 0;
  } attributes;
  static_assert(sizeof attributes == 48);
  // Since Linux 6.12 a thread of the ordinary kind may say how long a slice it wants: one that asks for less goes first.
  constexpr std::uint64_t kSliceNanoseconds = 500'000;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0 || attributes.policy != SCHED_OTHER) return;
  attributes.runtime = kSliceNanoseconds;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace lockstep
