// target_prompt_logprobs of a sample: token ids to score at each prompt position after the first, as a matrix [n - 1, K], dense or sparse (compressed
// rows). The answer has the same shape and layout; cells without a token (-1, or not listed) are 0. Pure functions.
//   const PromptTargets targets = decode_prompt_targets(json["target_prompt_logprobs"], prompt.size(), max_positions);
#pragma once
#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct PromptTargets {
  std::vector<std::int64_t> shape;  // [n - 1, K]
  bool sparse = false;
  std::vector<std::int64_t> row_begin, column;  // of a sparse one, as the client sent them
  // For the engine: [n - 1, per_row], -1 for a cell without a token. For a sparse matrix a row has its listed cells, one after another.
  std::vector<std::int32_t> ids;
  std::int64_t per_row = 0;

  // Converts values in the layout of `ids` to the layout that the client sent.
  std::vector<float> as_it_came(const std::vector<float>& logprobs) const {
    if (!sparse) return logprobs;
    std::vector<float> values;
    for (std::size_t r = 0; r + 1 < row_begin.size(); ++r) {
      const auto first = logprobs.begin() + static_cast<std::ptrdiff_t>(r) * per_row;
      values.insert(values.end(), first, first + (row_begin[r + 1] - row_begin[r]));
    }
    return values;
  }
};

// RequestErrors that name the field: a shape that does not fit `prompt_tokens`, another dtype, indices outside the matrix, more cells than the
// engine takes.
PromptTargets decode_prompt_targets(const nlohmann::ordered_json& json, std::size_t prompt_tokens, std::int64_t max_positions);

}  // namespace lockstep
