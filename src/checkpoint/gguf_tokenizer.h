// Converts the tokenizer in a GGUF's metadata to tokenizer.json and tokenizer_config.json: byte-level BPE by "tokenizer.ggml.pre" (model `gpt2`), and
// SentencePiece's BPE by scores (model `llama`). Pure functions.
//   const Tokenizer tokenizer = Tokenizer::from_json(gguf_tokenizer(file));
#pragma once
#include <optional>
#include <string>

#include "checkpoint/gguf_file.h"
#include "model/config_reader.h"

namespace lockstep {

bool has_gguf_tokenizer(const GgufFile& file);
// The text of tokenizer.json. Errors: unsupported with the name for another model or `pre`; corrupt_file; resource_exhausted for tokens so
// long that merges cannot be found in bounded time.
std::string gguf_tokenizer(const GgufFile& file);
// Special tokens by their roles, and the chat template. Errors: corrupt_file for an id that no token has.
Json gguf_tokenizer_config(const GgufFile& file);
// None where there is none, and where there are several by name: those stand in tokenizer_config.json.
std::optional<std::string> gguf_chat_template(const GgufFile& file);

}  // namespace lockstep
