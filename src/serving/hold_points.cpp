#include "serving/hold_points.h"

namespace lockstep {

std::optional<std::string> HoldPoints::push(std::int32_t id) {
  ++position_;
  std::optional<std::string> held;
  if (!order_.strings.empty() && tokenizer_) {
    std::string bytes = tokenizer_->token_bytes(id);
    // Behind one the search begins anew; a token that completes several holds once.
    while (const auto found = search_.push(bytes)) {
      tail_ += bytes.substr(0, found->end);
      if (!held) held = tail_.substr(tail_.size() - found->length);
      bytes.erase(0, found->end);
      search_ = StopSearch(strings_);
      tail_.clear();
    }
    tail_ += bytes;
    if (tail_.size() > HoldOrder::kLongestString) tail_.erase(0, tail_.size() - HoldOrder::kLongestString);
  }
  if (!held && order_.every > 0 && position_ % order_.every == 0) held.emplace();
  return held;
}

void HoldPoints::restart() {
  search_ = StopSearch(strings_);
  tail_.clear();
  position_ = 0;
}

}  // namespace lockstep
