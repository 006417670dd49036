#include "api/openai/no_op_fields.h"

namespace lockstep {

void add_no_op_fields(JsonFields& fields) {
  // vLLM's
  for (const char* name : {"use_beam_search", "include_stop_str_in_output", "early_stopping", "return_tokens_as_token_ids"}) fields.only(name, {false});
  for (const char* name : {"detokenize", "spaces_between_special_tokens"}) fields.only(name, {true});
  fields.only("length_penalty", {1});
  fields.only("priority", {0});
  fields.only("bad_words", {Json::array()});
  for (const char* name : {"prompt_logprobs", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "truncate_prompt_tokens",
                           "allowed_token_ids", "logits_processors", "documents", "chat_template", "mm_processor_kwargs", "kv_transfer_params"})
    fields.only(name, {});
  // llama.cpp's
  fields.only("repeat_penalty", {1});
  fields.only("typical_p", {1});
  fields.only("xtc_probability", {0});
  fields.only("dry_multiplier", {0});
  fields.only("dynatemp_range", {0});
  fields.only("mirostat", {0});
  fields.only("n_probs", {0});
  fields.only("id_slot", {-1});
  fields.only("grammar", {""});
  fields.harmless("cache_prompt");
  // OpenAI's
  fields.harmless("prompt_cache_options");
  // Anthropic's, which libraries of several vendors leave in.
  fields.harmless("cache_control");
}

}  // namespace lockstep
