#include "serving/model_deployment.h"

namespace lockstep {

std::int64_t DeploymentRoom::bytes() const {
  std::int64_t all = weights ? weights->own_bytes() : 0;
  for (const MemoryLedger::Claim& claim : claims) all += claim.bytes();
  return all;
}

}  // namespace lockstep
