#include "api/openai/completion_run.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "base/hash.h"

namespace lockstep {
namespace {
std::uint64_t entropy() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}

// The engine names its own fields; the client knows OpenAI's.
std::string param_of(std::string_view message, const std::string& prompt_field) {
  const std::string_view word = message.substr(0, message.find_first_of(" ["));
  if (word == "prompt") return prompt_field;
  if (word == "stop_tokens") return "stop_token_ids";
  for (std::string_view known : {"max_tokens", "temperature", "top_p", "top_k"})
    if (word == known) return std::string(word);
  return {};
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }
}  // namespace

CompletionRun::CompletionRun(std::shared_ptr<GenerationService> service, CompletionRequest request, std::shared_ptr<Responder> responder)
    : service_(std::move(service)), request_(std::move(request)), responder_(std::move(responder)) {
  id_ = "cmpl-" + hex64(entropy()) + hex64(entropy()).substr(0, 8);
  created_ = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  seed_ = request_.seed.value_or(entropy() >> 11);  // 53 bits: what every JSON reader gets back exactly
}

std::vector<Request> CompletionRun::requests() {
  std::vector<Request> requests;
  for (CompletionRequest::Prompt& prompt : request_.prompts) {
    if (prompt.is_text) prompt.ids = service_->tokenizer().encode(prompt.text, true);
    prompt_tokens_ += static_cast<std::int64_t>(prompt.ids.size());
    Request request{.prompt = std::move(prompt.ids),
                    .sampling = {.temperature = request_.temperature,
                                 .top_p = request_.top_p,
                                 .top_k = static_cast<std::int32_t>(request_.top_k),
                                 .seed = seed_,
                                 .max_tokens = static_cast<std::int32_t>(request_.max_tokens),
                                 .stop_tokens = service_->end_tokens()}};
    std::vector<std::int32_t>& stops = request.sampling.stop_tokens;
    stops.insert(stops.end(), request_.stop_token_ids.begin(), request_.stop_token_ids.end());
    try {
      service_->check(request);
    } catch (const Error& e) {
      throw RequestError(e.code(), param_of(e.message(), prompt.field), e.message());
    }
    for (std::int64_t i = 0; i < request_.n; ++i) {
      request.sampling.sample_index = static_cast<std::int32_t>(requests.size());  // of the whole request: equal prompts differ
      requests.push_back(request);
    }
  }
  return requests;
}

void CompletionRun::start() {
  std::vector<Request> all = requests();
  if (static_cast<std::int64_t>(all.size()) > service_->max_open())
    fail_field("n", fmt::format("asks for {} choices, allowed are at most {} at a time", all.size(), service_->max_open()));
  const Tokenizer& tokenizer = service_->tokenizer();
  for (std::size_t i = 0; i < all.size(); ++i)
    choices_.push_back({.text = TextStream(tokenizer, request_.stop), .characters = Detokenizer(tokenizer, true)});
  open_ = all.size();
  const auto self = shared_from_this();
  std::vector<std::uint64_t> ids = service_->generate_all(
      std::move(all), [self](std::size_t i, const GeneratedToken& token) { return self->on_token(i, token); },
      [self](std::size_t i, Generation&& generation) { self->on_done(i, std::move(generation)); });
  {
    const std::lock_guard lock(mutex_);
    ids_ = std::move(ids);
  }
  responder_->on_abandoned([weak = weak_from_this()] {
    if (const auto run = weak.lock()) run->abandon();
  });
}

void CompletionRun::abandon() {
  std::vector<std::uint64_t> ids;
  {
    const std::lock_guard lock(mutex_);
    ids.swap(ids_);
  }
  for (const std::uint64_t id : ids) service_->cancel(id);
}

bool CompletionRun::on_token(std::size_t index, const GeneratedToken& token) {
  if (failed_) return false;
  Choice& choice = choices_[index];
  choice.shown.tokens.push_back(token);
  choice.shown.offsets.push_back(choice.offset);
  choice.offset += count_characters(choice.characters.push(token.id));
  choice.shown.text += choice.text.push(token.id);
  ++choice.completion_tokens;
  mixed_versions_ = mixed_versions_ || (any_token_ && token.weights_version != weights_version_);
  weights_version_ = std::max(weights_version_, token.weights_version);
  any_token_ = true;
  if (request_.stream) {
    send_event(answer_json(Json::array({choice_json(index, choice.shown, {})})));
    choice.shown = {};
  }
  return !choice.text.stopped();
}

