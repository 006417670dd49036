#include "api/openai/completion_request.h"

#include "api/openai/hold_fields.h"
#include "api/openai/no_op_fields.h"

namespace lockstep {
namespace {
CompletionRequest::Prompt one_prompt(const Json& value, const std::string& field) {
  if (value.is_string()) return {value.get<std::string>(), {}, true, field};
  if (!value.is_array() || value.empty()) fail_field(field, fmt::format("is {}, allowed is a string or an array of token ids", describe_json(value)));
  return {{}, json_token_ids(value, field), false, field};
}

}  // namespace

std::vector<CompletionRequest::Prompt> prompts_value(const Json& value, const std::string& field, std::size_t most) {
  if (!value.is_array() || value.empty() || value[0].is_number()) {
    if (!value.is_string() && !(value.is_array() && !value.empty()))
      fail_field(field, fmt::format("is {}, allowed is a string, an array of token ids, or an array of those", describe_json(value)));
    return {one_prompt(value, field)};
  }
  if (value.size() > most) fail_field(field, fmt::format("has {} prompts, allowed are at most {}", value.size(), most));
  std::vector<CompletionRequest::Prompt> result;
  for (std::size_t i = 0; i < value.size(); ++i) result.push_back(one_prompt(value[i], fmt::format("{}[{}]", field, i)));
  return result;
}

CompletionRequest decode_completion(std::string_view body, SamplingFields defaults) {
  CompletionRequest r;
  r.sampling = std::move(defaults);
  std::vector<CompletionRequest::Prompt> by_ids;
  JsonFields fields;
  add_sampling_fields(fields, &r.sampling);
  add_hold_fields(fields, &r.sampling);
  fields.custom("prompt", [&](const Json& value, const std::string& field) { r.prompts = prompts_value(value, field, SamplingFields::kMostChoices); });
  fields.custom("prompt_token_ids", [&](const Json& value, const std::string& field) {
    if (!value.is_array() || value.empty() || value[0].is_string())
      fail_field(field, fmt::format("is {}, allowed is an array of token ids, or an array of those", describe_json(value)));
    by_ids = prompts_value(value, field, SamplingFields::kMostChoices);
    for (const CompletionRequest::Prompt& prompt : by_ids)
      if (prompt.is_text) fail_field(prompt.field, "is a string, allowed is an array of token ids");
  });
  fields.integer("logprobs", &r.logprobs, 0, SamplingParameters::kMaxTopLogprobs);
  fields.boolean("echo", &r.echo);
  fields.boolean("add_special_tokens", &r.add_special_tokens);
  fields.only("suffix", {""});
  fields.only("moderation", {});
  add_no_op_fields(fields);

  fields.read(parse_object(body));
  if (!by_ids.empty()) {
    // The openai client always sends a prompt; an empty one is as good as none.
    if (!r.prompts.empty() && !(r.prompts.size() == 1 && r.prompts[0].is_text && r.prompts[0].text.empty()))
      fail_field("prompt_token_ids", "is given beside prompt, allowed is one of them");
    r.prompts = std::move(by_ids);
  }
  check_sampling_fields(r.sampling, r.prompts.size());
  check_hold_fields(r.sampling, r.prompts.size());
  if (r.prompts.empty()) fail_field("prompt", "is missing");
  if (r.sampling.hold.order.any() && r.echo && r.logprobs)
    fail_field("hold", "is given with echo and logprobs, whose first part is known at the end; allowed is without logprobs");
  return r;
}

}  // namespace lockstep
