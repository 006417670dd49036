#include "planning/memory_plan.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/choice.h"
#include "base/error.h"
#include "base/hub_name.h"
#include "checkpoint/json_file.h"
#include "checkpoint/model_source.h"
#include "engine/engine.h"
#include "model/value_head.h"
#include "planning/rank_alone.h"
#include "planning/shape_catalog.h"
#include "train/adapter_trainer.h"
#include "train/kept_passes.h"
#include "train/mtp_trainer.h"
#include "train/teacher_head.h"
#include "train/trainer.h"
#include "train/value_loss.h"

namespace lockstep {
namespace fs = std::filesystem;

Json planned_config(const RuntimeSettings& settings) {
  if (settings.model.starts_with(kCatalogModel)) return ShapeCatalog::published().model(settings.model.substr(kCatalogModel.size())).config;
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
  return alone ? read_json_file(settings.model) : read_json_file(*open_folder_files(settings.model), "config.json");
}

namespace {
std::shared_ptr<const Model> planned_value_model(const RuntimeSettings& settings) {
  return make_model(value_config(planned_config(settings)), {.mla_norm_eps = settings.mla_norm_eps});
}

Runtime counting_runtime(const RuntimeSettings& settings, const std::shared_ptr<const Model>& model, std::int64_t length) {
  const Profile& profile = profile_by_name(settings.profile);
  const std::int64_t positions = settings.context > 0 ? settings.context : model->facts().max_positions;
  if (length > positions) fail(ErrorCode::invalid_argument, "length is {}, allowed are 2 to {}, the model's context", length, positions);
  RuntimeSettings alone = settings;
  alone.ranks.clear();  // its ranks may be more than a run's
  BackendOptions options = backend_options(alone);
  options.kind = BackendKind::counting;
  options.threads = 1;
  return Runtime(options, model, profile, settings.context);
}

WeightImages no_images(const Model& model) { return WeightImages(model.manifest().parameters().size()); }

// memory_at(rank): its accounts.
template <class MemoryAt>
std::vector<MemoryPlan> plans_of(int count, const Model& model, const MemoryAt& memory_at) {
  std::vector<MemoryPlan> plans;
  for (int rank = 0; rank < count; ++rank) {
    plans.push_back(memory_of(memory_at(rank)));
    plans.back().parameters = trained_size(model.manifest());
  }
  return plans;
}

// As a step of a critic: values of all states, then one update.
template <class Trained>
void learn_values(Trained& critic, const std::vector<TrainSequence>& data) {
  const LossOptions loss = value_loss({{"averaging", "token_mean"}});
  for (int step = 0; step < 2; ++step) {
    critic.score(data);
    critic.forward_backward(data, loss);
    critic.optim_step({});
  }
}

// Kept forwards and the pages that they have, whose memory is taken while this lives.
struct KeptPages {
  std::shared_ptr<KeptForwards> forwards;
  std::vector<KeptForwards::RowsPointer> pages;
};
KeptPages kept_pages(Runtime& runtime, const TrainingPlan& what) {
  KeptPages kept{kept_forwards_of(what.keep_forward, runtime, EngineOptions().page_size), {}};
  if (!kept.forwards) return kept;
  const std::int64_t positions = kept.forwards->layout().positions(), count = what.sequences * ((what.length + positions - 1) / positions);
  for (std::int64_t page = 0; page < count; ++page) {
    KeptForwards::RowsPointer rows = kept.forwards->allocate();
    if (!rows) break;  // what finds no memory is computed
    kept.pages.push_back(std::move(rows));
  }
  return kept;
}

// With a layer of multi-token prediction, where one is planned that the config does not have.
std::shared_ptr<const Model> planned_trained_model(const RuntimeSettings& settings, const TrainingPlan& what) {
  std::shared_ptr<const Model> model = make_model(planned_config(settings), {.mla_norm_eps = settings.mla_norm_eps, .new_mtp = what.mtp_depths > 0});
  if (what.mtp_depths > 0 && !model->mtp())
    fail(ErrorCode::unsupported, "mtp-depths is {}, and a model of type {} has no layer of multi-token prediction to train; allowed is 0", what.mtp_depths,
         model->family());
  return model;
}

// The layer of multi-token prediction beside a trainer, on the devices of its ranks.
class PlannedLayer {
 public:
  PlannedLayer(Runtime& runtime, std::int64_t depths, const TrainerOptions& options, const std::shared_ptr<RankRuntimes>& runtimes)
      : manifest_(runtime.model->mtp()->manifest()),
        trainer_(runtime, WeightImages(manifest_.parameters().size()), {.depths = depths, .train_indexer = has_indexer()}, options, runtimes) {}
  void learn(const Trainer& trunk, const std::vector<TrainSequence>& data) {
    std::vector<TrunkShare> shares;
    for (const std::unique_ptr<RankTrainer>& part : trunk.ranks().parts()) shares.push_back({part->weights().get()});
    trainer_.forward_backward(shares, data);
    trainer_.optim_step({});
  }
  std::int64_t parameters() const { return trained_size(manifest_); }

