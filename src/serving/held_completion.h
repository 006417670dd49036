// One sample of a completion that is held on the way (serving/hold.h), and goes on as it is told: by whoever calls act(), over a wire, or in this process
// by what on_hold returns. Between holds it is a request of a generation service; each part is a new one, whose prompt is the prompt and the answer as it
// stands: what follows has the bits of that request. While it is held it keeps its place in the service, computes nothing, and its pages are the prefix
// cache's. Tokens that were put in never reach the engine as sampled ones.
// What is said so far belongs to steps of the executor (OfExecutor); the rest any thread may call. Callbacks run in those steps, in order: they must
// neither block nor throw, and may call act.
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
#include "serving/on_executor.h"

namespace lockstep {

class HeldCompletion : public std::enable_shared_from_this<HeldCompletion> {
 public:
  struct Callbacks {
    // As OnSampleToken and OnSampleEnd: the end has all tokens of the answer, those that were put in too. May be null.
    std::function<bool(const OnExecutor& on, const GeneratedToken& token, std::string text)> on_token;
    // An action: how it goes on at once; nothing: it waits for act(). An action that is not allowed ends it with FinishReason::error.
    std::function<std::optional<HoldAction>(const OnExecutor& on, const Hold& hold)> on_hold;
    std::function<void(const OnExecutor& on, const HoldOutcome& outcome)> on_resumed;  // before a token of what follows; may be null
    std::function<void(const OnExecutor& on, CompletionEnd&& end)> on_end;
  };
  // Checks the order, which has one prompt, one sample and holds. Errors as start_completion; OrderError where it cannot be held.
  HeldCompletion(std::shared_ptr<GenerationService> service, const CompletionOrder& order, Callbacks callbacks);
  // The id for GenerationService::cancel. Errors as GenerationService::generate; then no callback is called.
  std::uint64_t start();

  // `told` is called once, in a step of the executor, with what came of it or with why nothing did: then it is held as before (or is not held at all).
  // Error cancelled once the service has stopped.
  using Told = std::function<void(const HoldOutcome* outcome, const Error* fault)>;
  void act(HoldAction action, Told told);
  // Where it is still held by hold `number`: it ends with FinishReason::cancelled and `reason`.
  void expire(std::int64_t number, const std::string& reason);

 private:
  // What changes while it is answered.
  struct Answer {
    Callbacks callbacks;
    std::optional<TextStream> text;  // none: the model has no tokenizer
    HoldPoints points;
    std::vector<GeneratedToken> said;  // the answer as it stands
    std::optional<std::string> found;  // where the token that came last holds it
    std::int64_t number = 0;           // of holds
    std::int32_t roll_backs = 0;
    std::int64_t cached_tokens = -1;  // of the first part

    std::vector<std::int32_t> said_ids() const;
  };
  bool token(const OnExecutor& on, const GeneratedToken& token);
  bool part(const OnExecutor& on, Generation& part);
  void end(const OnExecutor& on, Generation&& generation);
  Resumption resumed(const OnExecutor& on, const HoldAction& action, HoldOutcome& outcome);
  void roll_back(Answer& answer, const HoldAction& action, HoldOutcome& outcome, Resumption& next);
  std::vector<std::int32_t> tokens_put_in(const HoldAction& action, std::int64_t position) const;
  std::optional<TextStream> new_text() const;
  Request request_of_rest(const Answer& answer) const;
  bool ends(std::int32_t id) const;

  const std::shared_ptr<GenerationService> service_;
  const CompletionOrder order_;
  const std::vector<std::int32_t> ends_;
  const Request first_;  // as it began
  std::atomic<std::uint64_t> id_{0};
  OfExecutor<Answer> answer_;
};

}  // namespace lockstep
