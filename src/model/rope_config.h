// Reads the RoPE settings of a config: `rope_parameters` as transformers 5 writes it, or `rope_theta` and `rope_scaling` of older files.
//   const RopeSpec spec = read_rope(reader, 64, true, 131072, {"default", "linear", "llama3", "yarn"});
#pragma once
#include "model/config_reader.h"
#include "model/rope_table.h"

namespace lockstep {

// All `size` columns of a head rotate, or, with `part`, the fraction that 'partial_rotary_factor' says (`part` is its default). `half`: how columns
// pair (RopeSpec). `theta`: default of 'rope_theta'. Types other than `allowed` ("default", "linear", "llama3", "yarn") are refused. Throws
// invalid_argument naming the key.
RopeSpec read_rope(const ConfigReader& config, std::int64_t size, bool half, std::int64_t max_positions, const std::vector<std::string>& allowed,
                   const std::optional<double>& part = {}, double theta = 10000.0);

}  // namespace lockstep
