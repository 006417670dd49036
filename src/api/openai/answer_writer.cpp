#include "api/openai/answer_writer.h"

#include <algorithm>
#include <iterator>

#include "api/errors.h"
#include "api/json_fields.h"
#include "api/json_text.h"
#include "serving/text_stream.h"

namespace lockstep {

void ChoicesWriter::set_head(const AnswerHead& head) {
  for (const bool part : {false, true}) {
    Json json{{"id", head.id},
              {"object", object(part)},
              {"created", head.created},
              {"model", head.model},
              {"service_tier", head.service_tier},
              {"system_fingerprint", fmt::format("fp_{}_{}", head.profile, head.weights_version)},
              {"seed", head.seed},
              {"weights_version", head.weights_version},
              {"profile", head.profile}};
    if (!head.snapshot.empty()) json["snapshot"] = head.snapshot;
    if (head.mixed_versions) json["mixed_versions"] = true;
    std::string& frame = frame_[part];
    frame = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    frame.back() = ',';  // instead of the closing brace
    frame += "\"choices\":[";
  }
}

void ChoicesWriter::append_event(std::string& out, std::size_t index, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt) {
  out += "data: ";
  append_part(out, index, delta, first, prompt);
  out += "\n\n";
}

// An event with an empty choice, for clients that always read one, and the notice's field.
void ChoicesWriter::append_hold(std::string& out, std::size_t index, const HoldNotice& hold) {
  out += "data: " + frame_[1];
  append_choice_part(out, index, {}, false, {});
  out += ']';
  append_frame_end(out, nullptr);
  out += ",\"hold\":" + hold.json;
  out += shape_.usage_in_parts ? ",\"usage\":null}" : "}";
  out += "\n\n";
}

void ChoicesWriter::append_end(std::string& out, const AnswerUsage& usage) {
  if (shape_.usage_in_parts) {
    out += "data: " + frame_[1] + "]";
    append_usage(out, usage);
    out += "}\n\n";
  }
  out += "data: [DONE]\n\n";
}

void ChoicesWriter::append_failure(std::string& out, const Error& error) { out += "data: " + error_body(error) + "\n\n"; }

void ChoicesWriter::append_part(std::string& out, std::size_t index, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>& prompt) {
  out += frame_[1];
  append_choice_part(out, index, delta, first, prompt);
  out += ']';
  append_frame_end(out, first ? &prompt : nullptr);
  out += shape_.usage_in_parts ? ",\"usage\":null}" : "}";
}

std::string ChoicesWriter::whole(const std::vector<WholeChoice>& choices, const AnswerUsage& usage) {
  std::string out = frame_[0];
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) out += ',';
    append_choice(out, i, *choices[i].delta, *choices[i].prompt);
  }
  out += ']';
  append_frame_end(out, choices.front().prompt);
  append_usage(out, usage);
  out += '}';
  return out;
}

void ChoicesWriter::append_usage(std::string& out, const AnswerUsage& usage) const {
  fmt::format_to(std::back_inserter(out),
                 ",\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{},\"prompt_tokens_details\":{{\"cached_tokens\":{}}},"
                 "\"completion_tokens_details\":{{\"reasoning_tokens\":{}",
                 usage.prompt, usage.completion, usage.prompt + usage.completion, usage.cached, usage.reasoning);
  if (usage.predicted)
    fmt::format_to(std::back_inserter(out), ",\"accepted_prediction_tokens\":{},\"rejected_prediction_tokens\":{}", usage.predicted_right,
                   usage.predicted_wrong);
  if (usage.holds) fmt::format_to(std::back_inserter(out), ",\"rolled_back_tokens\":{},\"put_in_tokens\":{}", usage.rolled_back, usage.put_in);
  out += "}}";
}

void ChoicesWriter::append_ids(std::string& out, const std::vector<std::int32_t>& ids) {
  out += '[';
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    append_json_integer(out, ids[i]);
  }
  out += ']';
}

