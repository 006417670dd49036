// The content of a numbered operation, to compare a repeated number with its first use. The same number with the same content is a repeated request, whose
// answer was lost; with other content it is an error, since the client would take the first request's result for the second's.
//   SentOperation("optim_step").add(learning_rate).add(name)   SentOperation("forward_backward").add(batch)
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "losses/datum.h"

namespace lockstep {

class SentOperation {
 public:
  explicit SentOperation(std::string kind) : kind_(std::move(kind)) {}
  SentOperation& add(std::string_view text);
  SentOperation& add(double value) { return add_bytes(&value, sizeof value); }
  SentOperation& add(const TrainingBatch& batch);

  const std::string& kind() const { return kind_; }
  // As a line: its kind and a digest of its content.
  std::string line() const;
  // Compares with the line() stored under the same number: empty for the same operation, else the difference: "a forward_backward before, and is an
  // optim_step now".
  std::string difference(std::string_view line) const;

 private:
  SentOperation& add_bytes(const void* data, std::size_t bytes);
  std::string kind_;
  std::uint64_t content_ = 0;
};

}  // namespace lockstep
