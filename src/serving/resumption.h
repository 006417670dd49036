// How a request that is held goes on (GenerationService::resume), or that it stays or ends. Plain values.
//   return Resumption{.kind = Resumption::Kind::goes_on, .next = request};
#pragma once
#include <string>

#include "engine/request.h"

namespace lockstep {

struct Resumption {
  enum class Kind { stays, goes_on, ends };
  Kind kind = Kind::stays;
  Request next = {};                         // of goes_on
  FinishReason finish = FinishReason::stop;  // of ends
  std::string error = {};                    // beside it
  bool rolled_back = false;                  // for counts
  std::size_t put_in = 0;                    // the same
};

}  // namespace lockstep
