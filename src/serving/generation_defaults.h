// The sampling defaults of a model for requests that leave them out, read from generation_config.json as its authors wrote it for transformers.
// Example: {"temperature": 0.6, "top_k": 20, "eos_token_id": [151645, 151643]}. Pure functions.
//   GenerationDefaults defaults = read_generation_defaults(*open_folder_files("models/qwen3")); defaults.temperature.value_or(1)
#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <vector>

#include "base/folder_files.h"

namespace lockstep {

// Without a file: chats use these values, everything else the model's own distribution.
inline constexpr float kTalkTemperature = 0.7f, kTalkTopP = 0.9f;

// The file's values; none where it has none.
struct GenerationDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;  // do_sample false is temperature 0
  std::optional<std::int32_t> top_k;                                                                        // 0: all
  std::vector<std::int32_t> end_tokens;                                                                     // each ends a turn
  bool says_sampling() const { return temperature || top_p || min_p || repetition_penalty || presence_penalty || frequency_penalty || top_k; }
};

// Nothing where there is no such file. Error corrupt_file: a value that transformers would not sample with; it names the way around.
GenerationDefaults read_generation_defaults(const FolderFiles& files);
// {"temperature": 0.6, ...}: what is said, and nothing else.
nlohmann::ordered_json to_json(const GenerationDefaults& defaults);

}  // namespace lockstep
