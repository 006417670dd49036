// A trainer that publishes and a replica that follows it, each with a runtime, an executor and weights of its own, for tests of fleets.
//   FleetTrainer trainer(kMoe, store);   const FleetReplicaUnderTest replica(kMoe, store, "r");
//   trainer.step();   replica.reaches(trainer.publish().sequence);   different_scores(replica.scores(), trainer.scores()) == 0
#pragma once
#include <bit>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fleet/follower.h"
#include "fleet/publisher.h"
#include "runs/local_trainer.h"
#include "sync/channel.h"

namespace lockstep {

constexpr double kFleetWait = 120;  // seconds after which a test gives up

struct FleetCase {
  const char *name, *config, *profile;
  std::int64_t rank;
};
inline void PrintTo(const FleetCase& one, std::ostream* out) { *out << one.name; }
inline const FleetCase kMoe{"moe", "glm_moe_dsa/sharing", "cpu-bf16w", 0}, kDenseModel{"dense", "llama/wide", "cpu-bf16w", 0},
    kPackedAdapter{"packed", "glm_moe_dsa/sharing", "cpu-int4-base", 4}, kPackedDense{"packed_dense", "llama/wide", "cpu-int4-base", 4};

inline std::shared_ptr<const Model> fleet_model(const std::string& config) {
  return make_model(Json::parse(std::ifstream(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/" + config + "/config.json")));
}

inline OpenedModel fleet_opened(const FleetCase& one, std::uint64_t seed) {
  OpenedModel opened;
  opened.name = "tiny";
  opened.model = fleet_model(one.config);
  opened.initial = [model = opened.model, seed] { return initial_weights(model->manifest(), seed, 0.25); };
  opened.runtime = std::make_shared<Runtime>(BackendOptions{.threads = 1}, opened.model, profile_by_name(one.profile), 128);
  return opened;
}

inline std::string fleet_hash(const OpenedModel& opened) { return weights_sha256(opened.model->manifest(), opened.initial()); }

struct FleetTrainer {
  OpenedModel opened;
  std::shared_ptr<Executor> executor = std::make_shared<Executor>();
  LocalTrainer trainer;
  Publisher publisher;
  std::string base = fleet_hash(opened);

  FleetTrainer(const FleetCase& one, const std::string& store, const PublisherOptions& options = {.threads = 1})
      : opened(fleet_opened(one, 7)),
        trainer(opened, {.rank = one.rank, .seed = 3}, {}, executor),
        publisher(open_store(store, true), "chat", {{"config.json", "{\"model_type\":\"tiny\"}\n"}}, opened.runtime, executor, options) {}
  PublishedSnapshot publish(const std::string& held_by = {}) {
    const SamplerWeights now = trainer.weights_for(opened.runtime);
    const Publisher::Hold hold = [&](Store& to, const Written& written) { move_channel(to, held_by, written.id); };
    if (held_by.empty()) return now.adapter ? publisher.publish(now.adapter, {base, "tiny"}) : publisher.publish(now.weights);
    return now.adapter ? publisher.publish(now.adapter, {base, "tiny"}, hold) : publisher.publish(now.weights, hold);
  }
  void step() {
    trainer.forward_backward(data(), {});
    trainer.take_step({.learning_rate = 1e-3});
  }
  static std::vector<TrainSequence> data() { return {TrainSequence::next_token(text())}; }
  static std::vector<std::int32_t> text() { return {1, 5, 7, 9, 3, 11, 2, 8, 13, 4, 6, 1, 5, 9}; }
  // Of it nothing is learned: what a weight does to its log-probabilities is not lost in their sum.
  static std::vector<std::int32_t> other_text() { return {2, 5, 30, 5, 17, 5, 8, 5, 21, 5}; }
  std::vector<float> scores(const std::vector<std::int32_t>& of = text()) {
    std::vector<float> rows = trainer.score({TrainSequence::next_token(of)}).front();
    rows.resize(of.size() - 1);
    return rows;
  }
};

inline bool comes_to_pass(const std::function<bool()>& so) {
  const auto began = std::chrono::steady_clock::now();
  while (!so()) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() > kFleetWait) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

struct FleetReplicaUnderTest {
  OpenedModel opened;
  std::shared_ptr<Executor> executor = std::make_shared<Executor>();
  std::shared_ptr<const WeightSet> first;
  std::shared_ptr<GenerationService> service;
  std::unique_ptr<Follower> follower;

  // `seed` of its first weights: the trainer's is 7. `ranks` share the model.
  FleetReplicaUnderTest(const FleetCase& one, const std::string& store, const std::string& name, FollowOptions options = {}, std::uint64_t seed = 7,
                        const char* ranks = "", const std::string& channel = "chat")
      : opened(fleet_opened(one, seed)), first(opened.weight_set()) {
    service = std::make_shared<GenerationService>(ServingModel{"tiny", opened.runtime, first, nullptr, executor},
                                                  ServingOptions{.engine = {.ranks = rank_layout(ranks)}});
    options.replica = name;
    options.poll = std::chrono::milliseconds(5);
    options.base_sha256 = [this] { return fleet_hash(opened); };
    follower = std::make_unique<Follower>(open_store(store, true), channel, service, opened.runtime, executor, first, options);
  }
  ~FleetReplicaUnderTest() {
    follower->stop();
    service->stop();
  }
  bool wait(const std::function<bool(const ReplicaRecord&)>& until) const {
    return comes_to_pass([&] { return until(follower->record()); });
  }
  bool reaches(std::uint64_t sequence) const {
    return wait([&](const ReplicaRecord& r) { return r.current_sequence >= sequence && r.stage == ReplicaStage::ready; });
  }
  Generation run(Request request) const {
    std::promise<Generation> done;
    service->generate(std::move(request), {}, [&](Generation&& g) { done.set_value(std::move(g)); });
    return done.get_future().get();
  }
  std::vector<float> scores(const std::vector<std::int32_t>& of = FleetTrainer::text()) const {
    return run({.prompt = of, .sampling = {.max_tokens = 0}, .prompt_logprobs = true}).prompt_logprobs;
  }
};

inline std::size_t different_scores(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::max(a.size(), b.size());
  std::size_t different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) different += std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]);
  return different;
}

}  // namespace lockstep
