// A completion under way, the one way from a CompletionOrder to its answer: tokens as they are drawn, with the text that each makes certain, and
// how each sample ended. Stop strings and end tokens are its own business. Knows no wire. Callbacks as GenerationService's: of the executor's
// thread, in order; they must neither block nor throw.
//   auto ids = start_completion(*service, order, [&](std::size_t i, const GeneratedToken& t, std::string text) { ...; return true; },
//                               [&](std::size_t i, CompletionEnd&& end) { ... });
#pragma once
#include "serving/completion_order.h"

namespace lockstep {

struct CompletionEnd {
  std::string text;                               // behind that of the tokens
  FinishReason finish = FinishReason::cancelled;  // stop: of an end token, a stop string, or whoever listened
  Generation generation;                          // all of it again, and what is told of the prompt
};

// False: no more tokens. `text`: what is certain now and was not before; none of an end token, nor without a tokenizer.
using OnSampleToken = std::function<bool(std::size_t sample, const GeneratedToken& token, std::string text)>;
using OnSampleEnd = std::function<void(std::size_t sample, CompletionEnd&& end)>;

// Ids for GenerationService::cancel, one a sample; those of one prompt stand beside each other. `on_token` may be null: then no text is told.
// Errors as requests_of's and GenerationService::generate_all's; then no callback is called.
std::vector<std::uint64_t> start_completion(GenerationService& service, const CompletionOrder& order, OnSampleToken on_token, OnSampleEnd on_end);

}  // namespace lockstep
