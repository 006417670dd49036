// A plan equals the memory accounts of a real run, by category, to the byte.
#include "planning/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/json_file.h"
#include "engine/engine.h"
#include "model/weights.h"
#include "train/adapter_trainer.h"
#include "train/kept_passes.h"
#include "train/mtp_trainer.h"
#include "train/teacher_head.h"
#include "train/trainer.h"
#include "train/value_loss.h"

namespace lockstep {
namespace {

const std::string kModel = LOCKSTEP_SOURCE_DIR "/models/countdown-glm";

void expect_equal(const MemoryPlan& plan, const MemoryPlan& real) {
  for (std::size_t c = 0; c < plan.peak.size(); ++c) EXPECT_EQ(plan.peak[c], real.peak[c]) << kMemoryCategoryNames[c];
  EXPECT_EQ(plan.total, real.total);
}

// What two steps of what is planned take.
std::vector<MemoryPlan> memory_of_training(const RuntimeSettings& settings, const TrainingPlan& what) {
  OpenedModel opened = open_model(settings);
  TrainerOptions options = what.trainer;
  options.ranks = opened.ranks;
  Trainer trainer(*opened.runtime, opened.masters(), options);
  const std::vector<TrainSequence> data(static_cast<std::size_t>(what.sequences),
                                        TrainSequence::next_token(std::vector<std::int32_t>(static_cast<std::size_t>(what.length + 1), 7)));
  for (int step = 0; step < 2; ++step) {
    trainer.forward_backward(data, {}, {.index_loss = options.train_indexer});
    trainer.optim_step({});
  }
  std::vector<MemoryPlan> real;
  for (int rank = 0; rank < opened.ranks.size(); ++rank) real.push_back(memory_of(trainer.ranks().memory(rank)));
  return real;
}

TEST(MemoryPlan, TrainingIsWhatTheTrainerTakes) {
  std::int64_t whole = 0;
  for (const std::string profile : {"cpu-f32", "cpu-bf16w", "cpu-int4-qat", "cpu-mxfp8"})
    for (const std::int64_t micro_batch : {0, 1}) {
      const RuntimeSettings settings{.model = kModel, .profile = profile, .threads = 1};
      const TrainingPlan what{.sequences = 3, .length = 40, .trainer = {.micro_batch = micro_batch}};
      const MemoryPlan plan = plan_training(settings, what)[0];
      SCOPED_TRACE(profile + (micro_batch ? ", micro-batches" : ""));
      expect_equal(plan, memory_of_training(settings, what)[0]);
      if (micro_batch == 0) whole = plan.total;
      else EXPECT_NE(plan.total, whole);  // a plan that says the same of everything says nothing
    }
}

// An indexer that learns takes more: targets of its loss, gradients and moments of its own. Over pieces of a long text, too.
TEST(MemoryPlan, AnIndexerThatLearnsIsCounted) {
  const Json config = [] {
    Json json = planned_config({.model = kModel});
    json["max_position_embeddings"] = 2048;
    return json;
  }();
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "indexer-that-learns";
  std::filesystem::create_directories(folder);
  for (const auto& file : std::filesystem::directory_iterator(kModel))
    std::filesystem::copy_file(file.path(), folder / file.path().filename(), std::filesystem::copy_options::overwrite_existing);
  std::ofstream(folder / "config.json") << config.dump();
  for (const std::string ranks : {"", "cp=2"}) {
    SCOPED_TRACE(ranks);
    const RuntimeSettings settings{.model = folder.string(), .profile = "cpu-bf16w", .threads = 1, .ranks = ranks};
    std::int64_t frozen = 0;
    for (const bool learns : {false, true}) {
      const TrainingPlan what{.sequences = 1, .length = 2048, .trainer = {.checkpoint_activations = true, .train_indexer = learns}};
      const std::vector<MemoryPlan> plans = plan_training(settings, what), real = memory_of_training(settings, what);
      ASSERT_EQ(plans.size(), real.size());
      for (std::size_t rank = 0; rank < plans.size(); ++rank) expect_equal(plans[rank], real[rank]);
      const auto of = [&](MemoryCategory c) { return plans[0].peak[static_cast<std::size_t>(c)]; };
      const std::int64_t all = of(MemoryCategory::optimizer) + of(MemoryCategory::activations);
      if (learns) EXPECT_GT(all, frozen);
      else frozen = all;
      if (learns && ranks.empty()) {  // feed-forward layers in tiles of rows
        TrainingPlan tiled = what;
        tiled.trainer.row_tile = 512;
        const MemoryPlan plan = plan_training(settings, tiled)[0];
        expect_equal(plan, memory_of_training(settings, tiled)[0]);
        EXPECT_NE(plan.peak, plans[0].peak);
      }
    }
  }
}

// The layer of multi-token prediction beside the model, on the devices of its ranks: each depth takes activations of its own.
TEST(MemoryPlan, ALayerOfMultiTokenPredictionIsCounted) {
  for (const std::string ranks : {"", "tp=2", "dp=2"}) {
    const RuntimeSettings settings{.model = kModel, .profile = "cpu-bf16w", .threads = 1, .ranks = ranks};
    TrainingPlan what{.sequences = 3, .length = 40, .trainer = {.micro_batch = 2}};
    MemoryPlan before = plan_training(settings, what)[0];
    for (const std::int64_t depths : {1, 8}) {
      SCOPED_TRACE(fmt::format("{} depths, {}", depths, ranks));
      what.mtp_depths = depths;
      const std::vector<MemoryPlan> plans = plan_training(settings, what);
      RuntimeSettings with_layer = settings;
      with_layer.new_mtp = true;
      OpenedModel opened = open_model(with_layer);
      TrainerOptions options = what.trainer;
      options.ranks = opened.ranks;
      const auto runtimes = std::make_shared<RankRuntimes>(*opened.runtime, options.ranks);
      Trainer trainer(*opened.runtime, opened.masters(), options, runtimes);
      const Manifest& layer = opened.model->mtp()->manifest();
      const bool learns = std::any_of(layer.parameters().begin(), layer.parameters().end(), [](const Parameter& p) { return p.indexer; });
      MtpTrainer drafts(*opened.runtime, initial_weights(layer, 1, 0.02), {.depths = depths, .train_indexer = learns}, options, runtimes);
      const std::vector<TrainSequence> data(3, TrainSequence::next_token(std::vector<std::int32_t>(41, 7)));
      for (int step = 0; step < 2; ++step) {
        trainer.forward_backward(data, {});
        trainer.optim_step({});
        std::vector<TrunkShare> trunk;
        for (const auto& part : trainer.ranks().parts()) trunk.push_back({part->weights().get()});
        drafts.forward_backward(trunk, data);
        drafts.optim_step({});
      }
      ASSERT_EQ(plans.size(), static_cast<std::size_t>(opened.ranks.size()));
      for (std::size_t rank = 0; rank < plans.size(); ++rank) expect_equal(plans[rank], memory_of(trainer.ranks().memory(static_cast<int>(rank))));
      EXPECT_GE(plans[0].total, before.total + (depths == 1 ? 1 : 0));
      EXPECT_EQ(plans[0].parameters - before.parameters, depths == 1 ? trained_size(layer) : 0);
      before = plans[0];
    }
  }
}

TEST(MemoryPlan, ALayerThatNoModelOfTheFamilyHasIsRefused) {
  try {
    plan_training({.model = LOCKSTEP_SOURCE_DIR "/tests/golden/llama/tiny.json", .threads = 1}, {.sequences = 1, .length = 8, .mtp_depths = 2});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported) << e.what();
    EXPECT_NE(std::string(e.what()).find("mtp-depths is 2, and a model of type llama has no layer"), std::string::npos) << e.what();
  }
}

// Weights in shares: segments that are whole for a time are counted, too, and so is a rank that has fewer passes than the other.
TEST(MemoryPlan, WeightsInSharesAreWhatEachRankTakes) {
  for (const std::string profile : {"cpu-f32", "cpu-bf16w", "cpu-mxfp8"}) {
    std::int64_t gradients = 0;
    for (const std::string ranks : {"dp=2,shard=weights", "dp=2"}) {
      SCOPED_TRACE(profile + ", " + ranks);
      const RuntimeSettings settings{.model = kModel, .profile = profile, .threads = 2, .ranks = ranks};
      const TrainingPlan what{.sequences = 3, .length = 40, .trainer = {.micro_batch = 1}};
      const std::vector<MemoryPlan> plans = plan_training(settings, what), real = memory_of_training(settings, what);
      for (std::size_t rank = 0; rank < 2; ++rank) expect_equal(plans[rank], real[rank]);
      const std::int64_t planned = plans[0].peak[static_cast<std::size_t>(MemoryCategory::gradients)];
      if (ranks == "dp=2") EXPECT_NE(planned, gradients);  // the control
      else gradients = planned;
    }
  }
}

// Of many layers two are a small part.
TEST(MemoryPlan, WeightsInSharesTakeLess) {
  const auto total = [](const std::string& ranks) {
    const RuntimeSettings settings{.model = planned_name("qwen3-8b"), .profile = "cpu-bf16w", .threads = 1, .ranks = ranks};
    return static_cast<double>(plan_training(settings, {.sequences = 4, .length = 64})[0].total);
  };
  const double one = total(""), state = total("dp=4"), weights = total("dp=4,shard=weights");
  EXPECT_LT(weights, 0.7 * state);
  EXPECT_GT(weights, 0.2 * one);
}

// The rank of `ranks` that has row `row` of a parameter with so many rows: another derivation of what parameter_share deals.
std::int64_t owner_of_row(std::int64_t row, std::int64_t rows, std::int64_t id, std::int64_t ranks) {
  return (ranks * (row + 1) - id % ranks + rows - 1) / rows - 1;
}

// Gradients and optimizer of a rank: accumulators of all weights, 24 bytes each, and of its own rows the gradient and two moments.
struct RowBytes {
  std::int64_t gradients = 0, optimizer = 0;
};
RowBytes bytes_of_rows(const Model& model, std::int64_t rank, std::int64_t ranks) {
  RowBytes bytes;
  for (std::size_t id = 0; id < model.manifest().parameters().size(); ++id) {
    const Parameter& p = model.manifest().parameters()[id];
    const bool packed = p.layout == ParameterLayout::packed;
    const std::int64_t rows = packed ? p.count * ((p.outputs + 15) / 16) : p.count * p.outputs, width = packed ? 16 * p.inputs : p.inputs;
    std::int64_t own = 0;
    for (std::int64_t row = 0; row < rows; ++row) own += owner_of_row(row, rows, static_cast<std::int64_t>(id), ranks) == rank;
    bytes.gradients += 24 * rows * (packed ? width : (width + 15) / 16 * 16) + 4 * own * width;
    bytes.optimizer += 2 * 4 * own * width;
  }
  return bytes;
}

// Ranks of a layout that is only planned: each by itself, in seconds.
TEST(MemoryPlan, ARankOf1024TakesItsRows) {
  const auto settings_of = [](const std::string& ranks) {
    return RuntimeSettings{.model = planned_name("qwen3-8b"), .profile = "cpu-bf16w", .threads = 1, .ranks = ranks};
  };
  const std::shared_ptr<const Model> model = planned_model(settings_of(""));
  const auto of = [](const MemoryPlan& plan, MemoryCategory c) { return plan.peak[static_cast<std::size_t>(c)]; };
  const std::vector<MemoryPlan> plans = plan_training(settings_of("dp=1024"), {.sequences = 1024, .length = 16});
  ASSERT_EQ(plans.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const RowBytes want = bytes_of_rows(*model, i == 0 ? 0 : 1023, 1024), other = bytes_of_rows(*model, i == 0 ? 0 : 511, 512);
    EXPECT_EQ(of(plans[i], MemoryCategory::gradients), want.gradients) << i;
    EXPECT_EQ(of(plans[i], MemoryCategory::optimizer), want.optimizer) << i;
    EXPECT_NE(want.optimizer, other.optimizer);  // the control
  }
  const MemoryPlan shared = plan_training(settings_of("dp=1024,shard=weights"), {.sequences = 1024, .length = 16})[1];
  EXPECT_EQ(of(shared, MemoryCategory::optimizer), bytes_of_rows(*model, 1023, 1024).optimizer);
  EXPECT_LT(of(shared, MemoryCategory::gradients), of(plans[1], MemoryCategory::gradients) / 8);
}

TEST(MemoryPlan, ACriticStandsBesideARankOfALargeLayout) {
  const auto plan_of = [](const std::string& critic, const std::string& ranks) {
    return plan_training({.model = kModel, .profile = "cpu-bf16w", .threads = 1, .ranks = ranks}, {.sequences = 65, .length = 40, .critic = critic});
  };
  const std::vector<MemoryPlan> alone = plan_of("none", "dp=65");
  ASSERT_EQ(alone.size(), 2u);
  for (const std::string critic : {"full", "adapter"})
    for (std::size_t i = 0; i < 2; ++i) EXPECT_GT(plan_of(critic, "dp=65")[i].total, alone[i].total) << critic;
  EXPECT_THROW(plan_of("none", "dp=1025"), Error);
}

// An engine's pages of kept forwards take memory of the cache while a step computes.
TEST(MemoryPlan, KeptForwardsStandBesideAStep) {
  const RuntimeSettings settings{.model = kModel, .profile = "cpu-f32", .threads = 1};
  const OpenedModel opened = open_model(settings);
  const auto plan_of = [](const RuntimeSettings& planned, const KeepForwardSettings& keep) {
    return plan_training(planned, {.sequences = 3, .length = 40, .keep_forward = keep})[0];
  };
  constexpr auto kCache = static_cast<std::size_t>(MemoryCategory::cache);
  const MemoryPlan none = plan_of(settings, {});
  EXPECT_EQ(kept_row_bytes(settings, {}), 0);
  for (const std::string mode : {"inputs", "all"}) {
    const KeepForwardSettings plenty{.mode = mode}, little{.mode = mode, .megabytes = 1};
    const std::int64_t row = kept_row_bytes(settings, plenty);
    EXPECT_EQ(row, kept_forwards_of(plenty, *opened.runtime, 16)->layout().row_bytes()) << mode;
    // Three pages of 16 rows for the 40 tokens of each sequence, or as many as a megabyte has.
    const std::int64_t page = 16 * row, most = (std::int64_t{1} << 20) / page;
    for (const auto& [keep, pages] : {std::pair{plenty, std::int64_t{9}}, std::pair{little, std::min<std::int64_t>(9, most)}}) {
      const MemoryPlan plan = plan_of(settings, keep);
      EXPECT_EQ(plan.peak[kCache] - none.peak[kCache], pages * page) << mode;
      EXPECT_EQ(plan.total - none.total, pages * page) << mode;
    }
    if (mode == "all") {
      EXPECT_LT(most, 9);  // little is little
    }
  }
  EXPECT_THROW(plan_of(settings, {.mode = "some"}), Error);
}

// Over ranks the first one has the pages of all, in the layouts that read them; of more ranks than a run has none does.
TEST(MemoryPlan, KeptForwardsOfRanksStandOnTheFirst) {
  constexpr auto kCache = static_cast<std::size_t>(MemoryCategory::cache);
  struct Way {
    std::string ranks, mode;
    bool kept;
  };
  for (const Way& way : {Way{"tp=2,dp=2", "inputs", true}, Way{"dp=2", "all", true}, Way{"tp=2", "all", false}, Way{"pp=2", "inputs", false}}) {
    SCOPED_TRACE(way.ranks + ", " + way.mode);
    const RuntimeSettings settings{.model = kModel, .profile = "cpu-f32", .threads = 2, .ranks = way.ranks};
    TrainingPlan what{.sequences = 3, .length = 40};
    const std::vector<MemoryPlan> none = plan_training(settings, what);
    what.keep_forward.mode = way.mode;
    const std::vector<MemoryPlan> plans = plan_training(settings, what);
    const std::int64_t pages = way.kept ? 9 * 16 * kept_row_bytes(settings, what.keep_forward) : 0;
    ASSERT_EQ(plans.size(), none.size());
    for (std::size_t rank = 0; rank < plans.size(); ++rank) EXPECT_EQ(plans[rank].peak[kCache] - none[rank].peak[kCache], rank == 0 ? pages : 0) << rank;
    if (!way.kept) continue;
    // What a run takes: its pages, and a step beside them.
    OpenedModel opened = open_model(settings);
    const std::shared_ptr<KeptForwards> forwards = kept_forwards_over(opened.ranks, what.keep_forward, *opened.runtime, 16);
    ASSERT_NE(forwards, nullptr);
    TrainerOptions options;
    options.kept_forwards = forwards;
    options.ranks = opened.ranks;
    std::vector<KeptForwards::RowsPointer> rows;
    for (int page = 0; page < 9; ++page) rows.push_back(forwards->allocate());
    Trainer trainer(*opened.runtime, opened.masters(), options);
    const std::vector<TrainSequence> data(3, TrainSequence::next_token(std::vector<std::int32_t>(41, 7)));
    for (int step = 0; step < 2; ++step) {
      trainer.forward_backward(data, {});
      trainer.optim_step({});
    }
    for (std::size_t rank = 0; rank < plans.size(); ++rank) expect_equal(plans[rank], memory_of(trainer.ranks().memory(static_cast<int>(rank))));
  }
  const RuntimeSettings large{.model = kModel, .profile = "cpu-f32", .threads = 1, .ranks = "dp=65"};
  TrainingPlan what{.sequences = 65, .length = 40};
  const std::vector<MemoryPlan> none = plan_training(large, what);
  what.keep_forward.mode = "inputs";
  const std::vector<MemoryPlan> plans = plan_training(large, what);
  ASSERT_EQ(plans.size(), none.size());
  for (std::size_t rank = 0; rank < plans.size(); ++rank) expect_equal(plans[rank], none[rank]);
}

// A sampler as `train rl` has one, on the same device: its copy of the weights and its pages stand there while the trainer computes.
TEST(MemoryPlan, ASamplerBesideIsCounted) {
  const RuntimeSettings settings{.model = kModel, .profile = "cpu-f32", .threads = 1};
  const TrainingPlan what{.sequences = 3, .length = 40, .rollouts = 5};
  const OpenedModel opened = open_model(settings);
  Trainer trainer(*opened.runtime, opened.masters(), {});
  EngineOptions options;
  options.max_sequences = 5, options.cache_pages = 15;
  Engine engine(*opened.runtime, opened.weight_set(), options);
  const std::vector<TrainSequence> data(3, TrainSequence::next_token(std::vector<std::int32_t>(41, 7)));
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < 5; ++i) engine.submit({.prompt = std::vector<std::int32_t>(39, 7), .sampling = {.temperature = 1, .max_tokens = 1}});
    engine.run_until_idle();
    trainer.forward_backward(data, {});
    trainer.optim_step({});
  }
  const MemoryPlan plan = plan_training(settings, what)[0];
  expect_equal(plan, memory_of(trainer.ranks().memory(0)));
  TrainingPlan alone = what;
  alone.rollouts = 0;
  EXPECT_GE(plan.total, plan_training(settings, alone)[0].total + trained_size(opened.model->manifest()) * 4);
  RuntimeSettings several = settings;
  several.ranks = "dp=2";
  EXPECT_THROW(plan_training(several, what), Error);
}

