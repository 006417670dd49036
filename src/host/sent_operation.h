// What a numbered operation asks for, as its client sent it. A number that comes again with the same is the same request, whose answer was
// lost; with another it is a mistake of the client, who would else take the first one's result for the second's.
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
  // Of a line() that stands under the same number: empty where it is the same operation; else how they differ, "a forward_backward before, and
  // is an optim_step now".
  std::string difference(std::string_view line) const;

 private:
  SentOperation& add_bytes(const void* data, std::size_t bytes);
  std::string kind_;
  std::uint64_t content_ = 0;
};

}  // namespace lockstep
