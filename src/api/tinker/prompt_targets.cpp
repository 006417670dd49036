#include "api/tinker/prompt_targets.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "api/tinker/wire_fields.h"
#include "host/sampling_request.h"

namespace lockstep {
namespace {
const std::string kTargetField = "target_prompt_logprobs";

std::vector<std::int64_t> whole_numbers(const TrainingJson& json, const std::string& name) {
  const std::string field = kTargetField + "." + name;
  if (!json.contains(name) || !json[name].is_array()) fail_value(field, "is missing, or no list");
  std::vector<std::int64_t> values;
  values.reserve(json[name].size());
  for (const TrainingJson& one : json[name]) {
    if (!one.is_number_integer() || (one.is_number_unsigned() && one.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)))
      fail_value(field, fmt::format("holds {}, allowed are whole numbers from -2^63 to 2^63 - 1", describe_json(one)));
    values.push_back(one.get<std::int64_t>());
  }
  return values;
}

std::int32_t target_id(std::int64_t value) {
  if (value < -1 || value > INT32_MAX) fail_value(kTargetField + ".data", fmt::format("holds {}, allowed are token ids, and -1 for none", value));
  return static_cast<std::int32_t>(value);
}
}  // namespace

PromptTargets decode_prompt_targets(const TrainingJson& json, std::size_t prompt_tokens, std::int64_t max_positions) {
  if (!json.is_object()) fail_value(kTargetField, "is no object");
  if (const std::string dtype = text_field(json, "dtype", "int64"); dtype != "int64")
    fail_value(kTargetField + ".dtype", fmt::format("is '{}', allowed is int64", dtype.substr(0, 40)));
  PromptTargets out;
  const std::vector<std::int64_t> data = whole_numbers(json, "data");
  out.shape = whole_numbers(json, "shape");
  const std::int64_t rows = static_cast<std::int64_t>(prompt_tokens) - 1;
  if (rows + 1 > max_positions) fail_value("prompt", fmt::format("has {} tokens, allowed are 1 to {}", prompt_tokens, max_positions));
  if (rows < 0 || out.shape.size() != 2 || out.shape[0] != rows || out.shape[1] < 0)
    fail_value(kTargetField + ".shape", fmt::format("is [{}], allowed is [{}, K], one row a prompt token after the first", fmt::join(out.shape, ", "), rows));
  out.sparse = json.contains("sparse_crow_indices") && !json["sparse_crow_indices"].is_null();
  if (!out.sparse && is_given(json, "sparse_col_indices"))
    fail_value(kTargetField + ".sparse_col_indices", "is given without sparse_crow_indices, allowed are both or none");
  const auto cells = static_cast<std::int64_t>(data.size());
  if (out.sparse) {
    out.row_begin = whole_numbers(json, "sparse_crow_indices");
    out.column = whole_numbers(json, "sparse_col_indices");
    bool right = static_cast<std::int64_t>(out.row_begin.size()) == rows + 1 && static_cast<std::int64_t>(out.column.size()) == cells &&
                 out.row_begin.front() == 0 && out.row_begin.back() == cells;
    right = right && std::is_sorted(out.row_begin.begin(), out.row_begin.end());
    right = right && std::all_of(out.column.begin(), out.column.end(), [&](std::int64_t c) { return c >= 0 && c < out.shape[1]; });
    if (!right)
      fail_value(kTargetField, fmt::format("has {} crow_indices, {} col_indices and {} values, which make no matrix of {} rows and {} columns",
                                           out.row_begin.size(), out.column.size(), cells, rows, out.shape[1]));
    for (std::int64_t r = 0; r < rows; ++r)
      out.per_row = std::max(out.per_row, out.row_begin[static_cast<std::size_t>(r) + 1] - out.row_begin[static_cast<std::size_t>(r)]);
  } else {
    out.per_row = out.shape[1];
    if (rows > 0 && out.per_row > cells / rows) fail_value(kTargetField, fmt::format("has {} values and shape [{}]", cells, fmt::join(out.shape, ", ")));
    if (rows * out.per_row != cells) fail_value(kTargetField, fmt::format("has {} values and shape [{}]", cells, fmt::join(out.shape, ", ")));
  }
  if (out.per_row > SamplingRequest::kMaxPromptTargets)
    fail_value(kTargetField, fmt::format("has {} tokens in a row, allowed are at most {}", out.per_row, SamplingRequest::kMaxPromptTargets));
  out.ids.assign(static_cast<std::size_t>(rows * out.per_row), -1);
  if (!out.sparse) {
    std::transform(data.begin(), data.end(), out.ids.begin(), target_id);
    return out;
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t begin = out.row_begin[static_cast<std::size_t>(r)], end = out.row_begin[static_cast<std::size_t>(r) + 1];
    for (std::int64_t i = begin; i < end; ++i) out.ids[static_cast<std::size_t>(r * out.per_row + i - begin)] = target_id(data[static_cast<std::size_t>(i)]);
  }
  return out;
}

}  // namespace lockstep
