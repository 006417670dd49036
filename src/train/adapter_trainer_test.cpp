#include "train/adapter_trainer.h"

#include <gtest/gtest.h>

#include "base/comparison_test_tools.h"
#include "base/error.h"
#include "model/adapter_test_tools.h"
#include "model/value_head.h"
#include "train/prefix_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

constexpr AdapterSettings kAll{.rank = 4, .alpha = 6, .attention = true, .mlp = true, .unembedding = true};

struct AdapterCase {
  std::string profile = "cpu-f32";
  BackendOptions backend = {.threads = 2};
  TrainerOptions options;
};

struct AdapterBench {
  Runtime runtime;
  std::shared_ptr<FrozenBase> base;
  AdapterBench(const TrainBench& m, const AdapterCase& c)
      : runtime(c.backend, m.model, profile_by_name(c.profile), 700),
        base(std::make_shared<FrozenBase>(runtime, make_weight_set(runtime.backend, m.model->manifest(), m.masters, runtime.profile, 1), c.options)) {}
  std::shared_ptr<const AdapterLayout> layout(const AdapterSettings& settings) const {
    return std::make_shared<const AdapterLayout>(runtime.model->manifest(), settings);
  }
};

std::vector<std::vector<std::uint32_t>> all_bits(const std::vector<std::vector<float>>& rows) {
  std::vector<std::vector<std::uint32_t>> bits;
  for (const auto& row : rows) bits.push_back(bits_of(row));
  return bits;
}

TEST(AdapterTrainer, AFreshAdapterScoresAsTheBase) {
  for (const char* config : {kGlm, kLlama, kQwen})
    for (const char* profile : {"cpu-f32", "cpu-bf16w"}) {
      const TrainBench m(config);
      AdapterBench bench(m, {profile});
      const auto data = sequences(m.model->facts().vocabulary);
      AdapterTrainer trainer(bench.base, bench.layout(kAll), initial_adapter(*bench.layout(kAll), 1));
      const auto before = all_bits(bench.base->score(data));
      EXPECT_EQ(all_bits(trainer.score(data)), before) << m.model->family() << " " << profile;
      trainer.forward_backward(data, {});
      EXPECT_EQ(trainer.optim_step({}).version, 1u);
      EXPECT_NE(all_bits(trainer.score(data)), before);
      EXPECT_EQ(all_bits(bench.base->score(data)), before);
    }
}