void CompletionRun::on_done(std::size_t index, Generation&& generation) {
  if (failed_) return;
  Choice& choice = choices_[index];
  if (generation.finish == FinishReason::error) return fail_with(Error(ErrorCode::numeric, generation.error));
  if (generation.finish == FinishReason::cancelled)
    return fail_with(Error(ErrorCode::cancelled, "the server is stopping; the request was not finished"));
  choice.shown.text += choice.text.flush();
  choice.finish = generation.finish == FinishReason::stop || choice.text.stopped() ? "stop" : "length";
  --open_;
  if (!any_token_) weights_version_ = service_->weights_version();
  if (request_.stream) {
    send_event(answer_json(Json::array({choice_json(index, choice.shown, choice.finish)})));
    if (open_ > 0) return;
    if (request_.include_usage) {
      Json last = answer_json(Json::array());
      last["usage"] = usage_json();
      send_event(last);
    }
    responder_->stream("data: [DONE]\n\n");
    return responder_->end_stream();
  }
  if (open_ > 0) return;
  Json choices = Json::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) choices.push_back(choice_json(i, choices_[i].shown, choices_[i].finish));
  Json answer = answer_json(std::move(choices));
  answer["usage"] = usage_json();
  responder_->send({200, "application/json", dump(answer), {}});
}

void CompletionRun::fail_with(const Error& error) {
  failed_ = true;
  if (streaming_) {
    responder_->stream("data: " + error_body(error) + "\n\n");
    responder_->end_stream();
  } else {
    responder_->send(error_response(error));
  }
  abandon();
}

Json CompletionRun::choice_json(std::size_t index, const Shown& shown, const std::string& finish) const {
  Json json{{"index", index}, {"text", shown.text}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  if (!finish.empty()) json["finish_reason"] = finish;
  Json ids = Json::array();
  for (const GeneratedToken& token : shown.tokens) ids.push_back(token.id);
  json["token_ids"] = std::move(ids);
  if (!request_.logprobs) return json;
  json["logprobs"] = logprobs_json(shown);
  Json sampling = Json::array();
  for (const GeneratedToken& token : shown.tokens) sampling.push_back(token.sampling_logprob);
  json["sampling_logprobs"] = std::move(sampling);
  return json;
}

Json CompletionRun::logprobs_json(const Shown& shown) const {
  Json tokens = Json::array(), logprobs = Json::array(), top = Json::array(), offsets = Json::array();
  for (std::size_t i = 0; i < shown.tokens.size(); ++i) {
    const GeneratedToken& token = shown.tokens[i];
    const std::string text = service_->tokenizer().decode({&token.id, 1}, false);
    tokens.push_back(text);
    logprobs.push_back(token.raw_logprob);
    top.push_back(Json{{text, token.raw_logprob}});
    offsets.push_back(shown.offsets[i]);
  }
  Json json{{"tokens", std::move(tokens)}, {"token_logprobs", std::move(logprobs)}, {"top_logprobs", nullptr}, {"text_offset", std::move(offsets)}};
  if (request_.top_logprobs) json["top_logprobs"] = std::move(top);
  return json;
}

Json CompletionRun::answer_json(Json choices) const {
  Json json{{"id", id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", service_->name()},
            {"choices", std::move(choices)},
            {"seed", seed_},
            {"weights_version", weights_version_},
            {"profile", service_->profile_digest()}};
  if (mixed_versions_) json["mixed_versions"] = true;
  return json;
}

Json CompletionRun::usage_json() const {
  std::size_t completion = 0;
  for (const Choice& choice : choices_) completion += choice.completion_tokens;
  const auto tokens = static_cast<std::int64_t>(completion);
  return {{"prompt_tokens", prompt_tokens_}, {"completion_tokens", tokens}, {"total_tokens", prompt_tokens_ + tokens}};
}

void CompletionRun::send_event(const Json& json) {
  if (!streaming_) responder_->begin_stream("text/event-stream");
  streaming_ = true;
  responder_->stream("data: " + dump(json) + "\n\n");
}

}  // namespace lockstep
