// A layer of multi-token prediction is trained beside a model: the model's weights are, bit for bit, those of a run without; a stopped run goes on to the
// same bits; what is exported has the layer; another run begins with it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "jobs/job_test_tools.h"
#include "jobs/rl_job.h"
#include "jobs/sft_job.h"
#include "runs/training_state.h"
#include "serving/loading.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class MtpJobs : public testing::Test {
 protected:
  ~MtpJobs() override { fs::remove_all(root_); }
  // A copy of the shipped model that has no layer, whether that one has or not.
  std::string shipped_model() const {
    const fs::path shipped = fs::path(LOCKSTEP_SOURCE_DIR) / "models/countdown-glm", bare = root_ / "without-layer";
    if (fs::exists(bare)) return bare.string();
    nlohmann::ordered_json config = nlohmann::ordered_json::parse(bytes_of(shipped / "config.json"));
    fs::create_directories(root_);
    fs::copy(shipped, bare);
    const std::string all = bytes_of(shipped / "model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, all.data(), sizeof length);
    const std::string prefix = "model.layers." + std::to_string(config.at("num_hidden_layers").get<int>()) + ".";
    const nlohmann::ordered_json tensors = nlohmann::ordered_json::parse(all.substr(8, length));
    nlohmann::ordered_json kept = nlohmann::ordered_json::object();
    std::string data;
    for (const auto& [name, tensor] : tensors.items()) {
      if (name == "__metadata__" || name.starts_with(prefix)) continue;
      const auto offsets = tensor.at("data_offsets").get<std::vector<std::size_t>>();
      kept[name] = tensor;
      kept[name]["data_offsets"] = std::vector<std::size_t>{data.size(), data.size() + offsets[1] - offsets[0]};
      data += all.substr(8 + length + offsets[0], offsets[1] - offsets[0]);
    }
    std::string head = kept.dump();
    head.resize((head.size() + 7) / 8 * 8, ' ');
    length = head.size();
    std::string size(sizeof length, '\0');
    std::memcpy(size.data(), &length, sizeof length);
    std::ofstream(bare / "model.safetensors", std::ios::binary | std::ios::trunc) << size << head << data;
    config.erase("num_nextn_predict_layers");
    std::ofstream(bare / "config.json", std::ios::trunc) << config.dump(2) << "\n";
    return bare.string();
  }
  static std::string bytes_of(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  SftJob job(const std::string& name, std::int64_t depths) {
    SftJob made;
    SftConfig& c = made.config;
    settings_of_run(c.run, c.runtime, root_, name);
    c.runtime.model = shipped_model();
    made.environment = "countdown";
    c.asked.steps = 4;
    c.asked.batch = 2;
    c.asked.warmup = 0;
    c.export_dtype = "f32";
    c.mtp.depths = depths;
    c.mtp.learning_rate = 3e-3;
    return made;
  }
  std::vector<nlohmann::json> metrics(const std::string& name) { return metrics_of(root_ / name); }
  fs::path root_ = fs::path(testing::TempDir()) / ("lockstep_mtp_jobs_" + std::to_string(::getpid()));
};

TEST_F(MtpJobs, TheModelsWeightsAreThoseOfARunWithout) {
  const SftSummary without = run_sft_job(job("without", 0)), with = run_sft_job(job("with", 3));
  EXPECT_EQ(with.weights_sha256, without.weights_sha256);
  EXPECT_NE(with.weights_sha256, ModelReader::open(shipped_model())->weights_sha256());  // something was trained
  EXPECT_TRUE(without.draft_sha256.empty());
  EXPECT_FALSE(metrics("without")[0].contains("mtp_loss"));
  const auto exported = ModelReader::open(with.exported), bare = ModelReader::open(without.exported);
  EXPECT_EQ(exported->weights_sha256(), bare->weights_sha256());
  EXPECT_FALSE(bare->has_mtp());
  ASSERT_TRUE(exported->has_mtp());
  EXPECT_EQ(exported->mtp_sha256(), with.draft_sha256);
  const std::vector<nlohmann::json> lines = metrics("with");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_LT(lines[3].at("mtp_loss").get<double>(), lines[0].at("mtp_loss").get<double>());
  EXPECT_TRUE(lines[0].contains("mtp_loss_3"));
  EXPECT_FALSE(lines[0].contains("mtp_loss_4"));
  // The layer's own bits do depend on how it is trained, the model's never.
  EXPECT_NE(run_sft_job(job("other", 2)).draft_sha256, with.draft_sha256);
  for (const char* loss : {"tv", "both"}) {
    SftJob other = job(loss, 3);
    other.config.mtp.loss = loss;
    const SftSummary trained = run_sft_job(other);
    EXPECT_EQ(trained.weights_sha256, without.weights_sha256) << loss;
    EXPECT_NE(trained.draft_sha256, with.draft_sha256) << loss;
    const std::vector<nlohmann::json> told = metrics(loss);
    EXPECT_LT(told[3].at("mtp_variation").get<double>(), told[0].at("mtp_variation").get<double>()) << loss;
    EXPECT_TRUE(told[0].contains("mtp_overlap_3")) << loss;
    EXPECT_EQ(told[0].contains("mtp_loss_1"), std::string(loss) == "both") << loss;
  }
}

// What a depth is given of the one before stands in the export's config.json, and so in what is drafted and trained from there.
TEST_F(MtpJobs, UnnormedStatesAreOfTheModelThatIsExported) {
  const auto of = [&](const std::string& name, const std::string& state) {
    SftJob made = job(name, 3);
    made.config.asked.steps = 2;
    made.config.mtp.state = state;
    return made;
  };
  const SftSummary normed = run_sft_job(of("normed", "auto")), unnormed = run_sft_job(of("unnormed", "unnormed"));
  EXPECT_EQ(unnormed.weights_sha256, normed.weights_sha256);
  EXPECT_NE(unnormed.draft_sha256, normed.draft_sha256);
  EXPECT_EQ(run_sft_job(of("said", "normed")).draft_sha256, normed.draft_sha256);
  const auto says_normed = [](const std::string& folder) {
    return nlohmann::json::parse(std::ifstream(fs::path(folder) / "config.json")).value("normed_state_for_mtp_iteration", true);
  };
  EXPECT_TRUE(says_normed(normed.exported));
  EXPECT_FALSE(says_normed(unnormed.exported));
  EXPECT_EQ(metrics("unnormed")[0].at("mtp_loss_1").get<double>(), metrics("normed")[0].at("mtp_loss_1").get<double>());
  EXPECT_NE(metrics("unnormed")[0].at("mtp_loss_2").get<double>(), metrics("normed")[0].at("mtp_loss_2").get<double>());
  std::vector<std::string> hashes;
  for (const char* state : {"auto", "unnormed", "normed"}) {
    SftJob next = of(std::string("next-") + state, state);
    next.config.runtime.model = unnormed.exported;
    hashes.push_back(run_sft_job(next).draft_sha256);
  }
  EXPECT_EQ(hashes[1], hashes[0]);
  EXPECT_NE(hashes[2], hashes[0]);
  try {
    run_sft_job(of("other", "raw"));
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("mtp-state is 'raw', allowed are auto, normed, unnormed"), std::string::npos) << e.message();
  }
}