void ChoicesWriter::append_choice_end(std::string& out, const ChoiceDelta& delta) const {
  out += ",\"finish_reason\":";
  if (delta.finish.empty()) out += "null";
  else append_json_string(out, delta.finish);
  const auto list = [&](std::string_view name, auto&& append) {
    out += name;
    bool first = true;
    for (const AnswerToken& token : delta.tokens) {
      if (token.of_prompt) continue;
      if (!first) out += ',';
      first = false;
      append(token);
    }
    out += ']';
  };
  if (shape_.token_ids) list(",\"token_ids\":[", [&](const AnswerToken& token) { append_json_integer(out, token.id); });
  if (shape_.logprobs) list(",\"sampling_logprobs\":[", [&](const AnswerToken& token) { append_json_number(out, token.sampling_logprob); });
}

// Completions.

void CompletionWriter::append_choice_part(std::string& out, std::size_t index, const ChoiceDelta& delta, bool first,
                                          const std::vector<std::int32_t>& prompt) const {
  out += "{\"index\":";
  append_json_integer(out, index);
  out += ",\"text\":";
  append_json_string(out, delta.content);
  out += ",\"logprobs\":";
  if (shape_.logprobs) append_logprobs(out, delta);
  else out += "null";
  append_choice_end(out, delta);
  if (shape_.prompt_token_ids && first) {
    out += ",\"prompt_token_ids\":";
    append_ids(out, prompt);
  }
  out += '}';
}

void CompletionWriter::append_choice(std::string& out, std::size_t index, const ChoiceDelta& delta, const std::vector<std::int32_t>& prompt) const {
  append_choice_part(out, index, delta, true, prompt);
}

void CompletionWriter::append_logprobs(std::string& out, const ChoiceDelta& delta) const {
  const auto list = [&](std::string_view name, auto&& append) {
    out += name;
    for (std::size_t i = 0; i < delta.tokens.size(); ++i) {
      if (i > 0) out += ',';
      append(delta.tokens[i]);
    }
    out += ']';
  };
  const auto text = [&](std::int32_t id) { append_json_string(out, text_of_token(tokenizer_, id)); };
  const auto logprob = [&](const AnswerToken& token) {
    if (token.logprob) append_json_number(out, *token.logprob);
    else out += "null";
  };
  list("{\"tokens\":[", [&](const AnswerToken& token) { text(token.id); });
  list(",\"token_logprobs\":[", logprob);
  if (shape_.top_logprobs)
    list(",\"top_logprobs\":[", [&](const AnswerToken& token) {
      if (!token.logprob) {
        out += "null";
        return;
      }
      // A map by text, as OpenAI's: it always has the token itself, and the likeliest of tokens with the same text.
      std::vector<std::string> names{text_of_token(tokenizer_, token.id)};
      out += '{';
      append_json_string(out, names[0]);
      out += ':';
      logprob(token);
      for (const TokenLogprob& other : token.top) {
        std::string name = text_of_token(tokenizer_, other.id);
        if (std::find(names.begin(), names.end(), name) != names.end()) continue;
        out += ',';
        append_json_string(out, name);
        out += ':';
        append_json_number(out, other.logprob);
        names.push_back(std::move(name));
      }
      out += '}';
    });
  else out += ",\"top_logprobs\":null";
  list(",\"text_offset\":[", [&](const AnswerToken& token) { append_json_integer(out, token.offset); });
  out += '}';
}

// Chat.

