// Models and their operations: create, forward, forward_backward, optimizer steps, saving and loading.
#include <algorithm>

#include "api/errors.h"
#include "api/fireworks/json_batch.h"
#include "api/sampling_values.h"
#include "api/tinker/body_head.h"
#include "api/tinker/proto_codec.h"
#include "api/tinker/tinker_routes.h"
#include "base/choice.h"
#include "base/json_members.h"

namespace lockstep {
namespace {

Outcome training_outcome(const TrainingOutput& output) { return {kProtobufType, encode_training(output), {}, {}}; }

ModelSettings model_settings(const TrainingCall& call, const TrainingJson& json) {
  ModelSettings s;
  s.base_model = text_field(json, "base_model");
  s.base_only = boolean_field(json, "base_only", false);
  s.user_metadata = ClientJson(call.metadata_field(json, "user_metadata"));
  const TrainingJson lora = object_field(json, "lora_config");
  s.rank = integer_field(lora, "rank", 0);
  if (s.rank < 0 || s.rank > 256) fail_value("lora_config.rank", fmt::format("is {}, allowed is 0 (all parameters) to 256", s.rank));
  s.alpha = optional_number(lora, "alpha").value_or(call.speaks_fireworks() && s.rank > 0 ? 2.0 * static_cast<double>(s.rank) : 32.0);
  s.init_method = text_field(lora, "init_method", "kaiming");
  s.train_attn = boolean_field(lora, "train_attn", true);
  s.train_mlp = boolean_field(lora, "train_mlp", true);
  s.train_unembed = boolean_field(lora, "train_unembed", true);
  read_value(lora, "seed", "lora_config.", [&](const TrainingJson& value, const std::string& field) { s.seed = seed_value(value, field); });
  if (const auto dimension = optional_number(json, "projection_head_dim"); dimension && *dimension != 0)
    throw RequestError(ErrorCode::unsupported, "projection_head_dim",
                       fmt::format("projection_head_dim is {}, allowed is none: models have no projection head here", *dimension), 422);
  const TrainingJson optimizer = object_field(json, "optimizer_config");
  s.optimizer = text_field(optimizer, "type", "adamw");
  if (const std::int64_t version = integer_field(optimizer, "version", 1); version != 1)
    fail_value("optimizer_config.version", fmt::format("is {}, allowed is 1", version));
  return s;
}

void create_model(const TrainingCall& call) {
  const TrainingJson json = call.json();
  CreateModel wanted;
  wanted.session = required_text(json, "session_id");
  wanted.number = model_number(json);
  wanted.settings = model_settings(call, json);
  const bool experts = call.service.base().opened.model->facts().expert_shape().row() > 0;
  call.answer_future(call.service.model_life().create(call.owner, wanted,
                                                      [experts](const ModelRecord& model) {
                                                        return json_outcome({{"type", "create_model"},
                                                                             {"model_id", model.id},
                                                                             {"comms", "v1"},
                                                                             {"routing_matrix_format", "base64_inline"},
                                                                             {"supports_target_logprob_support", true},
                                                                             {"supports_router_replay", experts}});
                                                      }),
                     ModelLife::id_of(wanted));
}

void get_info(const TrainingCall& call) {
  const ModelRecord model = call.service.models().find(call.owner, required_text(call.json(), "model_id"));
  const TrainingBase& base = call.service.base();
  TrainingJson data{{"arch", std::string(base.opened.model->family())}, {"model_name", model.settings.base_model}};
  // A client on this machine loads the tokenizer from the folder. A client elsewhere cannot, and must not learn the path: it gets the model's own
  // name (--name), which may be a folder of the client's or a name of the hub; never an alias, which would load another model's tokenizer.
  if (base.opened.tokenizer) data["tokenizer_id"] = call.from_this_machine() ? base.folder : base.name;
  call.answer({{"type", "get_info"},
               {"model_id", model.id},
               {"model_data", data},
               {"is_lora", model.settings.rank > 0},
               {"lora_rank", model.settings.rank},
               {"model_name", model.settings.base_model},
               {"optimizer_config", optimizer_config(model.settings)}});
}

// Checks that the model is the caller's, before the data takes memory. (The submission checks again, under its lock.)
void check_model_of_body(const TrainingCall& call) {
  const std::unique_ptr<ByteSource> head = call.body();
  const std::optional<std::string> model = call.is_protobuf() ? proto_model(*head) : json_field(*head, "model_id");
  if (model) call.service.models().find(call.owner, *model);
  else if (call.is_protobuf() || !call.is_short()) fail_value("model_id", "is missing");  // a short one's decoder says what is wrong with it
}

// Protobuf has one route with a flag for forward_only, JSON has two routes.
void submit_batch(const TrainingCall& call, const std::string& envelope, bool forward_only) {
  check_model_of_body(call);
  BatchMessage message = call.is_protobuf() ? decode_batch(*call.body()) : decode_json_batch(call.json(kBatchJson), envelope);
  call.keep(message.batch);
  message.batch.forward_only |= forward_only;
  if (message.error) return call.answer_future(call.service.lanes().refuse(call.owner, message.model, message.sequence, *message.error), message.model);
  if (message.top_k)
    return call.answer_future(
        call.service.operations().forward_top_k(call.owner, message.model, message.sequence, std::move(message.batch), *message.top_k, training_outcome),
        message.model);
  call.answer_future(call.service.operations().forward_backward(call.owner, message.model, message.sequence, std::move(message.batch), training_outcome),
                     message.model);
}

double required_number(const TrainingJson& json, const std::string& name) {
  if (!json.contains(name)) fail_value(name, "is missing");
  return number_field(json, name, 0);
}

GradientDivisor gradient_divisor(const TrainingJson& json) {
  const std::string name = text_field(json, "grad_accumulation_normalization", "none");
  if (name == "none") return GradientDivisor::none;
  if (name == "num_loss_tokens") return GradientDivisor::loss_tokens;
  if (name == "num_sequences") return GradientDivisor::sequences;
  fail_value("grad_accumulation_normalization", fmt::format("is '{}', {}", name, allowed_are(name, {"none", "num_loss_tokens", "num_sequences"})));
}

// The value is a word, or true or false.
GradientNorms gradient_norms(const TrainingJson& adam) {
  const char* const field = "emit_grad_norm_metrics";
  if (adam.contains(field) && adam[field].is_boolean()) return adam[field].get<bool>() ? GradientNorms::basic : GradientNorms::off;
  const std::string name = text_field(adam, field, "off");
  if (name == "off") return GradientNorms::off;
  if (name == "basic") return GradientNorms::basic;
  if (name == "detailed") return GradientNorms::detailed;
  fail_value(std::string("adam_params.") + field, fmt::format("is '{}', {}", name, allowed_are(name, {"true", "false", "off", "basic", "detailed"})));
}

// Refuses unknown settings: without them the step would be another than the client asked for.
void only_fields(const TrainingJson& json, const std::string& name, const std::vector<std::string>& known) {
  for (const auto& [key, value] : json.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail_value(fmt::format("{}.{}", name, shown(key)), fmt::format("is not known{}; allowed are {}", did_you_mean(key, known), fmt::join(known, ", ")));
}

void optim_step(const TrainingCall& call) {
  const TrainingJson json = call.json();
  const std::string model = required_text(json, "model_id");
  const std::int64_t sequence = required_integer(json, "seq_id");
  try {
    const TrainingJson other = object_field(json, "optimizer_params"), adam = object_field(json, "adam_params");
    if (!other.empty() && !adam.empty()) fail_value("optimizer_params", "is given beside adam_params, allowed is one of the two");
    only_fields(adam, "adam_params", {"learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm", "emit_grad_norm_metrics"});
    only_fields(other, "optimizer_params", {"type", "version", "learning_rate", "beta1", "grad_clip_norm"});
    if (const std::int64_t version = integer_field(other, "version", 1); version != 1)
      fail_value("optimizer_params.version", fmt::format("is {}, allowed is 1", version));
    OptimizerRequest request;
    request.optimizer = other.empty() ? "adamw" : required_text(other, "type");
    // A clip that is not positive is off.
    if (!other.empty())
      request.adam = {.learning_rate = required_number(other, "learning_rate"),
                      .beta1 = number_field(other, "beta1", 0.9),
                      .max_norm = std::max(0.0, number_field(other, "grad_clip_norm", 0))};
    else
      request.adam = {.learning_rate = number_field(adam, "learning_rate", 1e-4),
                      .beta1 = number_field(adam, "beta1", 0.9),
                      .beta2 = number_field(adam, "beta2", 0.95),
                      .eps = number_field(adam, "eps", 1e-12),
                      .weight_decay = number_field(adam, "weight_decay", 0),
                      .max_norm = number_field(adam, "grad_clip_norm", 0)};
    request.divisor = gradient_divisor(json);
    request.norms = gradient_norms(adam);
    call.answer_future(call.service.operations().optim_step(call.owner, model, sequence, request,
                                                            [](const OptimizerOutput& output) {
                                                              TrainingJson metrics{{"weights_version", output.version}};
                                                              for (const auto& [name, value] : output.metrics) metrics[name] = value;
                                                              return json_outcome({{"metrics", metrics}, {"type", "optim_step"}});
                                                            }),
                       model);
  } catch (const RequestError& e) {
    if (e.code() == ErrorCode::not_found) throw;
    call.answer_future(call.service.lanes().refuse(call.owner, model, sequence, e), model);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::unsupported) throw;
    call.answer_future(call.service.lanes().refuse(call.owner, model, sequence, e), model);
  }
}

SaveRequest save_request(const TrainingCall& call, const TrainingJson& json, const std::string& kind) {
  SaveRequest save;
  save.kind = kind;
  save.name = text_field(json, "path");
  save.overwrite = boolean_field(json, "overwrite", false);
  save.ttl_seconds = optional_number(json, "ttl_seconds");
  const TrainingJson metadata = call.metadata_field(json, "user_metadata");
  save.user_metadata = members_of_both(metadata, call.metadata_field(json, "metadata"));  // Fireworks' name
  save.type = text_field(json, "checkpoint_type");
  save.precision = text_field(json, "export_precision");
  if (kind != "sampler_weights" && !save.type.empty())
    fail_value("checkpoint_type", fmt::format("is '{}', allowed is none: only what save_weights_for_sampler saves has a type", shown(save.type)));
  if (!save.type.empty() && save.type != "base" && save.type != "delta" && save.type != "merged_base")
    fail_value("checkpoint_type", fmt::format("is '{}', allowed are base, delta and merged_base", shown(save.type)));
  if (save.type != "merged_base" && !save.precision.empty() && save.precision != "source")
    fail_value("export_precision", fmt::format("is '{}', allowed is source: other precisions are for checkpoint_type merged_base", shown(save.precision)));
  return save;
}

void save_weights(const TrainingCall& call) {
  const TrainingJson json = call.json();
  const bool bare = call.speaks_fireworks();  // its client takes no tinker:// path back
  call.numbered(json, [&](const std::string& model, std::int64_t sequence) {
    return call.service.operations().save(call.owner, model, sequence, save_request(call, json, "weights"), [bare](const CheckpointRecord& r) {
      return json_outcome({{"path", bare ? r.reference() : r.path()}, {"type", "save_weights"}});
    });
  });
}

void save_weights_for_sampler(const TrainingCall& call) {
  const TrainingJson json = call.json();
  const bool bare = call.speaks_fireworks();
  call.numbered(json, [&](const std::string& model, std::int64_t sequence) {
    const std::string sampler_kind = text_field(json, "kind", "snapshot");
    if (sampler_kind != "snapshot" && sampler_kind != "inflight")
      fail_value("kind", fmt::format("is '{}', allowed are snapshot and inflight", shown(sampler_kind)));
    if (sampler_kind == "inflight" && !text_field(json, "path").empty())
      fail_value("kind", "is 'inflight' beside a path, allowed is snapshot: what has a name keeps its weights");
    if (text_field(json, "path").empty()) {
      for (const char* name : {"ttl_seconds", "user_metadata", "metadata", "overwrite"})
        if (json.contains(name) && !json[name].is_null() && json[name] != false && !(json[name].is_object() && json[name].empty()))
          fail_value(name, "is given for a sampler without a name; allowed is with a path");
      return call.service.operations().save_sampler(call.owner, model, sequence, sampler_kind == "inflight", [](const SamplerRecord& r) {
        return json_outcome({{"sampling_session_id", r.id}, {"type", "save_weights_for_sampler"}});
      });
    }
    return call.service.operations().save(call.owner, model, sequence, save_request(call, json, "sampler_weights"), [bare](const CheckpointRecord& r) {
      return json_outcome({{"path", bare ? r.reference() : r.path()}, {"type", "save_weights_for_sampler"}});
    });
  });
}

void load_weights(const TrainingCall& call) {
  const TrainingJson json = call.json();
  const auto loaded = [](const std::string& path) {
    return [path](const ModelRecord& model) { return json_outcome({{"path", path}, {"model_id", model.id}, {"type", "load_weights"}}); };
  };
  if (!text_field(json, "model_id").empty())
    return call.numbered(json, [&](const std::string& model, std::int64_t sequence) {
      for (const char* name : {"session_id", "model_seq_id", "base_model", "base_only", "user_metadata", "lora_config", "optimizer_config"})
        if (is_given(json, name)) fail_value(name, "is given beside model_id, allowed is without: the model is there, and keeps its settings");
      const std::string path = required_text(json, "path");
      return call.service.operations().load(call.owner, model, sequence, path, boolean_field(json, "optimizer", false), loaded(path));
    });
  if (is_given(json, "seq_id")) fail_value("seq_id", "is given without model_id, allowed are both, or session_id and model_seq_id");
  const std::string path = required_text(json, "path");
  const bool optimizer = boolean_field(json, "optimizer", false);
  CreateModel wanted;
  wanted.session = required_text(json, "session_id");
  wanted.number = model_number(json);
  wanted.settings = model_settings(call, json);
  wanted.from = path;
  wanted.with_optimizer = optimizer;
  call.answer_future(call.service.model_life().create(call.owner, wanted, loaded(path)), ModelLife::id_of(wanted));
}

void load_adapter(const TrainingCall& call) {
  const TrainingJson json = call.json();
  call.numbered(json, [&](const std::string& model, std::int64_t sequence) {
    const std::string path = required_text(json, "adapter_path");
    return call.service.operations().load_adapter(call.owner, model, sequence, path, [path](const ModelRecord& r) {
      return json_outcome({{"model_id", r.id}, {"adapter_path", path}, {"type", "load_adapter"}});
    });
  });
}

}  // namespace

TrainingJson optimizer_config(const ModelSettings& settings) {
  TrainingJson config{{"type", settings.optimizer}};
  if (settings.optimizer == "dimuon") config["version"] = 1;
  return config;
}

// Of create_model, and of a load that makes a model.
JsonFields settings_fields(std::initializer_list<const char*> names) {
  JsonFields fields = known_fields(names, {"type"});
  fields.taken({"session_id", "model_seq_id", "base_model", "base_only", "user_metadata"});
  fields.inside("lora_config", known_fields({"rank", "alpha", "init_method", "seed", "train_attn", "train_mlp", "train_unembed"}));
  fields.inside("optimizer_config", known_fields({"type", "version"}));
  return fields;
}

JsonFields operation_fields(std::initializer_list<const char*> names) {
  JsonFields fields = known_fields(names, {"type"});
  fields.taken({"model_id", "seq_id"});
  return fields;
}

void add_model_routes(TrainingRoutes& routes) {
  routes.post("create_model", settings_fields({"projection_head_dim"}), create_model);
  routes.post("get_info", known_fields({"model_id"}, {"type"}), get_info);
  JsonFields forward = operation_fields({}), backward = operation_fields({});
  for (JsonFields* fields : {&forward, &backward}) {
    fields->harmless("comms");
    fields->inside(fields == &forward ? "forward_input" : "forward_backward_input", batch_fields());
  }
  routes.post("forward", std::move(forward), [](const TrainingCall& call) { submit_batch(call, "forward_input", true); });
  routes.post("forward_backward", std::move(backward), [](const TrainingCall& call) { submit_batch(call, "forward_backward_input", false); });
  routes.post("optim_step", operation_fields({"grad_accumulation_normalization", "adam_params", "optimizer_params"}), optim_step);
  routes.post("save_weights", operation_fields({"path", "ttl_seconds", "overwrite", "user_metadata", "checkpoint_type", "export_precision"}), save_weights);
  JsonFields snapshot = operation_fields({"path", "kind", "ttl_seconds", "overwrite", "user_metadata", "checkpoint_type", "export_precision", "metadata"});
  snapshot.harmless("sampling_session_seq_id");
  routes.post("save_weights_for_sampler", std::move(snapshot), save_weights_for_sampler);
  JsonFields load = settings_fields({"model_id", "seq_id", "path", "optimizer"});
  load.only("weights_access_token", {});
  routes.post("load_weights", std::move(load), load_weights);
  routes.post("load_adapter", operation_fields({"adapter_path"}), load_adapter);
  routes.post("unload_model", known_fields({"model_id"}, {"type"}), [](const TrainingCall& call) {
    const std::string model = required_text(call.json(), "model_id");
    call.answer_future(call.service.model_life().unload(call.owner, model,
                                                        [](const ModelRecord& r) {
                                                          return json_outcome({{"model_id", r.id}, {"type", "unload_model"}});
                                                        }),
                       model);
  });
}

void add_tinker_routes(Routes& table, const std::shared_ptr<TrainingService>& service, const TrainingRouteOptions& options) {
  TrainingRoutes routes(table, service);
  add_session_routes(routes, options);
  add_external_routes(routes, options);
  add_model_routes(routes);
  add_sampling_routes(routes);
  add_catalog_routes(routes);
  add_account_routes(routes);
}

}  // namespace lockstep
