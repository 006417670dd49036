// What a completion is made from, whatever wire it came over: prompts as token ids, how to sample, what ends it, and what is told beside the tokens.
// Wires decode into it and have it checked here, with their own names for its fields in what errors say. Plain values; any thread.
//   CompletionOrder order{.prompts = {{ids}}, .max_tokens = 20, .stops = {"\n"}}; std::vector<Request> requests = requests_of(order, service);
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serving/draft_order.h"
#include "serving/serving.h"
#include "serving/text_stream.h"

namespace lockstep {

using MakeConstraint = std::function<std::shared_ptr<TokenConstraint>()>;
// What a wire calls fields of CompletionOrder and SamplingParameters; those that are not here it calls as we do.
using Spelling = std::map<std::string, std::string, std::less<>>;

struct CompletionOrder {
  struct Prompt {
    std::vector<std::int32_t> ids;
    std::string field = "prompt";  // as the wire calls it: "prompt[3]"
  };
  std::vector<Prompt> prompts;
  std::int64_t samples = 1;  // of each prompt
  // How to sample. max_tokens, stop_tokens, sample_index and constraint of it are made of what follows.
  SamplingParameters sampling = {};
  std::optional<std::int64_t> max_tokens = {};  // none: as many as the context leaves
  bool shorten = false;                         // more than the context leaves: as many as it does; else an error
  std::int64_t least_tokens = 0;                // that the context must leave where it shortens
  std::int64_t min_tokens = 0;                  // before which no end token is drawn
  std::vector<std::int32_t> stop_tokens = {};   // at most kMostStops
  bool model_ends = true;                       // the model's own end tokens end it too; a constraint always ends with them
  std::vector<std::string> stops = {};          // texts: at most kMostStops, of 1 to kLongestStop bytes
  MakeConstraint make_constraint = {};          // one a sample; null: everything is allowed
  DraftOrder drafts = {};

  std::shared_ptr<const WeightSet> weights = nullptr;  // as Request's
  std::shared_ptr<const AdapterWeights> adapter = nullptr;
  std::uint64_t prefix_owner = 0;
  std::shared_ptr<ShareAccount> account = nullptr;

  SpecialText special = SpecialText::hidden;
  bool prompt_logprobs = false, experts = false, kept_tokens = false, keep_forward = false;  // as Request's, and so on
  std::vector<std::int32_t> prompt_targets = {};
  std::int32_t prompt_targets_per_row = 0, prompt_draws = 0;
  bool prompt_told_once = false;  // with the first sample alone
  Spelling spelling = {};

  static constexpr std::int64_t kMostSamples = 1024;
  static constexpr std::size_t kMostStops = 64, kLongestStop = 1024;
};

// A fault of an order, as its wire is told: the message begins with the field.
class OrderError : public Error {
 public:
  OrderError(ErrorCode code, std::string field, std::string message, std::string word = {})
      : Error(code, std::move(message)), field_(std::move(field)), word_(std::move(word)) {}
  const std::string& field() const { return field_; }  // as the wire calls it; empty: of none
  const std::string& word() const { return word_; }    // a code that clients know ("context_length_exceeded"); empty: none

 private:
  std::string field_, word_;
};

// As `spelling` has it: "stop_token_ids" for "stop_tokens".
std::string spelled(const Spelling& spelling, std::string_view field);
// All tokens that end it: those asked for first, so that an error's index is the caller's.
std::vector<std::int32_t> end_tokens_of(const CompletionOrder& order, const GenerationService& service);
// Checks all of it: what the engine is asked, a request a sample, those of one prompt beside each other; each has a constraint of its own.
// Errors: OrderError; unsupported where texts are to stop a model without a tokenizer.
std::vector<Request> requests_of(const CompletionOrder& order, const GenerationService& service);

}  // namespace lockstep