 private:
  bool has_indexer() const {
    const std::vector<Parameter>& all = manifest_.parameters();
    return std::any_of(all.begin(), all.end(), [](const Parameter& p) { return p.indexer; });
  }
  const Manifest& manifest_;
  MtpTrainer trainer_;
};

// The ranks of a trainer that is planned, of the data of its steps; null: all of its layout, as threads.
using PlannedRanks = std::function<std::unique_ptr<Ranks>(const std::vector<TrainSequence>&)>;

std::shared_ptr<RankRuntimes> planned_runtimes(Runtime& runtime, const RankLayout& layout, const PlannedRanks& ranks, const std::vector<TrainSequence>& data) {
  return std::make_shared<RankRuntimes>(runtime, layout, ranks ? ranks(data) : nullptr);
}

// Adds the critic's memory to the plans of `policy`, which is idle meanwhile.
void add_critic(const RuntimeSettings& settings, const TrainingPlan& what, const TrainerOptions& of_policy, const PlannedRanks& ranks,
                const RankTrainers& policy, std::vector<TrainSequence> data, std::vector<MemoryPlan>& plans) {
  for (TrainSequence& one : data) one.advantages = one.weights;  // returns
  TrainerOptions options = of_policy;
  if (!options.kept) options.kept = kept_by_steps(options.micro_batch, options.ranks.size() == 1);
  Runtime runtime = counting_runtime(settings, planned_value_model(settings), what.length);
  const auto runtimes = planned_runtimes(runtime, options.ranks, ranks, data);
  const int local = runtimes->ranks().local();
  const Manifest& manifest = runtime.model->manifest();
  const auto add = [&](int rank, const MemoryAccounts& memory, std::int64_t parameters) {
    MemoryPlan& plan = plans[static_cast<std::size_t>(rank)];
    plan = memory_beside(plan, policy.memory(rank), memory);
    plan.parameters += parameters;
  };
  if (what.critic == "full") {
    Trainer critic(runtime, no_images(*runtime.model), options, runtimes);
    learn_values(critic, data);
    for (int rank = 0; rank < local; ++rank) add(rank, critic.ranks().memory(rank), trained_size(manifest));
    return;
  }
  const auto weights = make_weight_set(runtime.backend, manifest, no_images(*runtime.model), runtime.profile, 0);  // stays, whatever ranks share
  const auto base = std::make_shared<FrozenBase>(runtime, weights, options, runtimes);
  const auto layout = std::make_shared<const AdapterLayout>(manifest, AdapterSettings{.rank = what.critic_rank, .unembedding = true});
  AdapterTrainer critic(base, layout, initial_adapter(*layout, 0));
  learn_values(critic, data);
  for (int rank = 0; rank < local; ++rank) add(rank, runtimes->memory(rank), trained_size(layout->manifest()));
}

// A sampler on the trainer's device, with weights and pages of its own as long as it lives.
class PlannedSampler {
 public:
  PlannedSampler(Runtime& runtime, const TrainingPlan& what)
      : what_(what),
        engine_(runtime, make_weight_set(runtime.backend, runtime.model->manifest(), no_images(*runtime.model), runtime.profile, 0), options(what)) {}
  void sample() {
    for (std::int64_t i = 0; i < what_.rollouts; ++i)
      engine_.submit({.prompt = std::vector<std::int32_t>(static_cast<std::size_t>(what_.length - 1)), .sampling = {.temperature = 1, .max_tokens = 1}});
    engine_.run_until_idle();
  }

