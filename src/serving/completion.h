// Runs a completion for any wire (OpenAI's, Fireworks', tinker's). A CompletionOrder holds the request: prompts as token ids, how to sample, what
// ends a sample, and what is returned beside the tokens. Each wire decodes its JSON into one; it is checked here, and errors use the wire's own
// field names. While it runs, on_token gets each token with the text that it completes, and on_end how each sample ended. Stop strings and end
// tokens are handled here and nowhere else. Orders are plain values, any thread. Callbacks run in steps of the executor, in order; they must
// neither block nor throw.
//   CompletionOrder order{.prompts = {{ids}}, .max_tokens = 20, .stops = {"\n"}};
//   auto ids = start_completion(*service, order, [&](const OnExecutor&, std::size_t i, const GeneratedToken& t, std::string text) { ...; return true; },
//                               [&](const OnExecutor&, std::size_t i, CompletionEnd&& end) { ... });
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serving/draft_order.h"
#include "serving/hold.h"
#include "serving/serving.h"
#include "serving/text_stream.h"

namespace lockstep {

using MakeConstraint = std::function<std::shared_ptr<TokenConstraint>()>;
// The wire's names of fields of CompletionOrder and SamplingParameters, where they differ from ours.
using Spelling = std::map<std::string, std::string, std::less<>>;

struct CompletionOrder {
  struct Prompt {
    std::vector<std::int32_t> ids;
    std::string field = "prompt";  // as the wire calls it: "prompt[3]"
  };
  std::vector<Prompt> prompts;
  std::int64_t samples = 1;  // of each prompt
  // How to sample; sample_index is that of the first sample. max_tokens, stop_tokens and constraint of it are made of what follows.
  SamplingParameters sampling = {};
  std::optional<std::int64_t> max_tokens = {};  // none: as many as the context leaves
  bool shorten = false;                         // max_tokens above what the context leaves is reduced; false: an error
  std::int64_t least_tokens = 0;                // that the context must leave when it is reduced
  std::int64_t min_tokens = 0;                  // no end token before these
  std::vector<std::int32_t> stop_tokens = {};   // at most kMostStops
  bool model_ends = true;                       // the model's own end tokens end it too; a constraint always ends with them
  std::vector<std::string> stops = {};          // texts: at most kMostStops, of 1 to kLongestStop bytes
  MakeConstraint make_constraint = {};          // one a sample; null: everything is allowed
  DraftOrder drafts = {};
  HoldOrder holds = {};  // of one sample, by serving/held_completion.h alone

  std::shared_ptr<const WeightSet> weights = nullptr;  // as Request's
  std::shared_ptr<const AdapterWeights> adapter = nullptr;
  std::uint64_t prefix_owner = 0;
  std::shared_ptr<ShareAccount> account = nullptr;

  SpecialText special = SpecialText::hidden;
  bool prompt_logprobs = false, experts = false, kept_tokens = false, keep_forward = false;  // as Request's, and so on
  std::vector<std::int32_t> prompt_targets = {};
  std::int32_t prompt_targets_per_row = 0, prompt_draws = 0;
  bool prompt_told_once = false;  // prompt outputs come with the first sample only
  Spelling spelling = {};

  static constexpr std::int64_t kMostSamples = 1024;
  static constexpr std::size_t kMostStops = 64, kLongestStop = 1024;
};

// An error in an order; the message begins with the wire's name of the field.
class OrderError : public Error {
 public:
  OrderError(ErrorCode code, std::string field, std::string message, std::string word = {})
      : Error(code, std::move(message)), field_(std::move(field)), word_(std::move(word)) {}
  const std::string& field() const { return field_; }  // as the wire calls it; empty: of none
  const std::string& word() const { return word_; }    // a code that clients know ("context_length_exceeded"); empty: none

 private:
  std::string field_, word_;
};

struct CompletionEnd {
  std::string text;                               // behind that of the tokens
  FinishReason finish = FinishReason::cancelled;  // stop: by an end token, a stop string, or on_token
  Generation generation;                          // all tokens again, and the outputs for the prompt
};

// Returns false to stop. `text`: the text that has become certain; empty for an end token, and without a tokenizer.
using OnSampleToken = std::function<bool(const OnExecutor& on, std::size_t sample, const GeneratedToken& token, std::string text)>;
using OnSampleEnd = std::function<void(const OnExecutor& on, std::size_t sample, CompletionEnd&& end)>;

// Returns ids for GenerationService::cancel, one a sample, those of one prompt together. `on_token` may be null: then no text is made. Checks the
// whole order first. Errors: OrderError; unsupported for stop strings without a tokenizer; those of GenerationService::generate_all. After an error
// no callback is called.
std::vector<std::uint64_t> start_completion(GenerationService& service, const CompletionOrder& order, OnSampleToken on_token, OnSampleEnd on_end);

// The parts of start_completion, for who runs a completion otherwise (serving/held_completion.h).
// Checks all of it: what the engine is asked, a request a sample, those of one prompt beside each other; each has a constraint of its own. OrderError.
std::vector<Request> requests_of(const CompletionOrder& order, const GenerationService& service);
// All tokens that end a sample: those asked for first, so that an error's index is the caller's.
std::vector<std::int32_t> end_tokens_of(const CompletionOrder& order, const GenerationService& service);
// A new one. `ends`: end_tokens_of. Null: everything is allowed.
std::shared_ptr<TokenConstraint> constraint_of_sample(const CompletionOrder& order, const GenerationService& service, const std::vector<std::int32_t>& ends);
// OrderError with the field as the wire calls it.
[[noreturn]] void fail_order(const CompletionOrder& order, std::string_view field, const std::string& problem);

}  // namespace lockstep
