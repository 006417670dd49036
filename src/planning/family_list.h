// The model families as JSON, for docs/models.md and `lockstep info --families`: keys of config.json that are read or refused, cost of the cache, what
// becomes of the numbers in their files.
//   print(families_json().dump());
#pragma once
#include "model/config_reader.h"

namespace lockstep {

// {"families": [{"model_type", "example", "read": [keys], "allowed": {key: [values]}, "cache_values_a_token", "cache_bytes_a_token": {profile: bytes},
//   "exact_under": exact_under_json}],
//  "profiles": [{"name", "description", "weights", "cache"}], "few_bits": few_bits_json, "gguf_types": gguf_types_json} (planning/file_formats.h)
// `example`: the config of shapes/configs whose cache is counted, the family's largest; null in a family without one, which has no keys here either.
// Keys that all families refuse alike are in each of them.
Json families_json();

}  // namespace lockstep
