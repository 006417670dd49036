// A completion request while it runs: its choices' new tokens go through a writer to the responder, at the end of each engine step (streams) or at
// the end. The service and the responder keep it alive. What is said so far belongs to steps of the executor (OfExecutor), and at the end to whoever
// writes it. start() on any thread.
//   std::make_shared<AnswerRun>(service, std::move(order), std::move(writer), responder)->start();
#pragma once
#include <atomic>
#include <functional>
#include <memory>

#include "api/exchange.h"
#include "api/openai/answer_parser.h"
#include "api/openai/answer_writer.h"
#include "api/openai/held_streams.h"
#include "api/worker.h"
#include "base/guarded.h"
#include "serving/completion.h"
#include "serving/on_executor.h"

namespace lockstep {

// For an answer that may be held (AnswerOrder::completion.holds): the key that owns it, how long it may be held, and the table in which clients
// find it. Without effect on others.
struct AnswerHold {
  std::string owner;
  double seconds = 60;
  std::weak_ptr<HeldStreams> streams;
};

// A completion to run, and the form of its answer.
struct AnswerOrder {
  static constexpr std::size_t kWholePrompt = static_cast<std::size_t>(-1);

  CompletionOrder completion;
  std::string model;  // the request's name of it, which the answer repeats where it means an adapter
  bool stream = false;
  AnswerShape shape;
  std::size_t echo = 0;                                        // how many of the prompt's last tokens come first; with log-probabilities if asked for
  std::function<std::unique_ptr<AnswerParser>()> make_parser;  // null: all text is content
  // Writes the JSON of a long answer, so that no other waits for it; if it is gone or full, the executor's thread does. (Weak, so that its own
  // thread never holds the last reference.)
  std::weak_ptr<Worker> long_writer = {};
  AnswerHold hold = {};
  ErrorCode broken = ErrorCode::numeric;  // the error of a choice whose logits were not finite
  // The most ids in the kept sets of all tokens, each of which may be nearly the whole vocabulary: about 60 MB as text.
  std::int64_t most_kept_ids = std::int64_t{1} << 23;
};

class AnswerRun : public std::enable_shared_from_this<AnswerRun> {
 public:
  AnswerRun(std::shared_ptr<GenerationService> service, AnswerOrder order, std::unique_ptr<AnswerWriter> writer, std::shared_ptr<Responder> responder);
  // Errors as GenerationService::generate, with RequestError's param where a field is at fault; then nothing is under way.
  void start();

 private:
  struct Choice {
    std::unique_ptr<AnswerParser> parser;   // null: none
    std::optional<Detokenizer> characters;  // for offsets: of all tokens, stop strings too
    std::int64_t offset = 0;
    ChoiceDelta delta;  // not shown yet
    bool began = false, held = false, echoed = false, called_tools = false;
    std::int64_t completion_tokens = 0, reasoning_tokens = 0;
    std::uint64_t version = 0;              // of the weights that its last token is of
    bool any_token = false, mixed = false;  // mixed: a token in `delta` has a prefix cached under several weights versions
  };
  // What changes while it is answered.
  struct Answer {
    std::unique_ptr<AnswerWriter> writer;
    AnswerHead head;
    std::vector<Choice> choices;
    std::size_t open = 0;
    std::int64_t kept_ids = 0;
    AnswerUsage usage;
    std::vector<HoldNotice> notices;  // that were not sent yet
    bool headed = false, due = false, streaming = false, failed = false;
  };
  Answer first_answer(std::unique_ptr<AnswerWriter> writer) const;
  std::string call_id(std::size_t index, std::size_t call) const;
  bool on_token(const OnExecutor& on, std::size_t index, const GeneratedToken& token, const std::string& text);
  void on_end(const OnExecutor& on, std::size_t index, CompletionEnd&& end);
  std::uint64_t start_held();
  void on_hold(const OnExecutor& on, const Hold& hold);
  void on_resumed(const OnExecutor& on, const HoldOutcome& outcome);
  void add_text(Choice& choice, const std::string& text) const;
  void add_token(Choice& choice, AnswerToken token) const;
  void echo(Choice& choice, std::size_t index, const Generation* generation) const;
  void use_head(Answer& answer, std::uint64_t version, bool mixed) const;
  void show(const OnExecutor& on, std::size_t index);
  void flush(const OnExecutor& on);
  void send_events(Answer& answer, bool done) const;
  void send_whole(Answer& answer) const;
  void send_last(Answer& answer);
  void abandon();
  void fail_with(Answer& answer, const Error& error);
  bool tells_prompt_logprobs() const { return order_.echo > 0 && order_.completion.prompt_logprobs; }
  const std::vector<std::int32_t>& prompt_of(std::size_t index) const {
    return order_.completion.prompts[index / static_cast<std::size_t>(order_.completion.samples)].ids;
  }

  const std::shared_ptr<GenerationService> service_;
  const AnswerOrder order_;
  const std::shared_ptr<Responder> responder_;
  const std::string id_;
  const bool keeps_tokens_, names_snapshots_;
  OfExecutor<Answer> answer_;
  std::shared_ptr<void> memory_;         // the counted memory of the prompts; null: it is not counted
  std::atomic<bool> abandoned_ = false;  // the client left
  Guarded<std::vector<std::uint64_t>> ids_;
};

}  // namespace lockstep
