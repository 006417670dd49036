// Reads how positions rotate: `rope_parameters` as transformers 5 writes it, or `rope_theta` and `rope_scaling` of older files.
#pragma once
#include "model/config_reader.h"
#include "model/rope_table.h"

namespace lockstep {

// `rotary` columns a head, of which `half` names the pairing. Types other than `allowed` ("default", "linear", "llama3", "yarn") are
// refused. Throws invalid_argument naming the key.
RopeSpec read_rope(const ConfigReader& config, std::int64_t rotary, bool half, std::int64_t max_positions,
                   const std::vector<std::string>& allowed);

}  // namespace lockstep
