// Sampling fields of vLLM's and llama.cpp's servers that nothing here answers to, each with the values at which it changes nothing. A client
// that spells out those defaults is served; any other value is refused by name. Any thread.
//   add_no_op_fields(fields);
#pragma once
#include "api/json_fields.h"

namespace lockstep {

void add_no_op_fields(JsonFields& fields);

}  // namespace lockstep
