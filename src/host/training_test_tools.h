// What tests of the training service share: a small model with a service on it, batches, results as they come. Tests only.
//   TrainingBench bench; const std::string model = bench.model("me", session, 0, 8); bench.result(bench.batch("me", model, 1, 3));
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <future>

#include "base/error.h"
#include "base/philox.h"
#include "host/training_service.h"
#include "model/value_head.h"
#include "serving/keep_forward.h"

namespace lockstep {

inline constexpr const char* kTrainingModel = R"({
  "model_type": "llama", "vocab_size": 64, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "intermediate_size": 80, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "tie_word_embeddings": false, "hidden_act": "silu"})";

// Random sequences of 4 tokens and more; equal seeds give equal ones.
inline TrainingBatch training_batch(std::uint64_t seed, int sequences, int length = 9) {
  RandomSequence draws(seed, RandomStream::fuzz);
  TrainingBatch batch;
  batch.loss.name = "cross_entropy";
  for (int s = 0; s < sequences; ++s) {
    TrainingDatum datum;
    NamedTensor targets;
    targets.is_float = false;
    targets.shape = {length + s % 3};
    for (int i = 0; i < length + s % 3; ++i) {
      datum.tokens.push_back(static_cast<std::int32_t>(draws.below(64)));
      targets.integers.push_back(draws.below(64));
    }
    datum.inputs["target_tokens"] = targets;
    batch.data.push_back(std::move(datum));
  }
  return batch;
}

// What a call's Error says; "accepted": it had none.
inline std::string error_text(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

struct TrainingBench {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / fmt::format("lockstep-training-{}-{}", getpid(), next());
  std::shared_ptr<TrainingBase> base = std::make_shared<TrainingBase>();
  std::shared_ptr<GenerationService> generation;
  std::shared_ptr<TrainingService> service;

  explicit TrainingBench(TrainingServiceOptions options = {}, const BackendOptions& backend = {.threads = 1}, const ClassShares& shares = {},
                         const RankLayout& ranks = {}, const KeepForwardSettings& keep = {}) {
    base->opened.model = make_model(Json::parse(kTrainingModel));
    base->opened.initial = [model = base->opened.model] { return initial_weights(model->manifest(), 3, 0.1); };
    base->opened.runtime = std::make_shared<Runtime>(backend, base->opened.model, profile_by_name("cpu-bf16w"), 128);
    base->name = "tiny";
    base->names = {"tiny"};
    base->executor = std::make_shared<Executor>(shares);
    base->weights = base->opened.weight_set();
    base->options.ranks = ranks;
    base->open_values = [backend] {
      OpenedModel values;
      values.model = make_model(value_config(Json::parse(kTrainingModel)));
      values.initial = [model = values.model] { return initial_weights(model->manifest(), 3, 0.1); };
      values.runtime = std::make_shared<Runtime>(backend, values.model, profile_by_name("cpu-bf16w"), 128);
      return values;
    };
    ServingOptions serving;
    serving.engine.ranks = ranks;
    serving.engine.kept_forwards = base->options.kept_forwards = kept_forwards_over(ranks, keep, *base->opened.runtime, serving.engine.page_size);
    generation = std::make_shared<GenerationService>(ServingModel{"tiny", base->opened.runtime, base->weights, nullptr, base->executor}, serving);
    options.state = folder;
    service = std::make_shared<TrainingService>(base, generation, options);
  }
  ~TrainingBench() {
    service.reset();
    generation->stop();
    base->executor->stop();
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }

  Outcome result(const std::string& request, const std::string& owner = "me") {
    std::promise<Outcome> told;
    EXPECT_TRUE(service->futures().wait(request, owner, 120, [&](const Outcome* o) { told.set_value(o ? *o : Outcome{{}, {}, "none", "no result"}); }));
    return told.get_future().get();
  }
  std::string session(const std::string& owner = "me") { return service->session_life().create(owner, {}); }
  std::string submit_model(const std::string& session, std::int64_t number, std::int64_t rank, const std::string& owner = "me") {
    CreateModel wanted;
    wanted.session = session;
    wanted.number = number;
    wanted.settings.base_model = "tiny";
    wanted.settings.rank = rank;
    wanted.settings.seed = 7 + static_cast<std::uint64_t>(number);
    return service->model_life().create(owner, wanted, [](const ModelRecord& r) { return Outcome{"text/plain", r.id, {}, {}}; });
  }
  std::string model(const std::string& session, std::int64_t number, std::int64_t rank, const std::string& owner = "me") {
    const Outcome made = result(submit_model(session, number, rank, owner), owner);
    EXPECT_FALSE(made.failed()) << made.message;
    return made.bytes;
  }
  // The result's bytes are its bits: log-probabilities and metrics.
  std::string batch(const std::string& model, std::int64_t sequence, TrainingBatch batch, const std::string& owner = "me") {
    return service->operations().forward_backward(owner, model, sequence, std::move(batch), [](const TrainingOutput& output) {
      std::string bytes;
      for (const DatumOutput& datum : output.data) bytes.append(reinterpret_cast<const char*>(datum.logprobs.data()), datum.logprobs.size() * sizeof(float));
      for (const auto& [name, value] : output.metrics) bytes += fmt::format("{}={:a};", name, value);
      return Outcome{"bits", bytes, {}, {}};
    });
  }
  std::string step(const std::string& model, std::int64_t sequence, const std::string& owner = "me") {
    OptimizerRequest request;
    request.adam.learning_rate = 0.01;
    return service->operations().optim_step(owner, model, sequence, request, [](const OptimizerOutput& r) {
      return Outcome{"text/plain", fmt::format("{:a}", r.metrics.at(0).second), {}, {}};
    });
  }
  // Nothing runs until the returned promise is set.
  std::promise<void> hold() {
    std::promise<void> go;
    base->executor->submit(WorkClass::live, [ready = go.get_future().share()] { return ready.wait(), false; });
    return go;
  }

 private:
  static int next() {
    static std::atomic<int> count{0};
    return count++;
  }
};

}  // namespace lockstep
