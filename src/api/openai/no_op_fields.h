// Sampling fields of vLLM's and llama.cpp's servers that have no counterpart here, each with the values that mean "no effect". A client that sends
// those defaults is served; any other value is refused by name. Any thread.
//   add_no_op_fields(fields);
#pragma once
#include "api/json_fields.h"

namespace lockstep {

void add_no_op_fields(JsonFields& fields);

}  // namespace lockstep
