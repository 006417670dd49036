// The config.json and generation_config.json that the metadata of a GGUF stand for. Knows no tokenizer. Pure functions.
//   const Json config = gguf_config(file);
#pragma once
#include "checkpoint/gguf_file.h"
#include "checkpoint/gguf_names.h"
#include "model/config_reader.h"

namespace lockstep {

// Key names are transformers'; "dtype" is float32. Errors: corrupt_file with the key of the metadata; unsupported for an architecture that is
// not known, a rope that config.json cannot say, or a llama with experts.
Json gguf_config(const GgufFile& file);
Json gguf_generation_config(const GgufFile& file);

}  // namespace lockstep