TEST_F(MtpJobs, AStoppedRunGoesOnToTheSameLayer) {
  const SftSummary whole = run_sft_job(job("whole", 2));
  StopSource source;
  SftJob parts = job("parts", 2);
  parts.config.micro_batch = 1;
  parts.config.run.keep_last = 1;
  parts.config.run.checkpoint_every = 1;
  parts.config.run.stop = source.token();
  parts.config.run.on_step = [&source](std::int64_t step) {
    if (step == 2) source.stop();
  };
  EXPECT_TRUE(run_sft_job(parts).interrupted);
  parts.config.run.resume = true;
  parts.config.run.stop = {};
  const SftSummary rest = run_sft_job(parts);
  EXPECT_EQ(rest.weights_sha256, whole.weights_sha256);
  EXPECT_EQ(rest.draft_sha256, whole.draft_sha256);
  // A model whose layer's state is gone does not go on beside a new one.
  fs::remove_all(root_ / "parts" / "mtp");
  parts.config.asked.steps = 5;
  try {
    run_sft_job(parts);
    ADD_FAILURE() << "went on without the layer's state";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::not_found) << e.message();
    EXPECT_NE(e.message().find("goes on at step 4"), std::string::npos) << e.message();
  }
}

// With a learning rate of 0 the layer alone is trained, and a run that begins from such a run's checkpoint begins with its layer.
TEST_F(MtpJobs, TheLayerAloneIsTrainedAndAnotherRunBeginsWithIt) {
  const auto alone = [&](const std::string& name, std::int64_t steps) {
    SftJob only = job(name, 1);
    only.config.asked.steps = steps;
    only.config.asked.learning_rate = 0;
    only.config.router_bias_rate = 0;
    only.config.train_indexer = false;
    return only;
  };
  const SftSummary first = run_sft_job(alone("first", 6));
  EXPECT_EQ(first.weights_sha256, ModelReader::open(shipped_model())->weights_sha256());
  const std::vector<nlohmann::json> begun = metrics("first");
  SftJob next = alone("next", 1);
  next.config.run.resolved["forked_from"] = (root_ / "first/checkpoints/step-000006").string();
  run_sft_job(next);
  const double of_new = begun[0].at("mtp_loss").get<double>(), of_taught = metrics("next")[0].at("mtp_loss").get<double>();  // of one batch
  EXPECT_LT(of_taught, of_new - 0.1);
  // So does one from the exported model, with the bits of the fork.
  SftJob from_export = alone("from-export", 1);
  from_export.config.runtime.model = first.exported;
  run_sft_job(from_export);
  EXPECT_EQ(metrics("from-export")[0].at("mtp_loss").get<double>(), of_taught);
}

