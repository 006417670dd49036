#include "api/openai/response_answer.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "api/openai/chat_answer.h"
#include "api/openai/response_input.h"
#include "api/openai/response_request.h"
#include "api/openai/response_writer.h"
#include "api/worker.h"
#include "base/bounded_json.h"
#include "base/client_work.h"

namespace lockstep {
namespace {
constexpr std::size_t kItemsAPage = 20, kMostItemsAPage = 100;

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

void ResponseAnswers::fail_unknown(const std::string& field, const std::string& id, int status) const {
  throw RequestError(
      status == 404 ? ErrorCode::not_found : ErrorCode::invalid_argument, field,
      fmt::format("{} is {}, of which there is no response: it was made with another key or with \"store\": false, was deleted, or gave way to newer ones "
                  "(a key keeps its last {}, and {} MiB), or the server was restarted",
                  field, shown(id), StoredResponses::kMost, kept_->most_bytes_of_key() >> 20),
      status, "response_not_found");
}

void ResponseAnswers::create(const ApiRequest& request, const std::shared_ptr<Responder>& out, const std::optional<std::string>& model) const {
  const std::string owner = request.key_name;
  ResponseRequest r = decode_response(
      request.body,
      [&](const std::string& id) {
        const auto previous = kept_->find(owner, id);
        if (!previous) fail_unknown("previous_response_id", id, 400);
        return read_json(previous->messages, {.depth = SIZE_MAX, .key_comparisons = INT64_MAX});  // on the account of whoever asks
      },
      sampling_defaults(service_->model().defaults()));
  if (model) r.chat.sampling.model = *model;
  ClientWork::check();
  const std::string shown = dumped(r.shown);
  StoredResponse stored;
  for (const Json& item : r.items) stored.items.push_back({item.at("id").get<std::string>(), dumped(item)});
  stored.messages = dumped(r.messages);
  const std::size_t held_bytes = shown.size() + stored.bytes();
  for (Json* tree : {&r.shown, &r.items, &r.messages}) *tree = nullptr;
  ClientWork::check();
  ClientWork::take(held_bytes);
  const std::shared_ptr<void> held = ClientWork::hold(held_bytes);  // until the answer is complete
  ResponseWriter::Ended ended = [held](const std::string&, const Json&, const std::string&) {};
  if (r.store)
    // Called on a thread that must not be kept busy: the request's items are text already.
    ended = [kept = kept_, owner, stored = std::move(stored), held](const std::string& id, const Json& output, const std::string& response) mutable {
      ResponseInput talk;  // of the answer alone
      for (const Json& item : output) {
        try {
          talk.read(Json::array({item}), "output");
        } catch (const RequestError&) {
          // A call whose arguments were cut and are no JSON: it cannot be shown to a model, and no client can have run it.
        }
      }
      if (!talk.messages().empty()) stored.messages.replace(stored.messages.size() - 1, 1, "," + dumped(talk.messages()).substr(1));
      stored.response = response;
      kept->put(owner, id, std::move(stored));
    };
  answer_chat(
      service_, std::move(r.chat), owner, out, {}, [&] { return std::make_unique<ResponseWriter>(shown.substr(1, shown.size() - 2), std::move(ended)); },
      streams_);
}

std::shared_ptr<const StoredResponse> ResponseAnswers::kept(const ApiRequest& request) const {
  const std::string id(request.parameter("response_id"));
  auto found = kept_->find(request.key_name, id);
  if (!found) fail_unknown("response_id", id, 404);
  return found;
}

ApiResponse ResponseAnswers::retrieve(const ApiRequest& request) const {
  if (request.query_value("stream").value_or("false") != "false")
    fail_field("stream", "is not false, which is not offered: a kept response comes whole", ErrorCode::unsupported);
  const auto found = kept(request);
  ApiResponse response{200, "application/json", {}, {}};
  response.static_body = found->response;
  response.owner = found;
  return response;
}

ApiResponse ResponseAnswers::erase(const ApiRequest& request) const {
  const std::string id(request.parameter("response_id"));
  if (!kept_->erase(request.key_name, id)) fail_unknown("response_id", id, 404);
  return {200, "application/json", dumped({{"id", id}, {"object", "response"}, {"deleted", true}}), {}};
}

// Of texts as they stand: they may be megabytes, and as a tree of values many times that.
ApiResponse ResponseAnswers::input_items(const ApiRequest& request) const {
  const auto found = kept(request);
  const std::string order = request.query_value("order").value_or("desc");
  if (order != "asc" && order != "desc") fail_field("order", fmt::format("is {}, allowed are asc and desc", shown(order)));
  std::size_t limit = kItemsAPage;
  if (const auto text = request.query_value("limit")) {
    const auto [end, fault] = std::from_chars(text->data(), text->data() + text->size(), limit);
    if (fault != std::errc() || end != text->data() + text->size() || limit < 1 || limit > kMostItemsAPage)
      fail_field("limit", fmt::format("is {}, allowed is an integer from 1 to {}", shown(*text), kMostItemsAPage));
  }
  const std::size_t count = found->items.size();
  const auto item = [&](std::size_t at) -> const StoredItem& { return found->items[order == "desc" ? count - 1 - at : at]; };
  std::size_t first = 0;
  if (const auto after = request.query_value("after")) {
    while (first < count && item(first).id != *after) ++first;
    if (first == count) fail_field("after", fmt::format("is {}, which is no item of this response", shown(*after)));
    ++first;
  }
  const std::size_t last = first + std::min(limit, count - first);
  std::string page = R"({"object":"list","data":[)";
  for (std::size_t i = first; i < last; ++i) page += (i > first ? "," : "") + item(i).json;
  const auto id = [&](std::size_t at) { return first == last ? std::string("null") : dumped(item(at).id); };
  page += fmt::format(R"(],"first_id":{},"last_id":{},"has_more":{}}})", id(first), id(last - 1), last != count);
  return {200, "application/json", std::move(page), {}};
}

}  // namespace lockstep