// W + s B A as weights: the same model in other roundings, and by the chain rule dA = s B^T dW, dB = s dW A^T. The gradient of whole
// weights is held against torch elsewhere.
TEST(AdapterTrainer, GradientsAreThoseOfTheMergedWeightsByTheChainRule) {
  // The last has a value head, whose loss here is -w v.
  const std::string valued = value_config(Json::parse(kPrefixQwen)).dump();
  for (const auto& [config, profile] :
       {std::pair<std::string, const char*>(kPrefixGlm, "cpu-f32"), {kPrefixQwen, "cpu-f32"}, {kOverAllKeys, "cpu-f32-expanded"}, {valued, "cpu-f32"}}) {
    const TrainBench m(config);
    const Manifest& manifest = m.model->manifest();
    AdapterBench bench(m, {profile});
    const auto layout = bench.layout(kAll);
    const WeightImages adapter = stirred(*layout, 3);
    const auto data = groups_of({{5, {9}}, {3, {20}}, {4, {2}}});
    LossOptions loss;
    AdapterTrainer trainer(bench.base, layout, adapter);
    const ForwardBackwardResult got = trainer.forward_backward(data, loss);
    const WeightImages gradients = trainer.gradient_images();

    const auto values_of = [](const Manifest& of, const FileTensor& file, const WeightImages& images) {
      std::vector<float> values(static_cast<std::size_t>(file.size()));
      of.gather(file, images, values.data());
      return values;
    };
    const auto file_named = [](const Manifest& of, const std::string& name) -> const FileTensor* {
      for (const FileTensor& file : of.files())
        if (file.name == name) return &file;
      return nullptr;
    };
    struct Matrix {
      const FileTensor *w, *a, *b;
    };
    std::vector<Matrix> matrices;
    WeightImages merged = m.masters;
    const double scale = kAll.alpha / static_cast<double>(kAll.rank);
    for (const FileTensor& w : manifest.files()) {
      const std::string stem = "base_model.model." + w.name.substr(0, w.name.rfind(".weight"));
      const FileTensor *a = file_named(layout->manifest(), stem + ".lora_A.weight"), *b = file_named(layout->manifest(), stem + ".lora_B.weight");
      if (!a) continue;
      ASSERT_NE(b, nullptr);
      matrices.push_back({&w, a, b});
      std::vector<float> value = values_of(manifest, w, merged);
      const auto av = values_of(layout->manifest(), *a, adapter), bv = values_of(layout->manifest(), *b, adapter);
      for (std::int64_t n = 0; n < w.rows(); ++n)
        for (std::int64_t k = 0; k < w.columns(); ++k) {
          double sum = 0;
          for (std::int64_t r = 0; r < kAll.rank; ++r)
            sum +=
                static_cast<double>(bv[static_cast<std::size_t>(n * kAll.rank + r)]) * static_cast<double>(av[static_cast<std::size_t>(r * w.columns() + k)]);
          value[static_cast<std::size_t>(n * w.columns() + k)] += static_cast<float>(scale * sum);
        }
      manifest.scatter(w, value.data(), merged);
    }
    EXPECT_EQ(matrices.size() * 2, layout->manifest().files().size());
    Trainer whole(bench.runtime, merged, {});
    const ForwardBackwardResult want = whole.forward_backward(data, loss);
    for (std::size_t s = 0; s < data.size(); ++s)
      for (std::size_t i = 0; i < data[s].tokens.size(); ++i) EXPECT_NEAR(got.logprobs[s][i], want.logprobs[s][i], 2e-5);
    const WeightImages dw_images = whole.gradient_images();
    for (const Matrix& x : matrices) {
      const auto dw = values_of(manifest, *x.w, dw_images), a = values_of(layout->manifest(), *x.a, adapter), b = values_of(layout->manifest(), *x.b, adapter);
      const auto da = values_of(layout->manifest(), *x.a, gradients), db = values_of(layout->manifest(), *x.b, gradients);
      const std::int64_t N = x.w->rows(), K = x.w->columns(), R = kAll.rank;
      const auto check = [&](const std::vector<float>& have, std::int64_t rows, std::int64_t columns, const auto& value, const std::string& name) {
        ASSERT_EQ(have.size(), static_cast<std::size_t>(rows * columns)) << name;
        LargestError error;
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < columns; ++j) error.add(have[static_cast<std::size_t>(i * columns + j)], value(i, j));
        EXPECT_LE(error.absolute(), 2e-4 * error.scale()) << name << " of " << error.scale();
      };
      const auto at = [](const std::vector<float>& v, std::int64_t i) { return static_cast<double>(v[static_cast<std::size_t>(i)]); };
      check(
          da, R, K,
          [&](std::int64_t r, std::int64_t k) {
            double sum = 0;
            for (std::int64_t n = 0; n < N; ++n) sum += at(b, n * R + r) * at(dw, n * K + k);
            return scale * sum;
          },
          x.a->name);
      check(
          db, N, R,
          [&](std::int64_t n, std::int64_t r) {
            double sum = 0;
            for (std::int64_t k = 0; k < K; ++k) sum += at(dw, n * K + k) * at(a, r * K + k);
            return scale * sum;
          },
          x.b->name);
    }
  }
}

struct AdapterOutcome {
  std::vector<std::uint64_t> hashes;
  std::vector<std::vector<std::uint32_t>> bits;
  double loss = 0;
  bool operator==(const AdapterOutcome&) const = default;
};

const std::vector<AdapterSettings> kKinds{{.rank = 1, .alpha = 2},
                                          {.rank = 8, .alpha = 4, .attention = false, .mlp = true, .unembedding = true},
                                          {.rank = 33, .alpha = 40, .attention = true, .mlp = false},
                                          {.rank = 8, .alpha = 4, .attention = false, .mlp = true, .unembedding = true}};

std::vector<TrainSequence> data_of(std::size_t i) { return groups_of({{6, {4, 9}}, {3, {12 + static_cast<std::int64_t>(i)}}, {40, {3, 2}}}, false, 5 + i); }

