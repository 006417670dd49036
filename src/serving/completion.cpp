#include "serving/completion.h"

#include <algorithm>

#include "serving/context_limit.h"
#include "serving/token_constraints.h"

namespace lockstep {
namespace {
// Fields that the engine's errors begin with and a wire has.
constexpr std::string_view kEngineFields[] = {
    "prompt",           "stop_tokens",       "max_tokens",         "top_logprobs", "temperature",    "top_p",        "top_k",       "min_p",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias",   "prompt_targets", "prompt_draws", "kept_tokens", "prediction",
    "attempt"};

// As `spelling` has it: "stop_token_ids" for "stop_tokens".
std::string spelled(const Spelling& spelling, std::string_view field) {
  const auto found = spelling.find(field);
  return found == spelling.end() ? std::string(field) : found->second;
}

// The engine's complaint in the words of the wire.
[[noreturn]] void fail_respelled(const CompletionOrder& order, const CompletionOrder::Prompt& prompt, const Error& error) {
  std::string message = error.message();
  const std::string word = message.substr(0, message.find_first_of(" [."));
  if (std::find(std::begin(kEngineFields), std::end(kEngineFields), word) == std::end(kEngineFields)) throw OrderError(error.code(), {}, message);
  const std::string name = word == "prompt" ? prompt.field : spelled(order.spelling, word);
  throw OrderError(error.code(), name, message.replace(0, word.size(), name));
}

void check_stops(const CompletionOrder& order, const GenerationService& service) {
  if (order.stop_tokens.size() > CompletionOrder::kMostStops)
    fail_order(order, "stop_tokens", fmt::format("has {} token ids, allowed are at most {}", order.stop_tokens.size(), CompletionOrder::kMostStops));
  if (order.stops.empty()) return;
  if (order.stops.size() > CompletionOrder::kMostStops)
    fail_order(order, "stop", fmt::format("has {} texts, allowed are at most {}", order.stops.size(), CompletionOrder::kMostStops));
  for (const std::string& stop : order.stops)
    if (stop.empty() || stop.size() > CompletionOrder::kLongestStop)
      fail_order(order, "stop", fmt::format("has a text of {} bytes, allowed are 1 to {}", stop.size(), CompletionOrder::kLongestStop));
  service.model().tokenizer();  // an error without one
}

void check_sources(const CompletionOrder& order, const DraftOptions& drafts, const GenerationService& service) {
  const std::string name = spelled(order.spelling, "speculative.mode");
  try {
    check_draft_sources(drafts, service.drafts_with_layer(), name);
  } catch (const Error& e) {
    throw OrderError(e.code(), name, e.message());
  }
  const std::string acceptance = spelled(order.spelling, "speculative.acceptance");
  try {
    check_acceptance(drafts, acceptance);
  } catch (const Error& e) {
    throw OrderError(e.code(), acceptance, e.message());
  }
}

std::int64_t tokens_of(const CompletionOrder& order, const CompletionOrder::Prompt& prompt, std::int64_t context) {
  const auto length = static_cast<std::int64_t>(prompt.ids.size());
  const std::int64_t least = !order.max_tokens ? 1 : order.shorten ? order.least_tokens : *order.max_tokens;
  if (length + least > context) {
    // Clients know this code and these words, and cut the conversation.
    const bool prompt_alone = !order.max_tokens || order.shorten || length > context;
    const std::string name = prompt_alone ? prompt.field : spelled(order.spelling, "max_tokens");
    const std::string asked = !prompt_alone ? fmt::format("{} is {} behind a prompt of {} tokens", name, least, length)
                              : least > 0   ? fmt::format("{} makes {} tokens, and the answer has {} or more", name, length, least)
                                            : fmt::format("{} makes {} tokens", name, length);
    throw OrderError(ErrorCode::invalid_argument, name, fmt::format("{}; this model's maximum context length is {} tokens", asked, context),
                     "context_length_exceeded");
  }
  return std::min(order.max_tokens.value_or(context), context - length);
}
}  // namespace

void fail_order(const CompletionOrder& order, std::string_view field, const std::string& problem) {
  const std::string name = spelled(order.spelling, field);
  throw OrderError(ErrorCode::invalid_argument, name, name + " " + problem);
}

std::vector<std::int32_t> end_tokens_of(const CompletionOrder& order, const GenerationService& service) {
  std::vector<std::int32_t> ends = order.stop_tokens;
  if (order.model_ends || order.make_constraint) ends.insert(ends.end(), service.model().end_tokens().begin(), service.model().end_tokens().end());
  return ends;
}

std::shared_ptr<TokenConstraint> constraint_of_sample(const CompletionOrder& order, const GenerationService& service, const std::vector<std::int32_t>& ends) {
  std::shared_ptr<TokenConstraint> constraint = order.make_constraint ? order.make_constraint() : nullptr;
  if (order.min_tokens == 0 || ends.empty()) return constraint;
  return std::make_shared<MinTokens>(std::move(constraint), ends, order.min_tokens, service.limits().vocabulary);
}

std::vector<Request> requests_of(const CompletionOrder& order, const GenerationService& service) {
  if (order.samples < 1 || order.samples > CompletionOrder::kMostSamples)
    fail_order(order, "samples", fmt::format("is {}, allowed is 1 to {}", order.samples, CompletionOrder::kMostSamples));
  const std::int64_t all = order.samples * static_cast<std::int64_t>(order.prompts.size());
  if (all > service.bounds().max_open())
    fail_order(order, "samples", fmt::format("asks for {} choices, allowed are at most {} at a time", all, service.bounds().max_open()));
  check_stops(order, service);
  const std::vector<std::int32_t> ends = end_tokens_of(order, service);
  const std::int64_t context = longest_request(service.limits());
  const DraftOptions drafts = order.drafts.options(service.options().engine.drafts);
  check_sources(order, drafts, service);
  std::vector<std::int32_t> prediction = order.drafts.ids;
  if (order.drafts.text && service.model().has_tokenizer()) prediction = service.model().tokenizer().encode(*order.drafts.text, false);
  if (prediction.size() > Request::kMaxPrediction) prediction.resize(Request::kMaxPrediction);
  std::vector<Request> requests;
  for (const CompletionOrder::Prompt& prompt : order.prompts) {
    Request request{.prompt = prompt.ids,
                    .sampling = order.sampling,
                    .prompt_logprobs = order.prompt_logprobs,
                    .weights = order.weights,
                    .adapter = order.adapter,
                    .prompt_targets = order.prompt_targets,
                    .prompt_targets_per_row = order.prompt_targets_per_row,
                    .prompt_draws = order.prompt_draws,
                    .experts = order.experts,
                    .kept_tokens = order.kept_tokens,
                    .keep_forward = order.keep_forward,
                    .prefix_owner = order.prefix_owner,
                    .account = order.account,
                    .drafts = drafts,
                    .prediction = prediction};
    request.sampling.max_tokens = static_cast<std::int32_t>(tokens_of(order, prompt, context));
    request.sampling.stop_tokens = ends;
    try {
      service.check(request);
    } catch (const Error& e) {
      fail_respelled(order, prompt, e);
    }
    for (std::int64_t i = 0; i < order.samples; ++i) {
      request.sampling.sample_index = order.sampling.sample_index + static_cast<std::int32_t>(requests.size());  // of the whole order: equal prompts differ
      request.sampling.constraint = constraint_of_sample(order, service, ends);
      requests.push_back(request);
      if (!order.prompt_told_once) continue;
      request.prompt_logprobs = false;
      request.prompt_targets = {};
      request.prompt_targets_per_row = request.prompt_draws = 0;
    }
  }
  return requests;
}

namespace {
struct CompletionRun {
  std::vector<TextStream> texts;  // one a sample; none: nobody wants text, or there is no tokenizer
  std::vector<std::int32_t> ends;
  OnSampleToken on_token;
  OnSampleEnd on_end;

