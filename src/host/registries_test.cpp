#include <gtest/gtest.h>

#include <future>
#include <optional>

#include "host/training_test_tools.h"

namespace lockstep {
namespace {

// Whoever is at one model, and may be for as long as a disk takes, holds up nobody who asks for something else: not its own session's heartbeat either.
TEST(TrainingRegistries, WhoHoldsOneModelHoldsUpNobodyElse) {
  TrainingBench bench;
  const std::string session = bench.session(), one = bench.model(session, 0, 2), other = bench.model(session, 1, 2);
  const std::shared_ptr<HostedModel> model = bench.service->models().at("me", one);
  auto held = std::make_optional(model->state.lock());
  auto all = std::async(std::launch::async, [&] {
    TrainingService& service = *bench.service;
    service.session_life().hear("me", session);
    const std::string next = bench.session();
    EXPECT_EQ(service.sessions().all("me").size(), 2u);
    EXPECT_TRUE(service.checkpoints().all("me").empty());
    const std::string sampler = service.samplers().create("me", next, 0, "tiny", "");
    EXPECT_EQ(service.samplers().weights("me", sampler).weights, bench.base->weights);
    EXPECT_EQ(service.models().find("me", other).id, other);
    EXPECT_FALSE(bench.result(bench.batch(other, 1, training_batch(3, 2))).failed());
    EXPECT_FALSE(bench.model(next, 0, 2).empty());
    service.session_life().finish("me", next, "finished: success", "");
  });
  EXPECT_EQ(all.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  held.reset();
  all.wait();
  EXPECT_FALSE(bench.result(bench.batch(one, 1, training_batch(3, 2))).failed());
}

}  // namespace
}  // namespace lockstep
