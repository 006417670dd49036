// Whether the text of a sequence holds one of some stop texts, token by token: of clients that get the tokens of the stop too
// (serving/text_stream.h ends the text before it). Keeps no more of the text than the longest stop needs. One sequence, one thread.
//   StopTexts stops(tokenizer, {"\n\n"}); if (stops.ended_by(token.id)) ...
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace lockstep {

class StopTexts {
 public:
  StopTexts(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops) : tokenizer_(std::move(tokenizer)), stops_(std::move(stops)) {
    for (const std::string& stop : stops_) longest_ = std::max(longest_, stop.size());
  }
  bool ended_by(std::int32_t token) {
    tail_ += tokenizer_->token_bytes(token);
    for (const std::string& stop : stops_)
      if (tail_.find(stop) != std::string::npos) return true;
    if (tail_.size() > longest_) tail_.erase(0, tail_.size() - longest_ + 1);
    return false;
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::string> stops_;
  std::size_t longest_ = 1;
  std::string tail_;
};

}  // namespace lockstep
