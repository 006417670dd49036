// The fields of a request whose answer is held on the way (docs/openai-api.md): `hold`, and `attempt`, which chooses the random numbers. Any thread.
//   add_hold_fields(fields, &sampling); fields.read(json); check_hold_fields(sampling, prompts);
#pragma once
#include "api/openai/sampling_fields.h"

namespace lockstep {

void add_hold_fields(JsonFields& fields, SamplingFields* s);
// Checks that concern several fields together. Throws RequestError.
void check_hold_fields(const SamplingFields& s, std::size_t prompts);

}  // namespace lockstep
