// `lockstep generate`: continues one prompt, streaming to stdout.
#include <chrono>
#include <condition_variable>
#include <cstdio>

#include "base/bounded_json.h"
#include "base/entropy.h"
#include "base/error.h"
#include "base/file.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "serving/completion.h"
#include "serving/grammars.h"
#include "serving/served_defaults.h"

namespace lockstep {
namespace {
struct GenerateSettings {
  RuntimeSettings runtime;
  std::optional<std::string> prompt;
  std::optional<std::vector<std::int32_t>> tokens;
  std::int64_t max_tokens = 128;
  std::optional<std::int64_t> top_k;
  std::optional<double> temperature, top_p;
  std::string generation_config = "auto";
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  std::optional<std::string> schema;
  bool json_object = false;
  DraftOptions drafts;
  bool json = false;
};

bool parse(const Arguments& arguments, GenerateSettings& s) {
  OptionTable table("generate", "Continues a prompt; text streams to stdout, up to the model's end token, a stop string or --max-tokens.",
                    {"lockstep generate --model models/countdown-glm --prompt \"16 19 14=17:\" --temperature 0",
                     "lockstep generate --model models/countdown-glm --tokens 1,5,7 --temperature 0 --json"});
  table.text("prompt", &s.prompt, "TEXT", "The prompt; this or --tokens");
  table.integers("tokens", &s.tokens, "IDS", "The prompt as token ids, such as 1,5,7");
  table.integer("max-tokens", &s.max_tokens, 0, 1 << 30, "N", "Most tokens to generate");
  table.number("temperature", &s.temperature, 0, 100, "X", "Sampling temperature; 0: always the likeliest token", "what generation_config.json says, else 1");
  table.number("top-p", &s.top_p, 0, 1, "X", "Sample from the likeliest tokens that together reach this probability",
               "what generation_config.json says, else 1");
  table.integer("top-k", &s.top_k, 0, 1 << 30, "N", "Sample from the N likeliest tokens, 0: all", "what generation_config.json says, else 0");
  table.choice("generation-config", &s.generation_config, {"auto", "none"},
               "Whether the model's generation_config.json sets what is not given here, and what ends an answer");
  table.seed("seed", &s.seed, "Seed of the sampling (default: a new one every time; --json shows it)");
  table.input("schema", &s.schema, "FILE", "Answer with JSON that is valid under this JSON schema (docs/schemas.md)");
  table.flag("json-object", &s.json_object, "Answer with any JSON object");
  table.texts("stop", &s.stop, "TEXT", "Text that ends the answer and is not part of it");
  add_draft_options(table, s.drafts);
  add_runtime_options(table, s.runtime);
  add_ranks_option(table, &s.runtime.ranks);
  add_json_option(table, &s.json, "Print one JSON object at the end: text, token ids, both log-probabilities");
  table.accept_config();
  if (!table.parse(arguments)) return false;
  if (s.prompt.has_value() == s.tokens.has_value()) throw UsageError("exactly one of --prompt and --tokens is needed");
  if (s.schema && s.json_object) throw UsageError("at most one of --schema and --json-object is allowed");
  return true;
}

nlohmann::ordered_json read_schema(const std::string& path) {
  return with_context("reading " + path, [&] {
    try {
      return read_json(read_file(path, std::size_t{1} << 20));
    } catch (const Error& e) {
      fail(e.code(), "the schema {}", e.message());
    }
  });
}

// Filled by callbacks; the main thread waits for it.
struct Answer {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  CompletionEnd end;
  std::string text;
};
}  // namespace

int generate_command(const Arguments& arguments) {
  GenerateSettings s;
  if (!parse(arguments, s)) return kExitOk;
  leave_training_ranks_out(s.runtime.ranks);
  install_interrupt_handlers();
  const OpenedModel opened = open_model(s.runtime);
  ServingOptions serving{.max_open = 1};
  serving.engine.ranks = opened.ranks;
  serving.engine.drafts = s.drafts;
  ServingModel model = serving_model(opened);
  add_generation_config(model, s.runtime.model, s.generation_config);
  const GenerationDefaults defaults = model.defaults;
  GenerationService service(std::move(model), serving);
  const std::uint64_t seed = s.seed.value_or(random_seed());

  CompletionOrder order;
  order.prompts.push_back({s.tokens ? *s.tokens : service.model().tokenizer().encode(*s.prompt, true), s.tokens ? "--tokens" : "--prompt"});
  order.sampling.temperature = s.temperature ? static_cast<float>(*s.temperature) : defaults.temperature.value_or(1);
  order.sampling.top_p = s.top_p ? static_cast<float>(*s.top_p) : defaults.top_p.value_or(1);
  order.sampling.top_k = s.top_k ? static_cast<std::int32_t>(*s.top_k) : defaults.top_k.value_or(0);
  order.sampling.min_p = defaults.min_p.value_or(0);
  order.sampling.repetition_penalty = defaults.repetition_penalty.value_or(1);
  order.sampling.presence_penalty = defaults.presence_penalty.value_or(0);
  order.sampling.frequency_penalty = defaults.frequency_penalty.value_or(0);
  order.sampling.seed = seed;
  order.max_tokens = s.max_tokens;
  order.stops = s.stop;
  order.spelling = {{"max_tokens", "--max-tokens"}, {"temperature", "--temperature"}, {"top_p", "--top-p"}, {"top_k", "--top-k"}, {"stop", "--stop"}};
  if (s.schema || s.json_object) {
    Grammars grammars(opened.tokenizer, service.model().end_tokens());
    order.make_constraint = [grammar = s.schema ? grammars.of_schema(read_schema(*s.schema)) : grammars.json_object()] { return make_constraint(grammar); };
  }
  if (!opened.tokenizer && !s.stop.empty()) fail(ErrorCode::unsupported, "--stop needs a tokenizer.json, and '{}' has none", s.runtime.model);

  Answer answer;
  const auto show = [&](const std::string& part) {
    answer.text += part;
    if (s.json || part.empty()) return;
    std::fwrite(part.data(), 1, part.size(), stdout);
    std::fflush(stdout);
  };
  // A model without a tokenizer answers in token ids.
  const auto on_token = [&](const OnExecutor&, std::size_t, const GeneratedToken& token, const std::string& text) {
    show(opened.tokenizer ? text : fmt::format("{}{}", answer.text.empty() ? "" : ",", token.id));
    return true;
  };
  const auto on_end = [&](const OnExecutor&, std::size_t, CompletionEnd&& end) {
    show(end.text);
    const std::lock_guard lock(answer.mutex);
    answer.end = std::move(end);
    answer.done = true;
    answer.changed.notify_all();
  };
  const std::uint64_t id = start_completion(service, order, on_token, on_end).front();
  {
    std::unique_lock lock(answer.mutex);
    for (bool cancelled = false; !answer.done;) {
      answer.changed.wait_for(lock, std::chrono::milliseconds(50));
      if (answer.done || cancelled || !interrupted()) continue;
      cancelled = true;
      lock.unlock();
      service.cancel(id);
      lock.lock();
    }
  }
  const Generation& g = answer.end.generation;
  if (!s.json) std::fputs("\n", stdout);
  throw_if_interrupted();
  if (answer.end.finish == FinishReason::error) fail(ErrorCode::numeric, "generation failed after {} tokens: {}", g.tokens.size(), g.error);
  if (!s.json) return kExitOk;

  nlohmann::ordered_json json{{"text", opened.tokenizer ? nlohmann::ordered_json(answer.text) : nlohmann::ordered_json(nullptr)},
                              {"token_ids", nlohmann::ordered_json::array()},
                              {"logprobs", nlohmann::ordered_json::array()},
                              {"sampling_logprobs", nlohmann::ordered_json::array()},
                              {"finish_reason", finish_reason_name(answer.end.finish)},
                              {"prompt_token_ids", order.prompts.front().ids},
                              {"seed", seed},
                              {"weights_version", service.weights().version()},
                              {"profile", service.model().profile_digest()}};
  for (const GeneratedToken& token : g.tokens) {
    json["token_ids"].push_back(token.id);
    json["logprobs"].push_back(token.raw_logprob);
    json["sampling_logprobs"].push_back(token.sampling_logprob);
  }
  std::printf("%s\n", json.dump().c_str());
  return kExitOk;
}

}  // namespace lockstep
