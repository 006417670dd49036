#include "api/openai/response_writer.h"

#include "api/errors.h"
#include "api/json_text.h"

namespace lockstep {
namespace {
std::string text_of_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json text_part(const std::string& text) { return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}}; }
Json reasoning_part(const std::string& text) { return {{"type", "reasoning_text"}, {"text", text}}; }
}  // namespace

void ResponseWriter::set_head(const AnswerHead& head) {
  head_ = head;
  origin_.clear();
  if (head.mixed_versions) origin_ += ",\"mixed_versions\":true";
  if (head.snapshot.empty()) return;
  origin_ += ",\"snapshot\":";
  append_json_string(origin_, head.snapshot);
}

void ResponseWriter::event(std::string& out, std::string_view type, Json fields) {
  if (!streams_) return;
  Json json{{"type", type}, {"sequence_number", sequence_++}};
  json.update(fields);
  std::string text = text_of_json(json);
  text.pop_back();  // the closing brace
  out += fmt::format("event: {}\ndata: {}{}}}\n\n", type, text, origin_);
}

void ResponseWriter::response_event(std::string& out, std::string_view type, std::string_view response) {
  if (streams_)
    out += fmt::format("event: {0}\ndata: {{\"type\":\"{0}\",\"sequence_number\":{1},\"response\":{2}{3}}}\n\n", type, sequence_++, response, origin_);
}

// Writes the event of each token directly, without a tree of JSON values.
void ResponseWriter::text_delta(std::string& out, std::size_t item, std::string_view type, const std::string& text) {
  items_[item].text += text;
  if (!streams_) return;
  out += fmt::format("event: {0}\ndata: {{\"type\":\"{0}\",\"sequence_number\":{1},\"item_id\":\"{2}\",\"output_index\":{3},", type, sequence_++,
                     items_[item].json["id"].get_ref<const std::string&>(), item);
  if (items_[item].kind != Item::Kind::call) out += "\"content_index\":0,";
  if (items_[item].kind == Item::Kind::message) out += "\"logprobs\":[],";
  out += "\"delta\":";
  append_json_string(out, text);
  out += origin_ + "}\n\n";
}

std::size_t ResponseWriter::begin(std::string& out, Item::Kind kind, Json json) {
  const std::size_t index = items_.size();
  items_.push_back({kind, std::move(json), {}});
  event(out, "response.output_item.added", {{"output_index", index}, {"item", items_[index].json}});
  const Json place{{"item_id", items_[index].json["id"]}, {"output_index", index}, {"content_index", 0}};
  Json added = place;
  if (kind == Item::Kind::message) added["part"] = text_part("");
  if (kind == Item::Kind::reasoning) added["part"] = reasoning_part("");
  if (kind != Item::Kind::call) event(out, "response.content_part.added", std::move(added));
  return index;
}

void ResponseWriter::end_item(std::string& out, std::size_t index, bool cut) {
  Item& item = items_[index];
  if (!item.open) return;
  item.open = false;
  Json done{{"item_id", item.json["id"]}, {"output_index", index}};
  if (item.kind == Item::Kind::call) {
    item.json["arguments"] = item.text;
    done["arguments"] = item.text;
    done["name"] = item.json["name"];
    event(out, "response.function_call_arguments.done", std::move(done));
  } else {
    const bool message = item.kind == Item::Kind::message;
    done["content_index"] = 0;
    Json part = done;
    done["text"] = item.text;
    if (message) done["logprobs"] = Json::array();
    event(out, message ? "response.output_text.done" : "response.reasoning_text.done", std::move(done));
    part["part"] = message ? text_part(item.text) : reasoning_part(item.text);
    item.json["content"] = Json::array({part["part"]});
    event(out, "response.content_part.done", std::move(part));
  }
  item.json["status"] = cut ? "incomplete" : "completed";
  event(out, "response.output_item.done", {{"output_index", index}, {"item", item.json}});
}

void ResponseWriter::end_all(std::string& out, bool cut) {
  for (std::size_t i = 0; i < items_.size(); ++i) end_item(out, i, cut && i + 1 == items_.size());
}

void ResponseWriter::begin_response(std::string& out) {
  if (std::exchange(begun_, true)) return;
  const std::string begun = streams_ ? response("in_progress", output()) : std::string();
  response_event(out, "response.created", begun);
  response_event(out, "response.in_progress", begun);
}

void ResponseWriter::append_event(std::string& out, std::size_t, const ChoiceDelta& delta, bool, const std::vector<std::int32_t>&) {
  begin_response(out);
  append_delta(out, delta);
}

void ResponseWriter::append_hold(std::string& out, std::size_t, const HoldNotice& hold) {
  begin_response(out);
  out += fmt::format("event: response.hold\ndata: {{\"type\":\"response.hold\",\"sequence_number\":{},\"hold\":{}{}}}\n\n", sequence_++, hold.json, origin_);
  if (!hold.stands) return;
  items_.clear();
  calls_.clear();
  reasoning_.reset();
  message_.reset();
  append_delta(out, hold.message);
}