// Ranks change no bit of either; a run goes on with another layout.
TEST_F(MtpJobs, OverRanksBothHaveTheBitsOfOne) {
  const SftSummary one = run_sft_job(job("one", 2));
  for (const auto& [name, layout] : {std::pair("two", "tp=2,dp=2"), std::pair("three", "ep=2,pp=2")}) {
    StopSource source;
    SftJob ranks = job(name, 2);
    ranks.config.runtime.ranks = layout;
    ranks.config.run.stop = source.token();
    ranks.config.run.on_step = [&source](std::int64_t step) {
      if (step == 2) source.stop();
    };
    EXPECT_TRUE(run_sft_job(ranks).interrupted);
    ranks.config.runtime.ranks = "dp=2";
    ranks.config.run.resume = true;
    ranks.config.run.stop = {};
    const SftSummary whole = run_sft_job(ranks);
    EXPECT_EQ(whole.weights_sha256, one.weights_sha256) << layout;
    EXPECT_EQ(whole.draft_sha256, one.draft_sha256) << layout;
    EXPECT_EQ(ModelReader::open(whole.exported)->mtp_sha256(), one.draft_sha256) << layout;
  }
}

// Beside an adapter: its bits are those of a run without the layer, and the layer, which learns what the adapted model says, is exported in a copy of the base.
TEST_F(MtpJobs, BesideAnAdapterItIsExportedWithTheBase) {
  const auto over = [&](const std::string& name, std::int64_t depths, const char* ranks) {
    SftJob made = job(name, depths);
    made.config.trained.rank = 4;
    made.config.asked.learning_rate = 1e-2;
    made.config.runtime.ranks = ranks;
    return made;
  };
  const SftSummary without = run_sft_job(over("bare", 0, "")), with = run_sft_job(over("with", 2, "")),
                   ranked = run_sft_job(over("ranked", 2, "tp=2,pp=2,cp=2"));
  EXPECT_EQ(with.weights_sha256, without.weights_sha256);
  EXPECT_EQ(ranked.weights_sha256, without.weights_sha256);
  EXPECT_EQ(ranked.draft_sha256, with.draft_sha256);
  EXPECT_FALSE(fs::exists(fs::path(without.exported) / "base"));
  const OpenedModel base = open_model({.model = (fs::path(with.exported) / "base").string(), .threads = 1});
  EXPECT_EQ(base.reader->weights_sha256(), ModelReader::open(shipped_model())->weights_sha256());
  ASSERT_TRUE(base.reader->has_mtp());
  EXPECT_NE(base.tokenizer, nullptr);
  EXPECT_EQ(open_adapter(base, with.exported)->layout->settings().rank, 4);
  // The shipped files are bf16, and so is their copy.
  EXPECT_EQ(base.reader->file_dtype(), ModelReader::open(shipped_model())->file_dtype());
  // Control: over the base as it is, the layer learns something else.
  SftJob still = over("still", 2, "");
  still.config.asked.learning_rate = 0;
  EXPECT_NE(run_sft_job(still).draft_sha256, with.draft_sha256);
}

