// Writes a completion in Fireworks' format: text, rows of tokens with both log-probabilities, and at the end the ids of all tokens, usage, and the
// seconds of each part, by which the package's sampler adapts its number of open requests. A stream has the same in parts. One answer with one
// choice, one thread.
//   FireworksWriter writer(&tokenizer, {.id = request_id, .model = "m", .rows = true});
#pragma once
#include <chrono>

#include "api/openai/answer_writer.h"
#include "host/routing_matrix.h"

namespace lockstep {

struct FireworksShape {
  std::string id, model;      // of the request
  std::string identity = {};  // the snapshot of the whole answer; empty: that of each part's AnswerHead
  bool rows = false, top_logprobs = false, routing_matrices = false, kept_tokens = false;
  bool raw_output = false, token_ids = false, perf_metrics = false;
  ExpertShape experts = {};
  std::chrono::steady_clock::time_point came = {};  // before it waited to be read
  std::int64_t open = 0;                            // open requests when it came, itself included
};

class FireworksWriter : public AnswerWriter {
 public:
  // `tokenizer`: null: tokens have no text; outlives this object.
  FireworksWriter(const Tokenizer* tokenizer, FireworksShape shape) : tokenizer_(tokenizer), shape_(std::move(shape)) {}
  std::string_view id_prefix() const override { return "cmpl-"; }
  void set_head(const AnswerHead& head) override {
    created_ = head.created, snapshot_ = shape_.identity.empty() ? head.identity : shape_.identity, mixed_ = head.mixed_versions;
  }
  void append_event(std::string& out, std::size_t index, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt) override;
  void append_hold(std::string& out, std::size_t index, const HoldNotice& hold) override;
  void append_end(std::string& out, const AnswerUsage& usage) override;
  // The event has "status_code", by which the package decides whether to ask again.
  void append_failure(std::string& out, const Error& error) override;
  std::string whole(const std::vector<WholeChoice>& choices, const AnswerUsage& usage) override;
  HeaderList headers() const override;

 private:
  void append_choice(std::string& out, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt);
  void append_row(std::string& out, const AnswerToken& token) const;
  void append_usage(std::string& out, const AnswerUsage& usage);
  void measure(const AnswerUsage& usage);

  const Tokenizer* tokenizer_;
  FireworksShape shape_;
  std::int64_t created_ = 0;
  std::string snapshot_;  // told behind the model's name (NAME@SNAPSHOT); empty: the name alone
  bool mixed_ = false;
  std::vector<std::int32_t> ids_;  // of the answer so far, with those of an echoed prompt first
  std::size_t prompt_ids_ = 0;     // of ids_
  std::string last_event_;         // of a stream: the event that ends the choice, without its closing brace
  HeaderList metrics_;             // names and values as the package's ServerMetrics reads them
};

}  // namespace lockstep
