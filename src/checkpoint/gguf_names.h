// The tensors of GGUF models by architecture: llama.cpp's names and what they are in a Hugging Face folder. The one place that knows either.
// Source: gguf-py/gguf/tensor_mapping.py and convert_hf_to_gguf.py of https://github.com/ggml-org/llama.cpp. Any thread.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

struct GgufArchitecture {
  std::string_view name;        // "general.architecture", and the prefix of its keys
  std::string_view model_type;  // of config.json
  std::string_view class_name;  // transformers' class
  bool paired_rows = false;     // rows of q and k stand in pairs for llama.cpp's rope (GgufRows::paired)
  bool head_size = false;       // "attention.key_length" is the size of a head; otherwise it is embedding_length / head_count
  bool experts = false;
};
// Error unsupported, with what is known, for another name.
const GgufArchitecture& gguf_architecture(const std::string& name, const std::string& label);

// How the rows of a tensor stand in the file.
enum class GgufRows {
  as_they_are,
  paired_queries,  // of a head's D rows, row 2 i + p is Hugging Face's row p D/2 + i
  paired_keys,
  experts,  // [experts, rows, columns]: a tensor an expert
};

// Where a GGUF tensor belongs; an empty name: nowhere in this architecture.
struct GgufPlace {
  std::string name;  // Hugging Face's; of experts with {} for the expert's number
  GgufRows rows = GgufRows::as_they_are;
};
GgufPlace gguf_place(const GgufArchitecture& architecture, std::string_view name);

// Not a weight: the divisors of the rope's frequencies, which config.json has as numbers.
inline constexpr std::string_view kGgufRopeFactors = "rope_freqs.weight";
// Present where the head is not the input embedding.
inline constexpr std::string_view kGgufHead = "output.weight";

}  // namespace lockstep
