// Finds where an answer is held: at numbers of its tokens, and behind strings in the tokens' own bytes. One answer, one thread.
//   HoldPoints points({.every = 8, .strings = {"\n"}}, &tokenizer);  if (const auto found = points.push(id)) hold(*found);
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "serving/hold.h"
#include "serving/stop_strings.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {

class HoldPoints {
 public:
  // `tokenizer` outlives this object; null: there are no strings to be found.
  HoldPoints(const HoldOrder& order, const Tokenizer* tokenizer)
      : order_(order), strings_(std::make_shared<const StopStrings>(order.strings)), search_(strings_), tokenizer_(tokenizer) {}
  // Its next token. Nothing: it goes on; "": the number of tokens holds it; else the string that does.
  std::optional<std::string> push(std::int32_t id);
  // Back to the beginning.
  void restart();

 private:
  HoldOrder order_;
  std::shared_ptr<const StopStrings> strings_;
  StopSearch search_;
  const Tokenizer* tokenizer_;
  std::string tail_;  // the last bytes that were searched
  std::int64_t position_ = 0;
};

}  // namespace lockstep