  bool token(const OnExecutor& on, std::size_t sample, const GeneratedToken& token) {
    std::string text;
    bool more = true;
    if (!texts.empty() && std::find(ends.begin(), ends.end(), token.id) == ends.end()) {
      text = texts[sample].push(token.id);
      more = !texts[sample].stopped();
    }
    if (on_token) more = on_token(on, sample, token, std::move(text)) && more;
    return more;
  }
  void end(const OnExecutor& on, std::size_t sample, Generation&& generation) {
    CompletionEnd end{{}, generation.finish, std::move(generation)};
    if (!texts.empty()) {
      end.text = texts[sample].flush();
      if (end.finish == FinishReason::length && texts[sample].stopped()) end.finish = FinishReason::stop;
    }
    on_end(on, sample, std::move(end));
  }
};
}  // namespace

std::vector<std::uint64_t> start_completion(GenerationService& service, const CompletionOrder& order, OnSampleToken on_token, OnSampleEnd on_end) {
  if (order.holds.any()) fail_order(order, "hold", "is not offered here");
  std::vector<Request> requests = requests_of(order, service);
  const auto run = std::make_shared<CompletionRun>(CompletionRun{{}, end_tokens_of(order, service), std::move(on_token), std::move(on_end)});
  if (!order.stops.empty() || (run->on_token && service.model().has_tokenizer())) {
    const auto stops = std::make_shared<const StopStrings>(order.stops);
    run->texts.reserve(requests.size());
    for (const Request& request : requests) {
      run->texts.emplace_back(service.model().tokenizer(), stops, order.special);
      run->texts.back().begin_after(request.prompt);
    }
  }
  GenerationService::OnTokenOf token;
  // Whom nobody listens to takes no turn of the executor.
  if (run->on_token || !run->texts.empty()) token = [run](const OnExecutor& on, std::size_t i, const GeneratedToken& t) { return run->token(on, i, t); };
  return service.generate_all(std::move(requests), std::move(token),
                              [run](const OnExecutor& on, std::size_t i, Generation&& g) { run->end(on, i, std::move(g)); });
}

}  // namespace lockstep
