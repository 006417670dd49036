#include "planning/memory_plan.h"

#include "base/error.h"
#include "base/hub_name.h"
#include "checkpoint/json_file.h"
#include "checkpoint/model_source.h"
#include "engine/engine.h"
#include "planning/shape_catalog.h"
#include "train/trainer.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
Runtime counting_runtime(const RuntimeSettings& settings, std::int64_t length) {
  const Profile& profile = profile_by_name(settings.profile);
  const std::shared_ptr<const Model> model = planned_model(settings);
  const std::int64_t positions = settings.context > 0 ? settings.context : model->facts().max_positions;
  if (length > positions) fail(ErrorCode::invalid_argument, "length is {}, allowed are 2 to {}, the model's context", length, positions);
  BackendOptions options = backend_options(settings);
  options.kind = BackendKind::counting;
  options.threads = 1;
  return Runtime(options, model, profile, settings.context);
}

WeightImages no_images(const Model& model) { return WeightImages(model.manifest().parameters().size()); }

// Of a Trainer or of RankSteps.
template <class Ranks>
std::vector<MemoryPlan> plans_of(const Ranks& ranks, int count, const Model& model) {
  std::vector<MemoryPlan> plans;
  for (int rank = 0; rank < count; ++rank) {
    plans.push_back(memory_of(ranks.memory(rank)));
    plans.back().parameters = model.manifest().trained_size();
  }
  return plans;
}
}  // namespace

std::string planned_name(const std::string& model) {
  std::error_code error;
  if (fs::exists(model, error)) return model;
  const ShapeCatalog catalog = ShapeCatalog::published();
  const ShapeModel* known = catalog.find_model(model);
  if (!known) return model;
  if (known->config.is_null())
    fail(ErrorCode::unsupported,
         "'{}' is a model of the catalog of training shapes whose family does not run here; `lockstep shapes list --model {}` has its memory", model,
         known->id);
  return kCatalogModel + known->id;
}

std::shared_ptr<const Model> planned_model(const RuntimeSettings& settings) {
  const ModelOptions options{.mla_norm_eps = settings.mla_norm_eps};
  if (settings.model.starts_with(kCatalogModel))
    return make_model(ShapeCatalog::published().model(settings.model.substr(kCatalogModel.size())).config, options);
  refuse_other_model(settings.model);
  std::error_code error;
  if (!fs::exists(settings.model, error)) {
    const ShapeCatalog catalog = ShapeCatalog::published();
    std::vector<std::string> known;
    for (const ShapeModel& model : catalog.models())
      if (!model.config.is_null()) known.push_back(model.id);
    fail(ErrorCode::not_found, "there is no folder, file or model of the catalog '{}'{}", settings.model, did_you_mean(settings.model, known));
  }
  const bool alone = fs::is_regular_file(settings.model, error) && !is_gguf_file(settings.model);  // a config.json
  return make_model(alone ? read_json_file(settings.model) : read_json_file(*open_folder_files(settings.model), "config.json"), options);
}

MemoryPlan memory_of(const MemoryAccounts& memory) {
  MemoryPlan plan;
  for (int c = 0; c < kMemoryCategories; ++c) plan.peak[static_cast<std::size_t>(c)] = memory.peak(static_cast<MemoryCategory>(c));
  plan.total = memory.peak_of_all();
  return plan;
}

std::vector<MemoryPlan> plan_training(const RuntimeSettings& settings, const TrainingPlan& what) {
  Runtime runtime = counting_runtime(settings, what.length);
  TrainerOptions options = what.trainer;
  options.ranks = rank_layout(settings.ranks);
  Trainer trainer(runtime, no_images(*runtime.model), options);
  const TrainSequence sequence = TrainSequence::next_token(std::vector<std::int32_t>(static_cast<std::size_t>(what.length + 1)));
  const std::vector<TrainSequence> data(static_cast<std::size_t>(what.sequences), sequence);
  for (int step = 0; step < 2; ++step) {
    trainer.forward_backward(data, {});
    trainer.optim_step({});
  }
  return plans_of(trainer, options.ranks.size(), *runtime.model);
}

std::vector<MemoryPlan> plan_serving(const RuntimeSettings& settings, const ServingPlan& what) {
  Runtime runtime = counting_runtime(settings, what.length);
  EngineOptions options = what.engine;
  options.ranks = rank_layout(settings.ranks);
  const auto weights_of = [&](const Manifest& manifest) {
    return make_weight_set(runtime.backend, manifest, WeightImages(manifest.parameters().size()), runtime.profile, 0);
  };
  const MtpLayer* mtp = options.ranks.size() == 1 && options.drafts.has(DraftKind::mtp) ? runtime.model->mtp() : nullptr;  // if the files have it
  Engine engine(runtime, weights_of(runtime.model->manifest()), options, mtp ? weights_of(mtp->manifest()) : nullptr);
  // Prompts fill the forwards; then all sequences decode together.
  for (std::int64_t i = 0; i < what.sequences; ++i)
    engine.submit({.prompt = std::vector<std::int32_t>(static_cast<std::size_t>(what.length - 1)), .sampling = {.temperature = 1, .max_tokens = 1}});
  engine.run_until_idle();
  return plans_of(engine.rank_steps(), options.ranks.tp * options.ranks.ep, *runtime.model);
}

}  // namespace lockstep
