// Apart from the rest of TrainingCall: it asks the service, which programs that only decode (tests/fuzz) do not have.
#include "api/errors.h"
#include "api/tinker/wire.h"
#include "host/training_service.h"

namespace lockstep {

TrainingJson TrainingCall::metadata_field(const TrainingJson& json, const std::string& name) const {
  TrainingJson value = object_field(json, name);
  try {
    service.metadata().check(name, KeptJson(value));
  } catch (const Error& e) {
    throw RequestError(e.code(), name, e.message(), 422);
  }
  return value;
}

}  // namespace lockstep
