// The model families as JSON, for docs/models.md and `lockstep info --families`: keys of config.json that are read or refused, cost of the cache.
//   print(families_json().dump());
#pragma once
#include "model/config_reader.h"

namespace lockstep {

// {"families": [{"model_type", "example", "read": [keys], "allowed": {key: [values]}, "cache_values_a_token", "cache_bytes_a_token": {profile: bytes}}],
//  "profiles": [{"name", "description", "weights", "cache"}], "tensor_types": {"safetensors": [..], "gguf": [..]}}
// `example`: the config of shapes/configs whose cache is counted, the family's largest; absent in a family without one, as are its keys then.
// Keys that all families refuse alike are in each of them.
Json families_json();

}  // namespace lockstep
