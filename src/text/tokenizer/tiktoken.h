// Reads rank files of tiktoken (lines of base64 and a rank), and supplies what the model families that ship them keep in Python code: the
// splitting pattern and the special tokens.
//   const auto settings = tiktoken_settings(ranks, config); Tokenizer::from_tiktoken(text, settings);
// Knows no merging. Thread-safe (pure functions).
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace lockstep {

// Bytes and rank of every line. corrupt_file names the line.
std::vector<std::pair<std::string, std::int32_t>> read_ranks(std::string_view text);

// By "tokenizer_class" of tokenizer_config.json (`config`, null when there is none): QWenTokenizer, TikTokenTokenizer (Kimi),
// ChatGLM4Tokenizer; without one, Llama 3 and 4 by their number of ranks. unsupported for anything else.
TiktokenSettings tiktoken_settings(const std::vector<std::pair<std::string, std::int32_t>>& ranks, const nlohmann::json& config);

}  // namespace lockstep
