// How llama.cpp names the families' tensors in GGUF files: "blk.0.attn_q.weight" of architecture "llama" is Hugging Face's
// "model.layers.0.self_attn.q_proj.weight". The one place that knows these names; checkpoint/ reads the files by them. Any thread.
// Source: gguf-py/gguf/tensor_mapping.py and convert_hf_to_gguf.py of https://github.com/ggml-org/llama.cpp.
//   const GgufPlace place = gguf_place(gguf_architectures()[0], "blk.0.attn_q.weight"); place.rows == GgufRows::paired_queries;
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

struct GgufArchitecture {
  std::string_view name;        // "general.architecture", and the prefix of its keys
  std::string_view model_type;  // of config.json
  std::string_view class_name;  // transformers' class
  bool paired_rows = false;     // rows of q and k are stored in pairs for llama.cpp's rope (GgufRows::paired_queries)
  bool head_size = false;       // "attention.key_length" is the size of a head; otherwise it is embedding_length / head_count
  bool experts = false;         // every layer has routed experts
  bool attention_bias = true;   // config.json has the key attention_bias (false)
  bool mlp_bias = false;        // config.json has the key mlp_bias (false)
};
std::span<const GgufArchitecture> gguf_architectures();

// How the rows of a tensor stand in the file.
enum class GgufRows {
  as_they_are,
  paired_queries,  // of a head's D rows, row 2 i + p is Hugging Face's row p D/2 + i
  paired_keys,
  experts,  // [experts, rows, columns]: a tensor an expert
};

// The Hugging Face tensor that a GGUF tensor is; an empty name: the architecture has none for it.
struct GgufPlace {
  std::string name;  // of experts with {} for the expert's number
  GgufRows rows = GgufRows::as_they_are;
};
GgufPlace gguf_place(const GgufArchitecture& architecture, std::string_view name);

// Not a weight: the divisors of the rope's frequencies, which config.json has as numbers.
inline constexpr std::string_view kGgufRopeFactors = "rope_freqs.weight";
// [vocabulary, hidden].
inline constexpr std::string_view kGgufEmbedding = "token_embd.weight";
// Present where the head is not the input embedding.
inline constexpr std::string_view kGgufHead = "output.weight";

}  // namespace lockstep