// Two steps of adapters `which`, each with data of its own: in one call per step, or one after another.
std::vector<AdapterOutcome> train(const TrainBench& m, const AdapterCase& c, const std::vector<std::size_t>& which, bool together) {
  AdapterBench bench(m, c);
  std::vector<std::unique_ptr<AdapterTrainer>> trainers;
  std::vector<std::vector<TrainSequence>> data;
  for (const std::size_t i : which) {
    const auto layout = bench.layout(kKinds[i]);
    trainers.push_back(std::make_unique<AdapterTrainer>(bench.base, layout, stirred(*layout, 10 + i)));
    data.push_back(data_of(i));
  }
  LossOptions policy;
  policy.kind = LossKind::policy;
  std::vector<AdapterOutcome> outcomes(which.size());
  for (int step = 0; step < 2; ++step) {
    std::vector<ForwardBackwardResult> results;
    std::vector<AdapterTrainer::Job> jobs;
    for (std::size_t j = 0; j < which.size(); ++j) jobs.push_back({trainers[j].get(), &data[j], which[j] % 2 ? policy : LossOptions()});
    if (together) results = AdapterTrainer::forward_backward_together(jobs);
    else
      for (const AdapterTrainer::Job& job : jobs) results.push_back(job.trainer->forward_backward(*job.data, job.loss));
    for (std::size_t j = 0; j < which.size(); ++j) {
      AdapterOutcome& o = outcomes[j];
      for (const auto& rows : {results[j].logprobs, results[j].entropies, trainers[j]->score(data[j])})
        for (const auto& row : rows) o.bits.push_back(bits_of(row));
      o.loss += results[j].loss;
      if (!c.options.accumulate) o.hashes.push_back(images_hash(trainers[j]->layout().manifest(), trainers[j]->gradient_images()));
      trainers[j]->optim_step({.weight_decay = 0.1});
      o.hashes.push_back(trainers[j]->state().master_hash());
    }
  }
  return outcomes;
}

TEST(AdapterTrainer, NothingLeaksBetweenAdaptersInOneForward) {
  for (const char* config : {kPrefixGlm, kPrefixLlama, kPrefixQwen})
    for (const char* profile : {"cpu-bf16w", "cpu-f32"}) {
      const TrainBench m(config);
      const std::vector<AdapterOutcome> together = train(m, {profile}, {0, 1, 2, 3}, true);
      for (std::size_t i = 0; i < kKinds.size(); ++i) {
        EXPECT_EQ(train(m, {profile}, {i}, false)[0], together[i]) << m.model->family() << " " << profile << ", adapter " << i;
        for (std::size_t other = 0; other < i; ++other) EXPECT_NE(together[i].hashes, together[other].hashes);
      }
      // In another order, with other batch neighbours.
      EXPECT_EQ(train(m, {profile}, {3, 0}, true)[0], together[3]);
      EXPECT_EQ(train(m, {profile}, {2, 1, 0}, false)[1], together[1]);
    }
}

// What is wrong with one job, its data or its numbers, is its own; others have the bits that they have without it.
TEST(AdapterTrainer, ErrorsOfOneJobAreItsOwn) {
  for (const char* config : {kPrefixGlm, kPrefixQwen}) {
    const TrainBench m(config);
    TrainerOptions options;
    options.accumulate = true;
    AdapterBench bench(m, {.options = options});
    const auto layout = bench.layout(kAll);
    WeightImages broken = stirred(*layout, 3);
    for (std::vector<float>& image : broken)
      for (float& value : image) value *= 1e30f;
    std::vector<std::uint64_t> hashes[2];
    std::vector<std::vector<std::vector<std::uint32_t>>> scores[2];
    for (const bool beside : {false, true}) {
      AdapterTrainer good(bench.base, layout, stirred(*layout, 1)), infinite(bench.base, layout, broken), wrong(bench.base, layout, stirred(*layout, 2)),
          last(bench.base, layout, stirred(*layout, 4));
      const auto data = data_of(0), more = data_of(1);
      auto foreign = data;
      foreign[0].tokens[0] = 1 << 20;
      wrong.forward_backward(more, {});  // and keeps that
      AdapterTrainer::Failures failures;
      std::vector<AdapterTrainer::Job> jobs{{&good, &data, {}}, {&last, &more, {}}};
      std::vector<AdapterTrainer::ScoreJob> asked{{&good, &data}, {nullptr, &more}};
      if (beside) {
        jobs = {{&infinite, &data, {}}, jobs[0], {&wrong, &foreign, {}}, jobs[1]};
        asked = {{&infinite, &data}, asked[0], {&wrong, &foreign}, asked[1]};
      }
      const auto results = AdapterTrainer::forward_backward_together(jobs, &failures);
      for (std::size_t j = 0; j < jobs.size(); ++j) EXPECT_EQ(failures[j].has_value(), beside && j % 2 == 0) << j;
      if (beside) {
        EXPECT_EQ(failures[0]->code(), ErrorCode::numeric);
        EXPECT_EQ(failures[2]->code(), ErrorCode::invalid_argument);
        EXPECT_THROW(infinite.optim_step({}), Error);
        wrong.optim_step({});
      }
      const auto rows = AdapterTrainer::score_together(*bench.base, asked, &failures);
      for (std::size_t j = 0; j < asked.size(); ++j) {
        EXPECT_EQ(failures[j].has_value(), beside && j % 2 == 0) << j;
        if (!beside || j % 2 == 1) scores[beside].push_back(all_bits(rows[j]));
      }
      for (AdapterTrainer* trainer : {&good, &last}) {
        trainer->optim_step({});
        hashes[beside].push_back(trainer->state().master_hash());
      }
      EXPECT_EQ(all_bits(bench.base->score(more)), scores[beside][1]);
    }
    EXPECT_EQ(hashes[0], hashes[1]);
    EXPECT_EQ(scores[0], scores[1]);
    EXPECT_NE(hashes[0][0], hashes[0][1]);
  }
}

