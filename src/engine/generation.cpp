#include "engine/generation.h"

namespace lockstep {

std::string_view finish_reason_name(FinishReason reason) {
  constexpr std::string_view names[] = {"none", "stop", "length", "cancelled", "error"};
  return names[static_cast<int>(reason)];
}

}  // namespace lockstep
