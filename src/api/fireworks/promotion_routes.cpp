// Promotion: a sampler's checkpoint becomes a model of its own, with a name that completions and new models may use.
#include "api/errors.h"
#include "api/fireworks/fireworks_routes.h"

namespace lockstep {
namespace {
constexpr const char* kModels = "models";

TrainingJson base_details(const TrainingBase& base) { return {{"moe", base.opened.model->facts().expert_count > 0}, {"checkpointFormat", "HUGGINGFACE"}}; }

TrainingJson model_json(const TrainingCall& call, const PromotedModel& model) {
  const TrainingBase& base = call.service.base();
  TrainingJson json{{"name", model.name},
                    {"state", "READY"},
                    {"kind", model.adapter() ? "HF_PEFT_ADDON" : "HF_BASE_MODEL"},
                    {"createTime", iso_time(model.created)},
                    {"contextLength", base.opened.runtime->max_positions},
                    {"baseModelDetails", base_details(base)},
                    {"importedFrom", model.checkpoint}};
  if (model.adapter())
    json["peftDetails"] = {{"baseModel", model.base_model}, {"r", model.settings.rank}, {"targetModules", adapter_layout(base, model.settings)->modules()}};
  return json;
}

TrainingJson base_json(const TrainingCall& call, const std::string& name) {
  const TrainingBase& base = call.service.base();
  return {{"name", name},
          {"state", "READY"},
          {"kind", "HF_BASE_MODEL"},
          {"contextLength", base.opened.runtime->max_positions},
          {"baseModelDetails", base_details(base)}};
}

TrainingJson model_at(const TrainingCall& call, const std::string& id) {
  const std::string name = resource_name(call, kModels, id);
  if (const auto found = call.service.control().models.find(call.owner, name)) return model_json(call, *found);
  if (call.service.base().is_called(name) || call.service.base().is_called(id)) return base_json(call, name);
  throw RequestError(ErrorCode::not_found, "model", fmt::format("there is no model '{}'", shown(name)), 404);
}

std::string output_name(const TrainingJson& json) {
  const bool is_both = is_given(json, "outputModel") && is_given(json, "output_model");
  if (is_both && json["outputModel"] != json["output_model"]) fail_value("outputModel", "is given beside another output_model, allowed is one of the two");
  return required_text(json, is_given(json, "outputModel") ? "outputModel" : "output_model");
}

// Answers with an operation that is done already if the client asks for one, else with the model.
void promote_of_job(const TrainingCall& call) {
  const TrainingJson json = call.json();
  const std::string id = path_segment(call, "checkpoint", ":promote"), job = text_field(json, "trainer_job_id");
  const std::string checkpoint = job.empty() ? id : fmt::format("cross_job://{}/{}", job.substr(job.rfind('/') + 1), id);
  const PromotedModel model = call.service.control().promote(call.owner, checkpoint, output_name(json), text_field(json, "base_model"));
  if (!boolean_field(json, "async_promotion", false)) return call.answer({{"model", model_json(call, model)}});
  const std::string operation = resource_name(call, "operations", "promote-" + model.name.substr(model.name.rfind('/') + 1));
  call.answer({{"operation", {{"name", operation}, {"done", true}, {"response", model_json(call, model)}}}});
}

void promote_of_session(const TrainingCall& call) {
  const TrainingJson json = call.json();
  const std::string id = path_segment(call, "checkpoint", ":promote"), session = path_segment(call, "session");
  std::string path;
  for (const CheckpointRecord& r : call.service.checkpoints().all(call.owner))  // the newest of the name
    if (r.session == session && r.name == id && r.kind == "sampler_weights") path = r.path();
  if (path.empty())
    throw RequestError(ErrorCode::not_found, "checkpoint", fmt::format("the session '{}' has no sampler checkpoint '{}'", shown(session), shown(id)), 404);
  call.answer({{"model", model_json(call, call.service.control().promote(call.owner, path, output_name(json), text_field(json, "base_model")))}});
}
}  // namespace

void add_promotion_routes(TrainingRoutes& routes) {
  const std::string account = "/v1/accounts/{account}/", all = account + kModels, one = all + "/{model}";
  const JsonFields fields = known_fields({"output_model", "outputModel", "trainer_job_id", "base_model", "async_promotion"}, {"hot_load_deployment_id"});
  routes.add_at_root("POST", account + "checkpoints/{checkpoint}", fields, promote_of_job);
  routes.add_at_root("POST", account + "trainingSessions/{session}/checkpoints/{checkpoint}", known_fields({"output_model", "outputModel", "base_model"}),
                     promote_of_session);  // its path says whose it is, and its answer is the model
  routes.add_at_root("GET", account + "operations/{operation}", [](const TrainingCall& call) {
    const std::string id = path_segment(call, "operation"), prefix = "promote-";
    if (!id.starts_with(prefix)) throw RequestError(ErrorCode::not_found, "operation", fmt::format("there is no operation '{}'", shown(id)), 404);
    call.answer({{"name", resource_name(call, "operations", id)}, {"done", true}, {"response", model_at(call, id.substr(prefix.size()))}});
  });
  routes.add_at_root(
      "GET", all,
      [](const TrainingCall& call) {
        TrainingJson rows = TrainingJson::array();
        for (const std::string& name : call.service.base().names)
          if (name.starts_with("accounts/")) rows.push_back(base_json(call, name));
        rows.push_back(base_json(call, resource_name(call, kModels, call.service.base().name)));
        for (const PromotedModel& model : call.service.control().models.all(call.owner)) rows.push_back(model_json(call, model));
        answer_page(call, kModels, rows);
      },
      page_query());
  routes.add_at_root("GET", one, [](const TrainingCall& call) { call.answer(model_at(call, path_segment(call, "model"))); });
  routes.add_at_root("DELETE", one, [](const TrainingCall& call) {
    call.service.control().remove_model(call.owner, resource_name(call, kModels, path_segment(call, "model")));
    call.answer(TrainingJson::object());
  });
}

}  // namespace lockstep