TEST(AdapterTrainer, BitsDoNotDependOnTheWayItIsComputed) {
  for (const auto& [config, profile] : {std::pair(kPrefixGlm, "cpu-f32"), {kPrefixLlama, "cpu-f32"}, {kOverAllKeys, "cpu-f32-expanded"}}) {
    const TrainBench m(config);
    const std::vector<AdapterOutcome> want = train(m, {profile}, {0, 1, 2}, true);
    std::vector<AdapterCase> ways{{.options = {.micro_batch = 1}},
                                  {.options = {.micro_batch = 2, .checkpoint_activations = true}},
                                  {.options = {.share_prefixes = true}},
                                  {.options = {.checkpoint_activations = true, .share_prefixes = true, .page_size = 3}},
                                  {.backend = {.kind = BackendKind::deferred, .threads = 1}},
                                  {.backend = {.isa = InstructionSet::scalar, .threads = 1}}};
    for (AdapterCase& way : ways) way.profile = profile;
    for (std::size_t w = 0; w < ways.size(); ++w) EXPECT_EQ(train(m, ways[w], {0, 1, 2}, w % 2 == 0), want) << m.model->family() << ", way " << w;
  }
}

TEST(AdapterTrainer, RestoredStateGoesOnWithTheSameBits) {
  const TrainBench m(kPrefixLlama);
  AdapterBench bench(m, {});
  const auto layout = bench.layout(kKinds[0]);
  const auto data = data_of(0);
  AdapterTrainer one(bench.base, layout, stirred(*layout, 1)), two(bench.base, layout, initial_adapter(*layout, 2));
  one.forward_backward(data, {});
  one.optim_step({});
  two.restore(one.state().all());
  for (AdapterTrainer* t : {&one, &two}) {
    t->forward_backward(data, {});
    t->optim_step({});
  }
  EXPECT_EQ(one.state().master_hash(), two.state().master_hash());
  EXPECT_EQ(two.step(), 2);
  EXPECT_NE(one.weights()->identity, two.weights()->identity);
}

TEST(AdapterTrainer, RefusesWhatItCannotDo) {
  const TrainBench m(kPrefixLlama);
  AdapterBench bench(m, {});
  EXPECT_THROW(bench.layout({.rank = 0}), Error);
  EXPECT_THROW(bench.layout({.rank = 257}), Error);
  EXPECT_THROW(bench.layout({.alpha = 0}), Error);
  EXPECT_THROW(bench.layout({.attention = false, .mlp = false}), Error);
  AdapterTrainer trainer(bench.base, bench.layout({}), initial_adapter(*bench.layout({}), 1));
  EXPECT_THROW(trainer.optim_step({}), Error);
  const auto data = data_of(0);
  EXPECT_THROW(AdapterTrainer::forward_backward_together({{&trainer, &data, {}}, {&trainer, &data, {}}}), Error);
  trainer.forward_backward(data, {});
  EXPECT_THROW(trainer.forward_backward(data, {}), Error);
  EXPECT_THROW(bench.layout({})->check_fits(TrainBench(kPrefixGlm).model->manifest()), Error);
}

}  // namespace
}  // namespace lockstep
