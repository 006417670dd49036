// Makes config.json and generation_config.json from the metadata of a GGUF file. Knows no tokenizer and no name of a tensor. Pure functions.
//   const Json config = gguf_config(file);
#pragma once
#include "checkpoint/gguf_file.h"
#include "model/archs/gguf_names.h"
#include "model/config_reader.h"

namespace lockstep {

// By "general.architecture". Error unsupported, with the known ones, for another.
const GgufArchitecture& gguf_architecture(const GgufFile& file);
// Key names are transformers'; "dtype" is float32. Errors: corrupt_file with the key of the metadata; unsupported for an architecture that is
// not known, a rope that config.json cannot say, or a llama with experts.
Json gguf_config(const GgufFile& file);
Json gguf_generation_config(const GgufFile& file);

}  // namespace lockstep