void ChatWriter::append_choice_part(std::string& out, std::size_t index, const ChoiceDelta& delta, bool first, const std::vector<std::int32_t>&) const {
  out += "{\"index\":";
  append_json_integer(out, index);
  out += ",\"delta\":{";
  const char* comma = "";
  const auto field = [&](std::string_view name) {
    out += comma;
    out += name;
    comma = ",";
  };
  if (first) field("\"role\":\"assistant\"");
  if (!delta.reasoning.empty()) {
    field("\"reasoning_content\":");
    append_json_string(out, delta.reasoning);
  }
  if (!delta.content.empty() || first) {
    field("\"content\":");
    append_json_string(out, delta.content);  // "" and not null beside calls: which text is in one part depends on timing
  }
  if (!delta.tool_calls.empty()) {
    field("\"tool_calls\":");
    append_tool_calls(out, delta, true);
  }
  out += "},\"logprobs\":";
  if (shape_.logprobs) append_logprobs(out, delta);
  else out += "null";
  append_choice_end(out, delta);
  out += '}';
}

void ChatWriter::append_choice(std::string& out, std::size_t index, const ChoiceDelta& delta, const std::vector<std::int32_t>&) const {
  out += "{\"index\":";
  append_json_integer(out, index);
  out += ",\"message\":{\"role\":\"assistant\",\"content\":";
  if (delta.content.empty() && !delta.tool_calls.empty()) out += "null";
  else append_json_string(out, delta.content);
  out += ",\"refusal\":null";
  if (!delta.reasoning.empty()) {
    out += ",\"reasoning_content\":";
    append_json_string(out, delta.reasoning);
  }
  if (!delta.tool_calls.empty()) {
    out += ",\"tool_calls\":";
    append_tool_calls(out, delta, false);
  }
  out += "},\"logprobs\":";
  if (shape_.logprobs) append_logprobs(out, delta);
  else out += "null";
  append_choice_end(out, delta);
  out += '}';
}

void ChatWriter::append_frame_end(std::string& out, const std::vector<std::int32_t>* prompt) const {
  if (!shape_.prompt_token_ids || prompt == nullptr) return;
  out += ",\"prompt_token_ids\":";
  append_ids(out, *prompt);
}

void ChatWriter::append_token(std::string& out, std::int32_t id, double logprob) const {
  out += "{\"token\":";
  append_json_string(out, text_of_token(tokenizer_, id));
  out += ",\"logprob\":";
  append_json_number(out, logprob);
  out += ",\"bytes\":[";
  const char* comma = "";
  for (const char c : tokenizer_.token_bytes(id)) {
    out += comma;
    append_json_integer(out, static_cast<int>(static_cast<unsigned char>(c)));
    comma = ",";
  }
  out += ']';
}

void ChatWriter::append_logprobs(std::string& out, const ChoiceDelta& delta) const {
  out += "{\"content\":[";
  for (std::size_t i = 0; i < delta.tokens.size(); ++i) {
    const AnswerToken& token = delta.tokens[i];
    if (i > 0) out += ',';
    append_token(out, token.id, token.logprob.value_or(0));
    out += ",\"top_logprobs\":[";
    for (std::size_t j = 0; j < token.top.size(); ++j) {
      if (j > 0) out += ',';
      append_token(out, token.top[j].id, token.top[j].logprob);
      out += '}';
    }
    out += "]}";
  }
  out += "],\"refusal\":null}";
}

void ChatWriter::append_tool_calls(std::string& out, const ChoiceDelta& delta, bool part) const {
  out += '[';
  for (std::size_t i = 0; i < delta.tool_calls.size(); ++i) {
    const ToolCallDelta& call = delta.tool_calls[i];
    out += i > 0 ? ",{" : "{";
    if (part) {
      out += "\"index\":";
      append_json_integer(out, call.index);
      out += ',';
    }
    // The id, the type and the name come once, with the call's first part.
    if (!part || !call.id.empty()) {
      out += "\"id\":";
      append_json_string(out, call.id);
      out += ",\"type\":\"function\",";
    }
    out += "\"function\":{";
    if (!part || !call.name.empty()) {
      out += "\"name\":";
      append_json_string(out, call.name);
      out += ',';
    }
    out += "\"arguments\":";
    append_json_string(out, call.arguments);
    out += "}}";
  }
  out += ']';
}

}  // namespace lockstep
