// One request of /v1/completions or /v1/chat/completions under way: its choices' tokens come in, deltas go through a writer to
// the responder, at the end of each step of the engine or, whole, at the end. Lives as long as the service or the responder
// knows it.
// start() on any thread; the rest runs on the executor's.
//   std::make_shared<AnswerRun>(service, std::move(order), std::move(writer), responder)->start();
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "api/exchange.h"
#include "api/openai/answer_text.h"
#include "api/openai/answer_writer.h"
#include "api/openai/sampling_fields.h"
#include "api/worker.h"

namespace lockstep {

// What is to be answered, ready for the engine.
struct AnswerOrder {
  struct Prompt {
    std::vector<std::int32_t> ids;
    std::string field;            // "prompt[3]"
  };
  std::vector<Prompt> prompts;
  std::uint64_t prefix_owner = 0;                           // Request::prefix_owner
  std::shared_ptr<const AdapterWeights> adapter = nullptr;  // that the model's name means; null: none
  SamplingFields sampling;
  std::int64_t max_tokens = -1;   // -1: what the context leaves
  AnswerShape shape;
  std::int32_t top_logprobs = 0;
  std::string top_logprobs_field;
  bool echo = false;              // the prompt's text first, and its log-probabilities where they are shown
  SpecialText special = SpecialText::hidden;
  // One a choice; null: none.
  std::function<std::shared_ptr<TokenConstraint>()> make_constraint;
  std::function<std::unique_ptr<AnswerParser>()> make_parser;
  // Who writes a whole answer that is long, so that no other waits for it; gone or full: the executor does. (Weak: its thread
  // must not be the last to know it.)
  std::weak_ptr<Worker> long_writer = {};
};

class AnswerRun : public std::enable_shared_from_this<AnswerRun> {
 public:
  AnswerRun(std::shared_ptr<GenerationService> service, AnswerOrder order, std::unique_ptr<AnswerWriter> writer, std::shared_ptr<Responder> responder);
  // Errors as GenerationService::generate, with RequestError's param where a field is at fault; then nothing is under way.
  void start();

 private:
  struct Choice {
    AnswerText text;
    Detokenizer characters;  // for offsets: of all tokens, stop strings too
    std::int64_t offset = 0;
    ChoiceDelta delta;       // gathered, and not shown yet
    bool began = false, held = false, echoed = false, called_tools = false;
    std::int64_t completion_tokens = 0, reasoning_tokens = 0;
  };
  Request request_of(const AnswerOrder::Prompt& prompt) const;
  std::string call_id(std::size_t index, std::size_t call) const;
  std::vector<Request> requests();
  bool on_token(std::size_t index, const GeneratedToken& token);
  void on_done(std::size_t index, Generation&& generation);
  void add_token(Choice& choice, AnswerToken token);
  void echo(std::size_t index, const Generation* generation);
  void show(std::size_t index);
  void flush();
  void finish();
  void send_whole();
  void abandon();
  void fail_with(const Error& error);
  const std::vector<std::int32_t>& prompt_of(std::size_t index) const { return order_.prompts[index / static_cast<std::size_t>(order_.sampling.n)].ids; }

  std::shared_ptr<GenerationService> service_;
  AnswerOrder order_;
  std::unique_ptr<AnswerWriter> writer_;
  std::shared_ptr<Responder> responder_;
  std::shared_ptr<void> memory_;  // of the prompts, where it is counted
  AnswerHead head_;
  std::vector<std::int32_t> end_tokens_;  // no text of theirs is shown
  bool keeps_tokens_ = false;
  // Of the executor's thread once started.
  std::vector<Choice> choices_;
  std::size_t open_ = 0;
  AnswerUsage usage_;
  bool any_token_ = false, due_ = false, streaming_ = false, failed_ = false;
  std::atomic<bool> abandoned_ = false;  // the client left
  std::mutex mutex_;  // of ids_
  std::vector<std::uint64_t> ids_;
};

}  // namespace lockstep
