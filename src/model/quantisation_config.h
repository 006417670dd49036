// What `quantization_config` of a config.json may say: the formats of few bits whose tensors the reader of model folders decodes
// (checkpoint/stored_tensor.h). How each tensor is stored, its dtype and its neighbours say; the config only refuses what is computed otherwise.
//   {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 4, ...}}}}
#pragma once
#include "model/config_reader.h"

namespace lockstep {

// Errors: invalid_argument or unsupported with the key, its value and what is allowed. A config without the key is allowed.
void check_quantisation(const ConfigReader& config);

}  // namespace lockstep