void ResponseWriter::append_delta(std::string& out, const ChoiceDelta& delta) {
  const auto id = [&](std::string_view prefix) { return fmt::format("{}{}_{}", prefix, head_.id.substr(id_prefix().size()), items_.size()); };
  if (!delta.reasoning.empty()) {
    if (!reasoning_)
      reasoning_ = begin(out, Item::Kind::reasoning,
                         {{"id", id("rs_")}, {"type", "reasoning"}, {"summary", Json::array()}, {"content", Json::array()}, {"status", "in_progress"}});
    text_delta(out, *reasoning_, "response.reasoning_text.delta", delta.reasoning);
  }
  if (reasoning_ && (!delta.content.empty() || !delta.tool_calls.empty())) end_item(out, *std::exchange(reasoning_, std::nullopt), false);
  if (!delta.content.empty()) {
    if (!message_)
      message_ = begin(out, Item::Kind::message,
                       {{"id", id("msg_")}, {"type", "message"}, {"status", "in_progress"}, {"role", "assistant"}, {"content", Json::array()}});
    text_delta(out, *message_, "response.output_text.delta", delta.content);
  }
  for (const ToolCallDelta& call : delta.tool_calls) {
    const auto index = static_cast<std::size_t>(call.index);
    if (!calls_.contains(index)) {
      if (!calls_.empty()) end_item(out, calls_.rbegin()->second, false);
      calls_[index] =
          begin(out, Item::Kind::call,
                {{"id", id("fc_")}, {"type", "function_call"}, {"status", "in_progress"}, {"call_id", call.id}, {"name", call.name}, {"arguments", ""}});
    }
    if (!call.arguments.empty()) text_delta(out, calls_[index], "response.function_call_arguments.delta", call.arguments);
  }
  if (!delta.finish.empty()) finish_ = delta.finish;
}

Json ResponseWriter::output() const {
  Json output = Json::array();
  for (const Item& item : items_)
    if (!item.open) output.push_back(item.json);
  return output;
}

std::string ResponseWriter::response(std::string_view status, Json output) const {
  Json json{{"id", head_.id}, {"object", "response"}, {"created_at", head_.created}, {"status", status}, {"background", false}, {"error", failure_}};
  json["incomplete_details"] = status == "incomplete" ? Json{{"reason", "max_output_tokens"}} : Json();
  json["model"] = head_.model;
  json["output"] = std::move(output);
  std::string text = text_of_json(json);
  json = Json::object();
  if (usage_)
    json["usage"] = {{"input_tokens", usage_->prompt},
                     {"input_tokens_details", {{"cached_tokens", usage_->cached}, {"cache_write_tokens", 0}}},  // nothing is charged for writing
                     {"output_tokens", usage_->completion},
                     {"output_tokens_details", {{"reasoning_tokens", usage_->reasoning}}},
                     {"total_tokens", usage_->prompt + usage_->completion}};
  else json["usage"] = nullptr;
  if (usage_ && usage_->holds) json["usage"]["output_tokens_details"].update({{"rolled_back_tokens", usage_->rolled_back}, {"put_in_tokens", usage_->put_in}});
  json["service_tier"] = head_.service_tier;
  json["seed"] = head_.seed;
  json["weights_version"] = head_.weights_version;
  json["profile"] = head_.profile;
  if (!head_.snapshot.empty()) json["snapshot"] = head_.snapshot;
  if (head_.mixed_versions) json["mixed_versions"] = true;
  text.back() = ',';
  return text + shown_ + "," + text_of_json(json).substr(1);
}

void ResponseWriter::append_end(std::string& out, const AnswerUsage& usage) {
  const bool cut = finish_ == "length";
  if (items_.empty()) {  // an empty answer has one message without text
    message_ = begin(out, Item::Kind::message,
                     {{"id", "msg_" + head_.id.substr(id_prefix().size())},
                      {"type", "message"},
                      {"status", "in_progress"},
                      {"role", "assistant"},
                      {"content", Json::array()}});
  }
  end_all(out, cut);
  usage_ = usage;
  const std::string_view status = cut ? "incomplete" : "completed";
  const Json items = output();
  std::string whole = response(status, items);
  ended_(head_.id, items, whole);
  if (!streams_) out = std::move(whole);
  else response_event(out, fmt::format("response.{}", status), whole);
}

void ResponseWriter::append_failure(std::string& out, const Error& error) {
  end_all(out, true);
  const auto* request = dynamic_cast<const RequestError*>(&error);
  const bool named = request && !request->word().empty();  // as hold_expired
  failure_ = {{"code", named ? request->word() : "server_error"}, {"message", Json::parse(error_body(error))["error"]["message"]}};
  response_event(out, "response.failed", response("failed", output()));
}

std::string ResponseWriter::whole(const std::vector<WholeChoice>& choices, const AnswerUsage& usage) {
  streams_ = false;
  std::string out;
  append_event(out, 0, *choices.front().delta, true, *choices.front().prompt);
  append_end(out, usage);
  return out;
}

}  // namespace lockstep