// Jointly: the layer's losses move the model as well, with the same bits however its batches are cut and over ranks, also where a run stops and goes on.
TEST_F(MtpJobs, AModelIsTrainedJointlyWithItsLayer) {
  const auto jointly = [&](const std::string& name, bool joint) {
    SftJob made = job(name, 2);
    made.config.mtp.joint = joint;
    made.config.mtp.loss = "both";
    made.config.asked.steps = 3;
    return made;
  };
  const SftSummary apart = run_sft_job(jointly("apart", false)), together = run_sft_job(jointly("together", true));
  EXPECT_NE(together.weights_sha256, apart.weights_sha256);
  EXPECT_EQ(ModelReader::open(together.exported)->weights_sha256(), together.weights_sha256);
  const std::vector<nlohmann::json> of_apart = metrics("apart"), of_together = metrics("together");
  EXPECT_EQ(of_together[0].at("mtp_loss"), of_apart[0].at("mtp_loss"));  // before the first step both are the same
  EXPECT_EQ(of_together[0].at("loss"), of_apart[0].at("loss"));
  EXPECT_EQ(of_together[0].at("mtp_gradient_norm"), of_apart[0].at("mtp_gradient_norm"));
  EXPECT_NE(of_together[0].at("gradient_norm"), of_apart[0].at("gradient_norm"));
  EXPECT_NE(of_together[1].at("mtp_loss"), of_apart[1].at("mtp_loss"));
  StopSource source;
  SftJob parts = jointly("parts", true);
  parts.config.micro_batch = 1;
  parts.config.checkpoint_activations = true;
  parts.config.runtime.threads = 2;
  parts.config.run.stop = source.token();
  parts.config.run.on_step = [&source](std::int64_t step) {
    if (step == 2) source.stop();
  };
  EXPECT_TRUE(run_sft_job(parts).interrupted);
  parts.config.run.resume = true;
  parts.config.run.stop = {};
  const SftSummary rest = run_sft_job(parts);
  std::vector<SftSummary> others{rest};
  for (const std::string layout : {"dp=2", "tp=2,ep=2,pp=2"}) {
    SftJob ranks = jointly(layout.substr(0, 2), true);
    ranks.config.runtime.ranks = layout;
    others.push_back(run_sft_job(ranks));
  }
  for (const SftSummary& other : others) {
    EXPECT_EQ(other.weights_sha256, together.weights_sha256);
    EXPECT_EQ(other.draft_sha256, together.draft_sha256);
  }
}

TEST_F(MtpJobs, WhatCannotBeTrainedJointlyIsRefused) {
  const auto refused = [&](const char* part, const std::function<void(SftConfig&)>& change) {
    SftJob made = job("joint", 1);
    made.config.mtp.joint = true;
    change(made.config);
    try {
      run_sft_job(made);
      ADD_FAILURE() << "accepted, not refused with: " << part;
    } catch (const Error& e) {
      EXPECT_NE(e.message().find(part), std::string::npos) << e.message();
    }
  };
  refused("mtp-joint is on with adapter-rank 4; allowed is 0", [](SftConfig& c) { c.trained.rank = 4; });
  refused("rows=dealt; allowed is rows=shared", [](SftConfig& c) { c.runtime.ranks = "ep=2,rows=dealt"; });
  refused("mtp-joint is on with sparse-from 2; allowed is 0", [](SftConfig& c) { c.sparse_from = 2; });
}