// The most that two trainers hold which work one after the other, as `train rl` has them.
std::int64_t measured_beside(const RuntimeSettings& settings, const TrainingPlan& what) {
  const OpenedModel opened = open_model(settings), values = open_value_model(settings);
  Trainer policy(*opened.runtime, opened.masters(), what.trainer);
  std::vector<TrainSequence> data(static_cast<std::size_t>(what.sequences), TrainSequence::next_token(std::vector<std::int32_t>(41, 7)));
  for (TrainSequence& one : data) one.advantages = one.weights;
  const LossOptions loss = value_loss({{"averaging", "token_mean"}});
  TrainerOptions of_values = what.trainer;
  of_values.kept = kept_by_steps(of_values.micro_batch, true);
  MemoryAccounts &of_policy = opened.runtime->backend.device().memory(), &of_critic = values.runtime->backend.device().memory();
  const auto rests = [](const MemoryAccounts& memory) {
    std::int64_t bytes = 0;
    for (int c = 0; c < kMemoryCategories; ++c) bytes += memory.current(static_cast<MemoryCategory>(c));
    return bytes;
  };
  std::int64_t most = 0;
  const auto take_turns = [&](auto& critic) {
    for (int step = 0; step < 3; ++step) {
      of_critic.reset_peaks();
      critic.score(data);
      critic.forward_backward(data, loss);
      critic.optim_step({});
      most = std::max(most, of_critic.peak_of_all() + rests(of_policy));
      of_policy.reset_peaks();
      policy.forward_backward(data, {});
      policy.optim_step({});
      most = std::max(most, of_policy.peak_of_all() + rests(of_critic));
    }
  };
  if (what.critic == "full") {
    Trainer critic(*values.runtime, values.masters(), of_values);
    take_turns(critic);
  } else {
    const auto layout = std::make_shared<const AdapterLayout>(values.model->manifest(), AdapterSettings{.rank = what.critic_rank, .unembedding = true});
    AdapterTrainer critic(std::make_shared<FrozenBase>(*values.runtime, values.weight_set(), of_values), layout, initial_adapter(*layout, 3));
    take_turns(critic);
  }
  return most;
}

