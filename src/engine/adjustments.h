// Penalties and biases of one request, as one entry for each token that they change: a step costs as much as there are entries, not as the vocabulary
// is large. kernels/adjust/adjust.h has the arithmetic. Knows no device. Used by one thread at a time.
//   LogitAdjustments a; a.begin(sampling, prompt); a.accept(token); a.entries(); a.truncate(last_tokens);
#pragma once
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/request.h"

namespace lockstep {

class LogitAdjustments {
 public:
  struct Entry {
    std::int32_t token = 0, count = 0;  // how often it was generated
    bool seen = false;                  // in the prompt or generated
    float bias = 0;
    bool operator==(const Entry&) const = default;
  };
  // Entries of the prompt and the biases.
  void begin(const SamplingParameters& sampling, std::span<const std::int32_t> prompt);
  void accept(std::int32_t token);
  // Undoes the last accepts; the tokens are given in the order in which they were accepted.
  void truncate(std::span<const std::int32_t> tokens);
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  Entry& entry(std::int32_t token);

  bool repeats_ = false, counts_ = false;  // which penalties have an effect
  std::vector<Entry> entries_;
  std::vector<bool> begun_seen_;  // of the entries that begin() made: whether the prompt has the token; later ones come in order of accepting
  std::unordered_map<std::int32_t, std::size_t> places_;
};

}  // namespace lockstep