 private:
  static EngineOptions options(const TrainingPlan& what) {
    EngineOptions options;
    options.max_sequences = what.rollouts;
    options.cache_pages = what.rollouts * ((what.length + options.page_size - 1) / options.page_size);
    return options;
  }

  const TrainingPlan& what_;
  Engine engine_;
};

// A teacher of the loss divergence, on a device of its own.
class PlannedTeacher {
 public:
  PlannedTeacher(const RuntimeSettings& settings, std::int64_t length)
      : runtime_(counting_runtime(settings, planned_model(settings), length)),
        weights_(make_weight_set(runtime_.backend, runtime_.model->manifest(), no_images(*runtime_.model), runtime_.profile, 0)),
        head_(std::make_shared<const TeacherHead>(teacher_head(std::shared_ptr<Runtime>(std::shared_ptr<void>(), &runtime_), weights_))) {}
  void teach(std::vector<TrainSequence>& data) {
    std::vector<TaughtText> texts;
    for (const TrainSequence& one : data) texts.push_back({.tokens = one.tokens});
    std::vector<std::vector<float>> states = teacher_states(runtime_, *weights_, texts);
    for (std::size_t i = 0; i < data.size(); ++i) data[i].teacher = head_, data[i].teacher_states = std::move(states[i]);
  }
  const MemoryAccounts& memory() { return runtime_.backend.device().memory(); }

