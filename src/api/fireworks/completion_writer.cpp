#include "api/fireworks/completion_writer.h"

#include <iterator>

#include "api/errors.h"
#include "api/json_fields.h"
#include "api/json_text.h"
#include "serving/text_stream.h"

namespace lockstep {
namespace {
void append_id_list(std::string& out, std::string_view name, const std::vector<std::int32_t>& ids) {
  out += name;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    append_json_integer(out, ids[i]);
  }
  out += ']';
}
}  // namespace

void FireworksWriter::append_row(std::string& out, const AnswerToken& token) const {
  // Nothing stands before the first token of a prompt: 0.
  const float logprob = token.logprob.value_or(0);
  out += "{\"token\":";
  append_json_string(out, tokenizer_ != nullptr ? text_of_token(*tokenizer_, token.id) : "");
  out += ",\"token_id\":";
  append_json_integer(out, token.id);
  out += ",\"logprob\":";
  append_json_number(out, logprob);
  out += ",\"sampling_logprob\":";
  append_json_number(out, token.of_prompt ? logprob : token.sampling_logprob);
  const std::vector<TokenLogprob> only_itself{{token.id, 0.0f}};
  const std::vector<TokenLogprob>& top = token.logprob ? token.top : only_itself;
  if (shape_.top_logprobs && !top.empty()) {
    const char* comma = ",\"top_logprobs\":[";
    for (const TokenLogprob& one : top) {
      out += comma;
      out += "{\"token_id\":";
      append_json_integer(out, one.id);
      out += ",\"logprob\":";
      append_json_number(out, one.logprob);
      out += '}';
      comma = ",";
    }
    out += ']';
  }
  if (shape_.kept_tokens && token.kept.cut()) {
    append_id_list(out, ",\"kept_tokens\":[", token.kept.ids());
    out += token.kept.order == KeptTokens::Order::by_rank ? ",\"kept_by_rank\":true" : ",\"kept_by_rank\":false";
  }
  // A token's matrix is that of the row it was chosen from, as its log-probabilities are: the first of a prompt has none.
  if (shape_.routing_matrices) {
    out += ",\"routing_matrix\":";
    append_json_string(out, routing_matrix(shape_.experts, token.experts));
  }
  out += '}';
}

void FireworksWriter::append_choice(std::string& out, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt) {
  out += "{\"id\":";
  append_json_string(out, shape_.id);
  out += ",\"object\":\"text_completion\",\"created\":";
  append_json_integer(out, created_);
  out += ",\"model\":";
  append_json_string(out, snapshot_.empty() ? shape_.model : shape_.model + "@" + snapshot_);
  if (mixed_) out += ",\"mixed_versions\":true";
  out += ",\"choices\":[{\"index\":0,\"text\":";
  append_json_string(out, delta.content);
  out += ",\"finish_reason\":";
  if (delta.finish.empty()) out += "null";
  else append_json_string(out, delta.finish);
  std::vector<std::int32_t> generated;
  for (const AnswerToken& token : delta.tokens) {
    ids_.push_back(token.id);
    if (token.of_prompt) ++prompt_ids_;
    else generated.push_back(token.id);
  }
  if (shape_.raw_output && !delta.finish.empty()) {
    append_id_list(out, ",\"raw_output\":{\"completion_token_ids\":[", ids_);
    append_id_list(out, ",\"prompt_token_ids\":[", prompt);
    out += '}';
  }
  if (shape_.token_ids) {
    if (first) append_id_list(out, ",\"prompt_token_ids\":[", prompt);
    append_id_list(out, ",\"token_ids\":[", generated);
  }
  out += ",\"logprobs\":";
  if (!shape_.rows) {
    out += "null";
  } else {
    out += "{\"content\":[";
    for (std::size_t i = 0; i < delta.tokens.size(); ++i) {
      if (i > 0) out += ',';
      append_row(out, delta.tokens[i]);
    }
    out += "]}";
  }
  out += "}]";
}

