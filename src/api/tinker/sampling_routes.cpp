// Samplers and samples.
#include <algorithm>

#include "api/errors.h"
#include "api/sampling_values.h"
#include "api/tinker/body_head.h"
#include "api/tinker/proto_codec.h"
#include "api/tinker/tinker_routes.h"

namespace lockstep {
namespace {

std::vector<std::int32_t> prompt_tokens(const TrainingJson& prompt) {
  std::vector<std::int32_t> tokens;
  if (!prompt.contains("chunks") || !prompt["chunks"].is_array()) fail_value("prompt.chunks", "is missing, or no list");
  for (std::size_t c = 0; c < prompt["chunks"].size(); ++c) {
    const TrainingJson& chunk = prompt["chunks"][c];
    const std::string name = fmt::format("prompt.chunks[{}]", c);
    if (!chunk.is_object()) fail_value(name, "is no object");
    if (const std::string type = text_field(chunk, "type", "encoded_text"); type != "encoded_text")
      fail_value(name + ".type", fmt::format("is '{}', allowed is encoded_text: the model takes tokens only", shown(type)));
    check_text_chunk(chunk, name);
    if (!chunk.contains("tokens") || !chunk["tokens"].is_array()) fail_value(name + ".tokens", "is missing, or no list");
    read_value(chunk, "tokens", name + ".", [&](const TrainingJson& value, const std::string& field) {
      for (const std::int32_t id : json_token_ids(value, field)) tokens.push_back(id);
    });
  }
  return tokens;
}

SamplingRequest sample_request(const TrainingJson& json, std::int64_t vocabulary) {
  SamplingRequest out;
  out.prompt = prompt_tokens(object_field(json, "prompt"));
  out.num_samples = integer_field(json, "num_samples", 1);
  const TrainingJson sampling = object_field(json, "sampling_params");
  const auto read = [&](const char* name, const auto& reader) { read_value(sampling, name, "sampling_params.", reader); };
  const auto number = [&](const char* name, const auto& reader) { read_number(sampling, name, "sampling_params.", reader); };
  read("max_tokens", [&](const TrainingJson& value, const std::string& field) { out.max_tokens = json_integer(value, field, 1, kMostId); });
  read("seed", [&](const TrainingJson& value, const std::string& field) { out.seed = seed_value(value, field); });
  number("temperature", [&](const TrainingJson& value, const std::string& field) { out.temperature = temperature_value(value, field); });
  number("top_p", [&](const TrainingJson& value, const std::string& field) { out.top_p = top_p_value(value, field); });
  number("top_k", [&](const TrainingJson& value, const std::string& field) { out.top_k = top_k_value(value, field); });
  read("stop", [&](const TrainingJson& stop, const std::string& field) {
    const auto all = [&](const auto& holds) { return stop.is_array() && std::all_of(stop.begin(), stop.end(), holds); };
    if (stop.is_string()) out.stop_texts = std::vector<std::string>{stop.get<std::string>()};
    else if (all([](const auto& s) { return s.is_string(); })) out.stop_texts = stop.get<std::vector<std::string>>();
    else if (all([](const auto& s) { return s.is_number(); })) out.stop_tokens = json_token_ids(stop, field, vocabulary - 1);
    else fail_field(field, fmt::format("is {}, allowed is a text, a list of texts, or a list of token ids", describe_json(stop)));
  });
  out.prompt_logprobs = boolean_field(json, "prompt_logprobs", false);
  out.prompt_logprobs_last_n = optional_integer(json, "prompt_logprobs_last_n");
  out.topk_prompt_logprobs = integer_field(json, "topk_prompt_logprobs", 0);
  out.topk_sample_logprobs = integer_field(json, "topk_sample_logprobs", 0);
  out.prompt_draws = integer_field(json, "prompt_alt_tokens_k", 0);
  if (json.contains("keep_forward") && !json["keep_forward"].is_null()) out.keep_forward = boolean_field(json, "keep_forward", false);
  return out;
}

// Checks that the sampler is the caller's, before a long prompt takes memory. (The sample checks again.)
void check_sampler_of_body(const TrainingCall& call) {
  if (call.is_short()) return;
  const std::unique_ptr<ByteSource> head = call.body();
  if (const std::optional<std::string> sampler = json_field(*head, "sampling_session_id")) call.service.samplers().find(call.owner, *sampler);
}

void start_sample(const TrainingCall& call) {
  check_sampler_of_body(call);
  const TrainingJson json = call.json();
  SamplingRequest wanted = sample_request(json, call.service.base().opened.model->facts().vocabulary);
  SampleForm form{wanted.topk_prompt_logprobs > 0, wanted.topk_sample_logprobs > 0, std::nullopt, wanted.prompt_draws};
  if (json.contains("target_prompt_logprobs") && !json["target_prompt_logprobs"].is_null()) {
    form.targets = decode_prompt_targets(json["target_prompt_logprobs"], wanted.prompt.size(), call.service.base().opened.runtime->max_positions);
    wanted.prompt_targets_per_row = form.targets->per_row;
    wanted.prompt_targets.swap(form.targets->ids);
  }
  const std::string sampler = required_text(json, "sampling_session_id");
  const std::string request =
      call.service.sampling().sample(call.owner, sampler, required_integer(json, "seq_id"), wanted, [form = std::move(form)](const SamplingResult& result) {
        return Outcome{kProtobufType, encode_sample(result, form), {}, {}};
      });
  TrainingJson ids = TrainingJson::array();
  constexpr std::int64_t kMostIds = 1024;  // more samples are refused: the result says so
  for (std::int64_t i = 0; i < std::min(wanted.num_samples, kMostIds); ++i) ids.push_back(fmt::format("{}-{}", request, i));
  call.answer({{"request_id", request}, {"sample_sequence_ids", ids}});
}

void create_sampling_session(const TrainingCall& call) {
  const TrainingJson json = call.json();
  const std::string id = call.service.samplers().create(call.owner, required_text(json, "session_id"), required_integer(json, "sampling_session_seq_id"),
                                                        text_field(json, "base_model"), text_field(json, "model_path"));
  call.answer({{"sampling_session_id", id}, {"type", "create_sampling_session"}});
}

void sampler_info(const TrainingCall& call) {
  const SamplerRecord sampler = call.service.samplers().find(call.owner, std::string(call.request.parameter("sampler")));
  TrainingJson json{{"sampler_id", sampler.id}, {"base_model", sampler.base_model}};
  if (!sampler.model_path.empty()) json["model_path"] = sampler.model_path;
  call.answer(json);
}

}  // namespace

void add_sampling_routes(TrainingRoutes& routes) {
  routes.post("create_sampling_session", known_fields({"session_id", "sampling_session_seq_id", "base_model", "model_path"}, {"type"}),
              create_sampling_session);
  routes.post("join_sampling_session", known_fields({"sampling_session_id"}, {"type"}), [](const TrainingCall& call) {
    call.answer({{"client_counter", call.service.samplers().join(call.owner, required_text(call.json(), "sampling_session_id"))}});
  });
  routes.add("GET", "samplers/{sampler}", sampler_info);
  JsonFields sample = known_fields({"sampling_session_id", "seq_id", "num_samples", "prompt_logprobs", "prompt_logprobs_last_n", "topk_prompt_logprobs",
                                    "topk_sample_logprobs", "prompt_alt_tokens_k", "keep_forward"},
                                   {"record_stability_info", "type"});
  JsonFields prompt;
  prompt.each("chunks", known_fields({"type", "tokens", "data", "format", "location", "expected_tokens", "dmel"}));  // the type says what is not offered
  sample.inside("prompt", std::move(prompt));
  sample.inside("sampling_params", known_fields({"max_tokens", "seed", "stop", "temperature", "top_k", "top_p"}));
  sample.inside("target_prompt_logprobs", known_fields({"data", "dtype", "shape", "sparse_crow_indices", "sparse_col_indices"}));
  for (const char* name : {"base_model", "model_path"}) sample.only(name, {});  // the sampling session has them
  routes.post("asample", std::move(sample), start_sample);
}

}  // namespace lockstep