TEST_F(MtpJobs, WhatHasNoRoomForALayerIsRefused) {
  SftJob adapter = job("adapter", 1);
  adapter.config.trained.rank = 4;
  adapter.config.runtime.profile = "cpu-int4-base";
  try {
    run_sft_job(adapter);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("mtp-depths is 1 beside an adapter under the profile 'cpu-int4-base'"), std::string::npos) << e.message();
  }
}

// Of the shipped model with a layer that was trained a little.
class MtpRlJobs : public MtpJobs {
 protected:
  std::string model_with_layer() {
    if (folder_.empty()) {
      SftJob made = job("layer", 2);
      made.config.asked.learning_rate = 0;
      made.config.router_bias_rate = 0;
      made.config.train_indexer = false;
      folder_ = run_sft_job(made).exported;
    }
    return folder_;
  }
  RlJob learning(const std::string& name, const std::string& sources, std::int64_t depths) {
    RlJob made;
    settings_of_run(made.run, made.stack.runtime, root_, name);
    made.stack.runtime.model = model_with_layer();
    made.stack.engine.drafts = parse_drafts(sources, 3);
    made.stack.mtp.depths = depths;
    made.stack.mtp.learning_rate = 1e-2;
    made.rl.steps = 3;
    made.rl.problems = 3;
    made.rl.rollouts = 4;
    made.rl.max_tokens = 14;
    made.rl.warmup = 0;
    made.rl.learning_rate = 1e-3;
    made.export_dtype = "f32";
    return made;
  }
  std::vector<double> lengths(const std::string& name) {
    std::vector<double> all;
    for (const nlohmann::json& step : metrics(name)) all.push_back(step.value("accepted_length", 0.0));
    return all;
  }
  std::string folder_;
};

TEST_F(MtpRlJobs, WithoutALayerFrozenOrOnLineThePolicyIsTheSame) {
  const RlSummary absent = run_rl(learning("absent", "off", 0)), frozen = run_rl(learning("frozen", "mtp", 0)), on_line = run_rl(learning("on-line", "mtp", 3));
  const std::string file = ModelReader::open(model_with_layer())->mtp_sha256();
  EXPECT_NE(absent.weights_sha256, ModelReader::open(model_with_layer())->weights_sha256());  // something was learned
  for (const RlSummary* run : {&frozen, &on_line}) EXPECT_EQ(run->weights_sha256, absent.weights_sha256);
  for (const RlSummary* run : {&absent, &frozen, &on_line}) EXPECT_EQ(run->totals.kl.different_bits, 0);
  EXPECT_EQ(lengths("absent"), (std::vector<double>{0, 0, 0}));
  // In the first step both draft with the layer of the files, later with another one.
  ASSERT_EQ(lengths("on-line").size(), 3u);
  EXPECT_GT(lengths("frozen")[0], 1);
  EXPECT_EQ(lengths("on-line")[0], lengths("frozen")[0]);
  EXPECT_NE(lengths("on-line")[1], lengths("frozen")[1]);
  EXPECT_TRUE(metrics("on-line")[0].contains("mtp_loss_3"));
  EXPECT_FALSE(metrics("frozen")[0].contains("mtp_loss"));
  EXPECT_TRUE(frozen.draft_sha256.empty());
  EXPECT_NE(on_line.draft_sha256, file);
  EXPECT_EQ(ModelReader::open(on_line.exported)->mtp_sha256(), on_line.draft_sha256);
  EXPECT_EQ(ModelReader::open(frozen.exported)->mtp_sha256(), file);
  // A new layer, and rollouts without guesses: the policy does not feel that either.
  RlJob quiet = learning("new", "off", 1);
  quiet.stack.runtime.model = shipped_model();
  quiet.rl.steps = 1;
  RlJob bare = learning("bare", "off", 0);
  bare.stack.runtime.model = shipped_model();
  bare.rl.steps = 1;
  EXPECT_EQ(run_rl(quiet).weights_sha256, run_rl(bare).weights_sha256);
  // Control: under rejection sampling rollouts depend on what is guessed, and so do the weights.
  RlJob rejection = learning("rejection", "mtp", 3);
  rejection.stack.engine.drafts.acceptance = DraftOptions::Acceptance::rejection;
  const RlSummary other = run_rl(rejection);
  EXPECT_NE(other.weights_sha256, absent.weights_sha256);
  EXPECT_EQ(other.totals.kl.different_bits, 0);
}