// Steps that the answer did not reach have no time.
void FireworksWriter::measure(const AnswerUsage& usage) {
  using Point = std::chrono::steady_clock::time_point;
  const Point now = std::chrono::steady_clock::now();
  const auto add = [&](const char* name, Point from, Point to) {
    if (from != Point{} && to != Point{}) metrics_.emplace_back(name, fmt::format("{:.6f}", std::chrono::duration<double>(to - from).count()));
  };
  metrics_.clear();
  add("prefill-queue-duration", shape_.came, usage.times.began);
  add("prefill-duration", usage.times.began, usage.times.first_token);
  add("server-time-to-first-token", shape_.came, usage.times.first_token);
  add("generation-duration", usage.times.first_token, now);
  add("server-processing-time", shape_.came, now);
  metrics_.emplace_back("prompt-tokens", std::to_string(usage.prompt));
  metrics_.emplace_back("cached-prompt-tokens", std::to_string(usage.cached));
  if (usage.predicted) metrics_.emplace_back("speculation-prompt-matched-tokens", std::to_string(usage.predicted_right));
  metrics_.emplace_back("num-concurrent-requests", std::to_string(shape_.open));
}

void FireworksWriter::append_usage(std::string& out, const AnswerUsage& usage) {
  measure(usage);
  fmt::format_to(std::back_inserter(out),
                 ",\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{},\"prompt_tokens_details\":{{\"cached_tokens\":{}}}",
                 usage.prompt, usage.completion, usage.prompt + usage.completion, usage.cached);
  std::string details;
  if (usage.predicted)
    details += fmt::format(",\"accepted_prediction_tokens\":{},\"rejected_prediction_tokens\":{}", usage.predicted_right, usage.predicted_wrong);
  if (usage.holds) details += fmt::format(",\"rolled_back_tokens\":{},\"put_in_tokens\":{}", usage.rolled_back, usage.put_in);
  if (!details.empty()) out += ",\"completion_tokens_details\":{" + details.substr(1) + "}";
  out += '}';
  if (!shape_.perf_metrics) return;
  const char* comma = ",\"perf_metrics\":{";
  for (const auto& [name, value] : metrics_) {
    out += comma;
    append_json_string(out, name);
    out += ':';
    append_json_string(out, value);
    comma = ",";
  }
  out += '}';
}

void FireworksWriter::append_event(std::string& out, std::size_t, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt) {
  std::string event = "data: ";
  append_choice(event, delta, first, prompt);
  if (delta.finish.empty()) out += event + "}\n\n";
  else last_event_ = std::move(event);
}

// An event with an empty choice and the notice's field. A roll-back removes ids here too, so that the last event has those that stand.
void FireworksWriter::append_hold(std::string& out, std::size_t, const HoldNotice& hold) {
  if (hold.stands) {
    ids_.resize(prompt_ids_);
    ids_.insert(ids_.end(), hold.stands->begin(), hold.stands->end());
  }
  out += "data: ";
  append_choice(out, {}, false, {});
  out += ",\"hold\":" + hold.json + "}\n\n";
}

void FireworksWriter::append_end(std::string& out, const AnswerUsage& usage) {
  out += last_event_;
  append_usage(out, usage);
  out += "}\n\ndata: [DONE]\n\n";
}

void FireworksWriter::append_failure(std::string& out, const Error& error) {
  Json body = Json::parse(error_body(error));
  body["error"]["status_code"] = http_status(error.code());
  out += "data: " + body.dump() + "\n\n";
}

std::string FireworksWriter::whole(const std::vector<WholeChoice>& choices, const AnswerUsage& usage) {
  std::string out;
  append_choice(out, *choices.front().delta, true, *choices.front().prompt);
  append_usage(out, usage);
  out += '}';
  return out;
}

HeaderList FireworksWriter::headers() const {
  HeaderList out;
  for (const auto& [name, value] : metrics_) out.emplace_back("fireworks-" + name, value);
  return out;
}

}  // namespace lockstep