TEST(MemoryPlan, ACriticStandsBesideWhatIsTrained) {
  const RuntimeSettings settings{.model = kModel, .profile = "cpu-bf16w", .threads = 1};
  const MemoryPlan alone = plan_training(settings, {.sequences = 3, .length = 40})[0];
  for (const std::string critic : {"full", "adapter"})
    for (const std::int64_t micro_batch : {0, 1}) {
      SCOPED_TRACE(fmt::format("{} critic, micro-batches of {}", critic, micro_batch));
      const TrainingPlan what{.sequences = 3, .length = 40, .trainer = {.micro_batch = micro_batch}, .critic = critic, .critic_rank = 4};
      const MemoryPlan plan = plan_training(settings, what)[0];
      const auto measured = static_cast<double>(measured_beside(settings, what));
      EXPECT_NEAR(static_cast<double>(plan.total), measured, 0.1 * measured);
      if (micro_batch == 0) {
        EXPECT_GT(plan.total, alone.total + alone.total / (critic == "full" ? 4 : 20));
        // The forward that is kept for the gradient leaves no cache for a next one.
        TrainingPlan twice = what;
        twice.trainer.kept = std::make_shared<KeptPasses>(0);
        EXPECT_LT(plan.total, plan_training(settings, twice)[0].total);
      }
      EXPECT_GT(plan.parameters, alone.parameters);
    }
  const std::string why = [&] {
    try {
      plan_training(settings, {.critic = "ful"});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  }();
  EXPECT_NE(why.find("did you mean 'full'"), std::string::npos) << why;
}

// The most that a student and its teacher hold together, in two steps of both.
std::int64_t measured_with_teacher(const RuntimeSettings& settings, const TrainingPlan& what) {
  OpenedModel student = open_untrained_model(settings, 1, 0.02), opened = open_untrained_model(settings, 2, 0.02);
  const std::shared_ptr<const WeightSet> weights = opened.weight_set();
  const auto head = std::make_shared<const TeacherHead>(teacher_head(opened.runtime, weights));
  Trainer trainer(*student.runtime, student.masters(), what.trainer);
  std::vector<TrainSequence> data(static_cast<std::size_t>(what.sequences),
                                  TrainSequence::next_token(std::vector<std::int32_t>(static_cast<std::size_t>(what.length + 1), 7)));
  LossOptions loss;
  loss.kind = LossKind::divergence;
  MemoryAccounts &of_student = student.runtime->backend.device().memory(), &of_teacher = opened.runtime->backend.device().memory();
  const auto rests = [](const MemoryAccounts& memory) {
    std::int64_t bytes = 0;
    for (int c = 0; c < kMemoryCategories; ++c) bytes += memory.current(static_cast<MemoryCategory>(c));
    return bytes;
  };
  std::int64_t most = 0;
  for (int step = 0; step < 2; ++step) {
    of_teacher.reset_peaks();
    for (TrainSequence& one : data) {
      one.teacher = head;
      one.teacher_states = teacher_states(*opened.runtime, *weights, std::vector<TaughtText>{{.tokens = one.tokens}})[0];
    }
    most = std::max(most, of_teacher.peak_of_all() + rests(of_student));
    of_student.reset_peaks();
    trainer.forward_backward(data, loss);
    trainer.optim_step({});
    most = std::max(most, of_student.peak_of_all() + rests(of_teacher));
  }
  return most;
}

TEST(MemoryPlan, ATeacherStandsBesideWhatIsTrained) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "lockstep_taught_plan";
  std::filesystem::create_directories(folder);
  Json config = read_json_file(std::filesystem::path(kModel) / "config.json");
  config["vocab_size"] = 5000;
  write_file_atomic(folder / "config.json", config.dump());
  const RuntimeSettings settings{.model = folder.string(), .profile = "cpu-bf16w", .threads = 1};
  const MemoryPlan alone = plan_training(settings, {.sequences = 3, .length = 40})[0];
  for (const std::int64_t micro_batch : {0, 1}) {
    const TrainingPlan what{.sequences = 3, .length = 40, .trainer = {.micro_batch = micro_batch}, .teacher = settings.model};
    const MemoryPlan plan = plan_training(settings, what)[0];
    const auto measured = static_cast<double>(measured_with_teacher(settings, what));
    EXPECT_NEAR(static_cast<double>(plan.total), measured, 0.1 * measured) << micro_batch;
    if (micro_batch == 0) {
      const std::int64_t chunk = 4 * 120 * 5000;
      EXPECT_GT(plan.total, alone.total);
      EXPECT_LT(plan.total, alone.total + 2 * chunk + alone.peak[static_cast<std::size_t>(MemoryCategory::weights)]);
    }
  }
  const auto told = [&](const RuntimeSettings& of, const TrainingPlan& what) {
    try {
      plan_training(of, what);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const std::string few = told({.model = kModel, .threads = 1}, {.teacher = kModel}), both = told(settings, {.critic = "full", .teacher = settings.model});
  EXPECT_NE(few.find("a plan with a teacher is of more than 1024"), std::string::npos) << few;
  EXPECT_NE(both.find("allowed is one of them"), std::string::npos) << both;
}

TEST(MemoryPlan, OptimizerStateInAFileIsItsOwnCategory) {
  const RuntimeSettings settings{.model = kModel, .profile = "cpu-bf16w", .threads = 1};
  TrainingPlan what{.sequences = 3, .length = 40};
  const MemoryPlan memory = plan_training(settings, what)[0];
  what.trainer.optimizer_folder = ::testing::TempDir();
  const MemoryPlan plan = plan_training(settings, what)[0];
  expect_equal(plan, memory_of_training(settings, what)[0]);
  const auto of = [](const MemoryPlan& p, MemoryCategory c) { return p.peak[static_cast<std::size_t>(c)]; };
  EXPECT_EQ(of(memory, MemoryCategory::optimizer_file), 0);
  EXPECT_EQ(of(plan, MemoryCategory::optimizer), 0);
  EXPECT_GT(of(plan, MemoryCategory::optimizer_file), of(memory, MemoryCategory::optimizer));  // masters too
  EXPECT_EQ(plan.total, memory.total - of(plan, MemoryCategory::optimizer_file));
}

TEST(MemoryPlan, ServingIsWhatTheEngineTakes) {
  const RuntimeSettings settings{.model = kModel, .threads = 1};
  const ServingPlan what{.sequences = 5, .length = 60, .engine = {.cache_bytes = 1 << 20, .max_sequences = 5}};
  const MemoryPlan plan = plan_serving(settings, what)[0];
  const OpenedModel opened = open_model(settings);
  Engine engine(*opened.runtime, serving_model(opened).weights, what.engine);
  for (int i = 0; i < 5; ++i) engine.submit({.prompt = std::vector<std::int32_t>(59, 7), .sampling = {.temperature = 1, .max_tokens = 1}});
  engine.run_until_idle();
  expect_equal(plan, memory_of(opened.runtime->backend.device().memory()));
}

TEST(MemoryPlan, EveryRankHasItsOwn) {
  for (const std::string ranks :
       {"tp=2", "dp=3", "tp=3,dp=2", "ep=3", "tp=2,dp=2,ep=2", "ep=2,rows=dealt", "dp=2,ep=4,rows=dealt", "ep=9", "ep=10,rows=dealt"}) {
    SCOPED_TRACE(ranks);
    const RuntimeSettings settings{.model = kModel, .profile = "cpu-bf16w", .threads = 1, .ranks = ranks};
    const TrainingPlan what{.sequences = 3, .length = 40};
    const std::vector<MemoryPlan> plans = plan_training(settings, what), real = memory_of_training(settings, what);
    ASSERT_EQ(plans.size(), real.size());
    for (std::size_t rank = 0; rank < plans.size(); ++rank) {
      SCOPED_TRACE(rank);
      expect_equal(plans[rank], real[rank]);
    }
  }
}

TEST(MemoryPlan, EveryRankThatServesHasItsOwn) {
  for (const std::string ranks : {"tp=2", "tp=2,ep=2"}) {
    SCOPED_TRACE(ranks);
    const RuntimeSettings settings{.model = kModel, .threads = 1, .ranks = ranks};
    ServingPlan what{.sequences = 5, .length = 60, .engine = {.cache_bytes = 1 << 20, .max_sequences = 5}};
    const std::vector<MemoryPlan> plans = plan_serving(settings, what);
    const OpenedModel opened = open_model(settings);
    what.engine.ranks = opened.ranks;
    Engine engine(*opened.runtime, serving_model(opened).weights, what.engine);
    for (int i = 0; i < 5; ++i) engine.submit({.prompt = std::vector<std::int32_t>(59, 7), .sampling = {.temperature = 1, .max_tokens = 1}});
    engine.run_until_idle();
    ASSERT_EQ(plans.size(), static_cast<std::size_t>(opened.ranks.size()));
    for (std::size_t rank = 0; rank < plans.size(); ++rank) expect_equal(plans[rank], memory_of(engine.rank_steps().memory(static_cast<int>(rank))));
  }
}

// Large models go by the catalog's names; a folder of that name would come first.
TEST(MemoryPlan, TakesLargeModelsByName) {
  EXPECT_EQ(planned_name("Qwen/Qwen3-8B"), kCatalogModel + "qwen3-8b");
  EXPECT_EQ(planned_name(kModel), kModel);
  EXPECT_EQ(planned_name("qwen3-9b"), "qwen3-9b");
  const MemoryPlan plan = plan_serving({.model = planned_name("Qwen3 8B"), .threads = 1}, {.sequences = 1, .length = 16})[0];
  EXPECT_EQ(plan.parameters, 8190735360);
  EXPECT_GT(plan.total, 2 * plan.parameters);
  try {
    planned_name("Qwen/Qwen3.5-35B-A3B");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported) << e.what();
  }
}

}  // namespace
}  // namespace lockstep