TEST_F(MtpRlJobs, OnLineNothingIsTrainedJointly) {
  RlJob made = learning("joint", "mtp", 2);
  made.stack.mtp.joint = true;
  try {
    run_rl(made);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("mtp-joint is on"), std::string::npos) << e.message();
  }
}

// Several updates a step: the layer has other numbers of steps than the policy.
TEST_F(MtpRlJobs, AStoppedRunGoesOnWithTheLayerOfItsStep) {
  const auto of = [&](const std::string& name) {
    RlJob made = learning(name, "mtp", 2);
    made.rl.mini_batches = 3;
    return made;
  };
  const RlSummary whole = run_rl(of("whole"));
  StopSource source;
  RlJob parts = of("parts");
  parts.run.keep_last = 1;
  parts.run.checkpoint_every = 1;
  parts.run.stop = source.token();
  parts.run.on_step = [&source](std::int64_t step) {
    if (step == 2) source.stop();
  };
  EXPECT_FALSE(run_rl(parts).finished);
  parts.run.resume = true;
  parts.run.stop = {};
  const RlSummary rest = run_rl(parts);
  EXPECT_EQ(rest.weights_sha256, whole.weights_sha256);
  EXPECT_EQ(rest.draft_sha256, whole.draft_sha256);
  EXPECT_EQ(lengths("parts"), lengths("whole"));
  // Another run begins with both.
  RlJob fork = of("fork");
  fork.rl.steps = 1;
  fork.stack.mtp.learning_rate = 0;
  fork.stack.mtp.router_bias_rate = 0;
  fork.run.resolved["forked_from"] = newest_checkpoint(root_ / "whole");
  EXPECT_EQ(run_rl(fork).draft_sha256, whole.draft_sha256);
  fs::remove_all(root_ / "parts" / "mtp");
  parts.rl.steps = 4;
  try {
    run_rl(parts);
    ADD_FAILURE() << "went on without the layer's state";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::not_found) << e.message();
    EXPECT_NE(e.message().find("goes on at step 3"), std::string::npos) << e.message();
  }
}

// On ranks, which also sample and draft, and beside an adapter.
TEST_F(MtpRlJobs, OverRanksAndBesideAnAdapterThePolicyIsTheSame) {
  const RlSummary one = run_rl(learning("one", "mtp", 2));
  for (const auto& [name, layout] : {std::pair("two", "tp=2"), std::pair("four", "dp=2,pp=2")}) {
    RlJob ranks = learning(name, "mtp", 2);
    ranks.stack.runtime.ranks = layout;
    const RlSummary got = run_rl(ranks);
    EXPECT_EQ(got.weights_sha256, one.weights_sha256) << layout;
    EXPECT_EQ(got.draft_sha256, one.draft_sha256) << layout;
    EXPECT_EQ(lengths(name), lengths("one")) << layout;
  }
  const auto over = [&](const std::string& name, std::int64_t depths, const char* ranks) {
    RlJob made = learning(name, depths > 0 ? "mtp" : "off", depths);
    made.stack.trained.rank = 4;
    made.stack.trained.seed = 5;
    made.rl.learning_rate = 1e-2;
    made.stack.runtime.ranks = ranks;
    return made;
  };
  const RlSummary absent = run_rl(over("bare", 0, "")), with = run_rl(over("with", 2, "")), ranked = run_rl(over("ranked", 2, "ep=2"));
  EXPECT_EQ(with.weights_sha256, absent.weights_sha256);
  EXPECT_EQ(ranked.weights_sha256, absent.weights_sha256);
  EXPECT_EQ(ranked.draft_sha256, with.draft_sha256);
  EXPECT_NE(with.draft_sha256, one.draft_sha256);
  for (const RlSummary* run : {&absent, &with, &ranked}) EXPECT_EQ(run->totals.kl.different_bits, 0);
  EXPECT_TRUE(ModelReader::open(fs::path(with.exported) / "base")->has_mtp());
}

}  // namespace
}  // namespace lockstep
