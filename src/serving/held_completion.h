// One sample of a completion that is held on the way (serving/hold.h), and goes on as it is told: by whoever calls act(), over a wire, or in this process
// by what on_hold returns. Between holds it is a request of a generation service; each part is a new one, whose prompt is the prompt and the answer as it
// stands: what follows has the bits of that request. While it is held it keeps its place in the service, computes nothing, and its pages are the prefix
// cache's. Tokens that were put in never reach the engine as sampled ones.
// The constructor, act and expire on any thread; callbacks on the executor's, in order: they must neither block nor throw, and may call act.
//   const auto held = std::make_shared<HeldCompletion>(service, order, HeldCompletion::Callbacks{...}); const auto id = held->start();
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serving/completion.h"
#include "serving/hold_points.h"

namespace lockstep {

class HeldCompletion : public std::enable_shared_from_this<HeldCompletion> {
 public:
  struct Callbacks {
    // As OnSampleToken and OnSampleEnd: the end has all tokens of the answer, those that were put in too. May be null.
    std::function<bool(const GeneratedToken& token, std::string text)> on_token;
    // An action: how it goes on at once; nothing: it waits for act(). An action that is not allowed ends it with FinishReason::error.
    std::function<std::optional<HoldAction>(const Hold& hold)> on_hold;
    std::function<void(const HoldOutcome& outcome)> on_resumed;  // before a token of what follows; may be null
    std::function<void(CompletionEnd&& end)> on_end;
  };
  // Checks the order, which has one prompt, one sample and holds. Errors as start_completion; OrderError where it cannot be held.
  HeldCompletion(std::shared_ptr<GenerationService> service, const CompletionOrder& order, Callbacks callbacks);
  // The id for GenerationService::cancel. Errors as GenerationService::generate; then no callback is called.
  std::uint64_t start();

  // `told` is called once, on the executor's thread, with what came of it or with why nothing did: then it is held as before (or is not held at all).
  // Error cancelled once the service has stopped.
  using Told = std::function<void(const HoldOutcome* outcome, const Error* fault)>;
  void act(HoldAction action, Told told);
  // Where it is still held by hold `number`: it ends with FinishReason::cancelled and `reason`.
  void expire(std::int64_t number, const std::string& reason);

 private:
  bool token(const GeneratedToken& token);
  bool part(Generation& part);
  void end(Generation&& generation);
  Resumption resumed(const HoldAction& action, HoldOutcome& outcome);
  void roll_back(const HoldAction& action, HoldOutcome& outcome, Resumption& next);
  std::vector<std::int32_t> tokens_put_in(const HoldAction& action, std::int64_t position) const;
  TextStream new_text() const;
  Request request_of_rest() const;
  std::vector<std::int32_t> said_ids() const;
  bool ends(std::int32_t id) const;

  const std::shared_ptr<GenerationService> service_;
  const CompletionOrder order_;
  Callbacks callbacks_;
  Request first_;  // as it began
  std::vector<std::int32_t> ends_;
  std::atomic<std::uint64_t> id_{0};
  // Of the executor's thread once started.
  std::optional<TextStream> text_;  // none: the model has no tokenizer
  HoldPoints points_;
  std::vector<GeneratedToken> said_;  // the answer as it stands
  std::optional<std::string> found_;  // where the token that came last holds it
  std::int64_t number_ = 0;
  std::int32_t roll_backs_ = 0;
  std::int64_t cached_tokens_ = -1;  // of the first part
};

}  // namespace lockstep
