// The tokens in a GGUF's metadata, and the BPE merges that SentencePiece's scores imply. Pure functions.
//   const GgufVocabulary vocabulary = read_gguf_vocabulary(file, true); vocabulary.id_of(file, "eos_token_id");
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/gguf_file.h"
#include "model/config_reader.h"

namespace lockstep {

// "tokenizer.ggml.token_type".
enum class GgufTokenKind : std::int32_t { normal = 1, unknown, control, user_defined, unused, byte };

struct GgufVocabulary {
  std::vector<std::string> tokens;  // by id, each text once
  std::vector<GgufTokenKind> kinds;
  bool byte_level = false;

  // Whether a token only fills an id that the model's own tokenizer does not have (llama.cpp calls it "[PAD151936]").
  bool filler(std::size_t id) const { return kinds[id] == GgufTokenKind::unused && tokens[id].starts_with("[PAD"); }
  // The id that the metadata have under "tokenizer.ggml." + key. Error corrupt_file where there is none, or no token of it.
  std::int32_t id_of(const GgufFile& file, const std::string& key) const;
};
// Errors: corrupt_file.
GgufVocabulary read_gguf_vocabulary(const GgufFile& file, bool byte_level);

// Pairs [left, right], the first to be merged first: every way to cut a token into two tokens, tokens by falling score, as transformers'
// generate_merges orders them. Errors: corrupt_file; resource_exhausted for too many long tokens.
Json merges_by_score(const GgufFile& file, const GgufVocabulary& vocabulary);

}  // namespace lockstep
