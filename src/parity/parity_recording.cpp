#include "parity/parity_recording.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "base/error.h"
#include "base/hash.h"
#include "model/context.h"

namespace lockstep {

int layer_of_parameter(std::string_view name) {
  constexpr std::string_view kMark = "layers.";
  const std::size_t at = name.find(kMark);
  int layer = -1;
  if (at != std::string_view::npos) std::from_chars(name.data() + at + kMark.size(), name.data() + name.size(), layer);
  return layer;
}

OperationRecording::OperationRecording(std::vector<std::int32_t> tokens, const OperationRecording* expected, int keep)
    : tokens_(std::move(tokens)), expected_(expected), keep_(keep), computed_(tokens_.size()) {}

void OperationRecording::begin_forward(Backend& backend, const Batch& batch) {
  backend_ = &backend;
  const Rows& rows = batch.rows();
  const auto read = [&](const View& v) { return backend_->stream().read_ints(v).get(); };
  const std::vector<std::int32_t> token = read(rows.token), position = read(rows.position), sequence = read(rows.sequence), table = read(rows.page_table);
  const auto slot_of = [&](std::size_t row, std::int64_t at) {
    const std::int64_t page = table[static_cast<std::size_t>(table[static_cast<std::size_t>(sequence[row])] + at / rows.page_size)];
    return static_cast<std::size_t>(page * rows.page_size + at % rows.page_size);
  };
  for (std::size_t row = 0; row < token.size(); ++row) {
    const std::size_t slot = slot_of(row, position[row]);
    if (slot >= slot_token_.size()) slot_token_.resize(slot + 1, -1);
    slot_token_[slot] = token[row];
  }
  mine_.clear();
  next_ = 0;
  layer_ = -1;
  replaying_ = false;
  bool same = false;
  for (std::size_t row = 0; row < token.size(); ++row) {
    const std::int64_t at = position[row];
    if (row == 0 || sequence[row] != sequence[row - 1]) {
      same = true;
      for (std::int64_t p = 0; same && p < at; ++p) {
        const std::size_t slot = slot_of(row, p);
        same = p < static_cast<std::int64_t>(tokens_.size()) && slot < slot_token_.size() && slot_token_[slot] == tokens_[static_cast<std::size_t>(p)];
      }
    }
    same = same && at < static_cast<std::int64_t>(tokens_.size()) && token[row] == tokens_[static_cast<std::size_t>(at)];
    if (!same) continue;
    mine_.push_back({static_cast<std::int64_t>(row), at});
    computed_[static_cast<std::size_t>(at)] = true;
    ++rows_;
  }
}

void OperationRecording::operation(const Operation& op) {
  if (replaying_) return;
  const auto at = static_cast<std::size_t>(next_++);
  if (op.layer >= 0) layer_ = op.layer;
  else if (!op.parameter.empty()) layer_ = layer_of_parameter(op.parameter);
  if (at == operations_.size()) {
    operations_.push_back({std::string(op.name), std::string(op.parameter), layer_, std::vector<std::uint64_t>(tokens_.size()), {}});
    if (static_cast<int>(at) == keep_) operations_.back().bits.resize(tokens_.size());
  }
  if (operations_[at].name != op.name || operations_[at].parameter != op.parameter)
    fail(ErrorCode::internal, "operation {} of a forward is '{} {}', it was '{}' before", at, op.name, op.parameter, operations_[at].text());
  if (mine_.empty()) return;

  // All values as words, rows of `columns`.
  std::vector<std::uint32_t> words(static_cast<std::size_t>(op.output.size()));
  if (op.output.dtype == DType::i32) {
    const std::vector<std::int32_t> values = backend_->stream().read_ints(op.output).get();
    std::transform(values.begin(), values.end(), words.begin(), [](std::int32_t v) { return static_cast<std::uint32_t>(v); });
  } else {
    const std::vector<float> values = backend_->stream().read(op.output).get();
    std::transform(values.begin(), values.end(), words.begin(), [](float v) { return std::bit_cast<std::uint32_t>(v); });
  }
  const std::vector<std::int32_t> slots = op.slot_of ? backend_->stream().read_ints(op.slot_of).get() : std::vector<std::int32_t>();
  for (const Row& row : mine_) {
    // The words of one row; of expert rows all slots of the row, in the order of its experts.
    std::vector<std::uint32_t> bits;
    const auto append = [&](std::int64_t r) {
      const auto first = words.begin() + r * op.output.cols;
      bits.insert(bits.end(), first, first + op.output.cols);
    };
    if (op.slot_of)
      for (std::int64_t j = 0; j < op.slot_of.cols; ++j) append(slots[static_cast<std::size_t>(row.row * op.slot_of.cols + j)]);
    else append(row.row);
    compare(static_cast<int>(at), row.position, bits);
    RecordedOperation& mine = operations_[at];
    mine.hash[static_cast<std::size_t>(row.position)] = xxh3(bits.data(), bits.size() * sizeof(std::uint32_t));
    if (static_cast<int>(at) == keep_) mine.bits[static_cast<std::size_t>(row.position)] = std::move(bits);
  }
}

void OperationRecording::compare(int at, std::int64_t position, const std::vector<std::uint32_t>& bits) {
  const auto p = static_cast<std::size_t>(position);
  if (!expected_ || !expected_->computed_[p]) return;
  if (static_cast<std::size_t>(at) >= expected_->operations_.size()) fail(ErrorCode::internal, "two forwards have {} and more operations", at);
  if (first_ && (at > first_->operation || (at == first_->operation && position >= first_->position))) return;
  const RecordedOperation& other = expected_->operations_[static_cast<std::size_t>(at)];
  if (other.hash[p] == xxh3(bits.data(), bits.size() * sizeof(std::uint32_t))) return;
  Difference difference{at, position, -1, 0, 0};
  if (!other.bits.empty() && other.bits[p].size() == bits.size()) {
    const auto column = static_cast<std::size_t>(std::mismatch(bits.begin(), bits.end(), other.bits[p].begin()).first - bits.begin());
    if (column < bits.size()) {
      difference.column = static_cast<std::int64_t>(column);
      difference.expected = other.bits[p][column];
      difference.got = bits[column];
    }
  }
  first_ = difference;
}

}  // namespace lockstep