 private:
  Runtime runtime_;
  std::shared_ptr<const WeightSet> weights_;
  std::shared_ptr<const TeacherHead> head_;
};

void check_teacher(const RuntimeSettings& settings, const TrainingPlan& what) {
  const std::int64_t vocabulary = planned_model(settings)->facts().vocabulary;
  if (what.critic != "none")
    fail(ErrorCode::unsupported, "teacher is '{}' and critic '{}', allowed is one of them: no run has both", what.teacher, what.critic);
  if (vocabulary <= Request::kMaxPromptTargets)
    fail(ErrorCode::unsupported,
         "teacher is '{}', and the model has a vocabulary of {} tokens; a plan with a teacher is of more than {}: of fewer, teachers tell the "
         "log-probabilities of all",
         what.teacher, vocabulary, Request::kMaxPromptTargets);
}

std::vector<MemoryPlan> plans_of_training(const RuntimeSettings& settings, const TrainingPlan& what, const TrainerOptions& options, const PlannedRanks& ranks) {
  Runtime runtime = counting_runtime(settings, planned_trained_model(settings, what), what.length);
  const TrainSequence sequence = TrainSequence::next_token(std::vector<std::int32_t>(static_cast<std::size_t>(what.length + 1)));
  std::optional<PlannedTeacher> teacher;  // outlives the data, which refer to its weights
  std::vector<TrainSequence> data(static_cast<std::size_t>(what.sequences), sequence);
  LossOptions loss;
  if (!what.teacher.empty()) {
    check_teacher(settings, what);
    RuntimeSettings own = settings;
    own.model = what.teacher;
    own.ranks.clear();
    teacher.emplace(own, what.length);
    loss.kind = LossKind::divergence;
  }
  const auto runtimes = planned_runtimes(runtime, options.ranks, ranks, data);
  const BackendKind kind = settings.device == "cuda" ? BackendKind::cuda : BackendKind::cpu;
  const KeptPages kept = keeps_over(options.ranks, what.keep_forward, kind) ? kept_pages(runtime, what) : KeptPages();
  Trainer trainer(runtime, no_images(*runtime.model), options, runtimes);
  std::optional<PlannedSampler> sampler;
  if (what.rollouts > 0) {
    if (options.ranks.size() > 1)
      fail(ErrorCode::unsupported, "rollouts is {} and ranks '{}', allowed is one of them: a sampler is planned on one rank", what.rollouts, settings.ranks);
    sampler.emplace(runtime, what);
  }
  const IndexTraining index{.index_loss = options.train_indexer};
  std::optional<PlannedLayer> layer;
  if (what.mtp_depths > 0) layer.emplace(runtime, what.mtp_depths, options, runtimes);
  for (int step = 0; step < 2; ++step) {
    if (sampler) sampler->sample();
    if (teacher) teacher->teach(data);
    trainer.forward_backward(data, loss, index);
    trainer.optim_step({});
    if (layer) layer->learn(trainer, data);
  }
  std::vector<MemoryPlan> plans =
      plans_of(runtimes->ranks().local(), *runtime.model, [&](int rank) -> const MemoryAccounts& { return trainer.ranks().memory(rank); });
  for (MemoryPlan& plan : plans) plan.parameters += layer ? layer->parameters() : 0;
  if (teacher) plans[0] = memory_beside(plans[0], trainer.ranks().memory(0), teacher->memory());
  if (what.critic != "none") add_critic(settings, what, options, ranks, trainer.ranks(), data, plans);
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
  return make_model(planned_config(settings), {.mla_norm_eps = settings.mla_norm_eps});
}

MemoryPlan memory_beside(const MemoryPlan& plan, const MemoryAccounts& memory, const MemoryAccounts& other) {
  MemoryPlan both = plan;
  std::int64_t rests = 0, other_rests = 0;
  for (int c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    const std::int64_t now = memory.current(category), others = other.current(category);
    both.peak[static_cast<std::size_t>(c)] = std::max(memory.peak(category) + others, other.peak(category) + now);
    if (category != MemoryCategory::optimizer_file) rests += now, other_rests += others;
  }
  both.total = std::max(memory.peak_of_all() + other_rests, other.peak_of_all() + rests);
  return both;
}

MemoryPlan memory_of(const MemoryAccounts& memory) {
  MemoryPlan plan;
  for (int c = 0; c < kMemoryCategories; ++c) plan.peak[static_cast<std::size_t>(c)] = memory.peak(static_cast<MemoryCategory>(c));
  plan.total = memory.peak_of_all();
  return plan;
}

std::vector<MemoryPlan> plan_training(const RuntimeSettings& settings, const TrainingPlan& what) {
  check_choice("critic", what.critic, {"none", "full", "adapter"});
  TrainerOptions options = what.trainer;
  options.ranks = planned_layout(settings.ranks);
  if (options.ranks.size() <= kMostRanks) return plans_of_training(settings, what, options, nullptr);
  if (what.mtp_depths > 0)
    fail(ErrorCode::unsupported, "mtp-depths is {} over {} ranks, and a rank alone does not know what the others' layers hear; allowed are {} ranks, or 0",
         what.mtp_depths, options.ranks.size(), kMostRanks);
  std::vector<MemoryPlan> plans;
  for (const int rank : planned_ranks(options.ranks)) {
    const auto alone = [&](const std::vector<TrainSequence>& data) { return rank_alone(data, options.ranks, rank, true); };
    plans.push_back(plans_of_training(settings, what, options, alone).front());
  }
  return plans;
}

std::vector<MemoryPlan> plan_serving(const RuntimeSettings& settings, const ServingPlan& what) {
  Runtime runtime = counting_runtime(settings, planned_model(settings), what.length);
  EngineOptions options = what.engine;
  options.ranks = rank_layout(settings.ranks);
  const auto weights_of = [&](const Manifest& manifest) {
    return make_weight_set(runtime.backend, manifest, WeightImages(manifest.parameters().size()), runtime.profile, 0);
  };
  const MtpLayer* mtp = options.drafts.has(DraftKind::mtp) ? runtime.model->mtp() : nullptr;  // if the files have it
  Engine engine(runtime, weights_of(runtime.model->manifest()), options, mtp ? weights_of(mtp->manifest()) : nullptr);
  // Prompts fill the forwards; then all sequences decode together.
  for (std::int64_t i = 0; i < what.sequences; ++i)
    engine.submit({.prompt = std::vector<std::int32_t>(static_cast<std::size_t>(what.length - 1)), .sampling = {.temperature = 1, .max_tokens = 1}});
  engine.run_until_idle();
  return plans_of(options.ranks.replica(), *runtime.model, [&](int rank) -> const MemoryAccounts& { return engine.rank_steps().memory(rank); });
}

std::int64_t kept_row_bytes(const RuntimeSettings& settings, const KeepForwardSettings& keep) {
  if (!keep.on()) return 0;
  Runtime runtime = counting_runtime(settings, planned_model(settings), 2);
  return kept_forwards_of(keep, runtime, EngineOptions().page_size)->layout().row_bytes();
}

}  // namespace lockstep
