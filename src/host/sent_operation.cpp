#include "host/sent_operation.h"

#include <fmt/format.h>

#include "base/hash.h"

namespace lockstep {

SentOperation& SentOperation::add_bytes(const void* data, std::size_t bytes) {
  const std::uint64_t both[] = {content_, static_cast<std::uint64_t>(bytes)};  // so that the ends of two parts count
  content_ = xxh3(data, bytes, xxh3(both, sizeof both));
  return *this;
}

SentOperation& SentOperation::add(std::string_view text) { return add_bytes(text.data(), text.size()); }

SentOperation& SentOperation::add(const TrainingBatch& batch) {
  const auto add_all = [this](const auto& values) { add_bytes(values.data(), values.size() * sizeof(values[0])); };
  add(batch.loss.name).add(static_cast<double>(batch.loss.dialect)).add(static_cast<double>(batch.forward_only));
  for (const auto& [name, value] : batch.loss.config) {
    add(name).add(static_cast<double>(value.index()));
    if (const auto* text = std::get_if<std::string>(&value)) add(*text);
    else if (const auto* number = std::get_if<double>(&value)) add(*number);
    else add(static_cast<double>(std::get<bool>(value)));
  }
  for (const TrainingDatum& datum : batch.data) {
    add_all(datum.tokens);
    for (const auto& [name, tensor] : datum.inputs) {
      add(name);
      add_all(tensor.shape);
      add_all(tensor.floats);
      add_all(tensor.integers);
    }
    for (const std::string& matrix : datum.routing_matrices) add(matrix);
  }
  return *this;
}

std::string SentOperation::line() const { return kind_ + "\n" + hex64(content_); }

std::string SentOperation::difference(std::string_view line) const {
  if (line == this->line()) return "";
  const std::string_view before = line.substr(0, line.find('\n'));
  if (before == kind_) return fmt::format("{} with other content before", kind_);
  return fmt::format("{} before, and is {} now", before, kind_);
}

}  // namespace lockstep
