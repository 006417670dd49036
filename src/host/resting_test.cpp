// What is in memory is bounded, what can be open is not: models leave memory with the gradients that no step has taken and come back with the
// bits of one that stayed, nobody's work fails because of another's, and only a key's own figures are ever an error.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "host/training_test_tools.h"

namespace lockstep {
namespace {

std::string bits_of(TrainingBench& bench, const std::string& request, const std::string& owner = "me") {
  const Outcome outcome = bench.result(request, owner);
  EXPECT_FALSE(outcome.failed()) << outcome.message;
  return outcome.bytes;
}

std::size_t waiting_folders(const TrainingBench& bench) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(bench.folder / "gradients")) count += entry.is_directory();
  return count;
}

// Two keys whose clients go away between forward_backward and optim_step, and two places: a third key trains at once, and the two go on later.
TEST(Resting, TheDeadHoldNoPlaces) {
  for (const std::int64_t rank : {0, 2}) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    const auto run = [&](bool crowded) {
      TrainingBench bench({.max_models = crowded ? 2 : 10});
      std::string bits;
      const std::string a = bench.model(bench.session("a"), 0, rank, "a"), b = bench.model(bench.session("b"), 1, rank, "b");
      bits += bits_of(bench, bench.batch(a, 1, training_batch(1, 3), "a"), "a");
      bits += bits_of(bench, bench.batch(b, 1, training_batch(2, 3), "b"), "b");
      bits += bits_of(bench, bench.batch(b, 2, training_batch(3, 3), "b"), "b");  // accumulators, where a's stands alone
      for (std::int64_t i = 0; i < 2; ++i) {
        const std::string c = bench.model(bench.session("c"), 2 + i, rank, "c");
        bits += bits_of(bench, bench.batch(c, 1, training_batch(4, 3), "c"), "c");
        bits += bits_of(bench, bench.step(c, 2, "c"), "c");
      }
      EXPECT_EQ(waiting_folders(bench), crowded ? 2u : 0u);
      EXPECT_EQ(bench.service->statistics().gradients_saved.load(), crowded ? 2u : 0u);
      bits += bits_of(bench, bench.batch(a, 2, training_batch(5, 3), "a"), "a");  // its first call is taken once more
      bits += bits_of(bench, bench.step(a, 3, "a"), "a");
      bits += bits_of(bench, bench.step(b, 3, "b"), "b");
      bits += bits_of(bench, bench.batch(a, 4, training_batch(6, 3), "a"), "a");
      bits += bits_of(bench, bench.batch(b, 4, training_batch(7, 3), "b"), "b");
      EXPECT_EQ(bench.service->statistics().gradients_read.load(), crowded ? 2u : 0u);
      return bits;
    };
    EXPECT_TRUE(run(true) == run(false));
  }
}

// What a step divides by goes with the gradients.
TEST(Resting, DivisorsGoWithTheGradients) {
  const auto run = [](bool crowded) {
    TrainingBench bench({.max_models = crowded ? 1 : 10});
    const std::string session = bench.session(), model = bench.model(session, 0, 2), other = bench.model(session, 1, 2);
    bits_of(bench, bench.batch(model, 1, training_batch(1, 5)));
    bits_of(bench, bench.batch(other, 1, training_batch(1, 5)));
    OptimizerRequest request;
    request.divisor = GradientDivisor::loss_tokens;
    return bits_of(bench, bench.service->operations().optim_step("me", model, 2, request, [](const OptimizerOutput& r) {
      std::string text;
      for (const auto& [name, value] : r.metrics) text += fmt::format("{}={:a};", name, value);
      return Outcome{"text/plain", text, {}, {}};
    }));
  };
  EXPECT_TRUE(run(true) == run(false));
  EXPECT_NE(run(true).find("num_sequences=0x1.4p+2"), std::string::npos) << run(true);
}

// A hundred sessions at once in two places: none fails, and each has the bits that it has alone.
TEST(Resting, AHundredSessionsInTwoPlaces) {
  const auto run = [](std::int64_t places, std::size_t every) {
    TrainingBench bench({.max_models = places});
    std::vector<std::string> made, requests, bits;
    const auto owner = [](std::size_t i) { return fmt::format("key{}", i % 10); };
    for (std::size_t i = 0; i < 100; i += every) made.push_back(bench.submit_model(bench.session(owner(i)), static_cast<std::int64_t>(i), 1, owner(i)));
    for (std::size_t i = 0; i < 100; i += every) {
      const std::string model = bits_of(bench, made[i / every], owner(i));
      requests.push_back(bench.batch(model, 1, training_batch(i, 1, 4), owner(i)));
      requests.push_back(bench.step(model, 2, owner(i)));
    }
    for (std::size_t k = 0; k < requests.size(); ++k) bits.push_back(bits_of(bench, requests[k], owner(k / 2 * every)));
    EXPECT_EQ(bench.service->statistics().gradients_saved > 0, places == 2);
    EXPECT_EQ(waiting_folders(bench), 0u);
    return bits;
  };
  const std::vector<std::string> crowded = run(2, 1), alone = run(1000, 25);
  for (std::size_t k = 0; k < alone.size(); ++k) EXPECT_TRUE(crowded[k / 2 * 50 + k % 2] == alone[k]) << k;
}

// Work that ran before its turn is in the same accumulators, and is told, or undone, as ever.
TEST(Resting, EarlyWorkGoesWithTheGradients) {
  const auto run = [](bool crowded) {
    TrainingBench bench({.max_models = crowded ? 1 : 10});
    const std::string session = bench.session(), model = bench.model(session, 0, 2), other = bench.model(session, 1, 2);
    bits_of(bench, bench.batch(model, 1, training_batch(9, 2)));
    bits_of(bench, bench.step(model, 2));
    const std::string third = bench.batch(model, 5, training_batch(3, 2)), second = bench.batch(model, 4, training_batch(2, 2));
    bits_of(bench, bench.batch(other, 1, training_batch(1, 2)));  // when it is told the early ones are done
    std::string bits = bits_of(bench, bench.batch(model, 3, training_batch(1, 2)));
    bits += bits_of(bench, second);
    bits += bits_of(bench, third);
    bits += bits_of(bench, bench.step(model, 6));
    bits += bits_of(bench, bench.step(other, 2));
    return bits;
  };
  EXPECT_TRUE(run(true) == run(false));
}

TEST(Resting, AFlippedAccumulatorIsNeverASilentStep) {
  TrainingBench bench({.max_models = 1});
  const std::string session = bench.session(), model = bench.model(session, 0, 2), other = bench.model(session, 1, 2);
  bits_of(bench, bench.service->operations().save("me", model, 1, {.name = "kept"}, [](const CheckpointRecord& r) {
    return Outcome{"text/plain", r.path(), {}, {}};
  }));
  bits_of(bench, bench.batch(model, 2, training_batch(1, 3)));
  bits_of(bench, bench.batch(other, 1, training_batch(1, 3)));
  std::filesystem::path file;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(bench.folder / "gradients"))
    if (entry.is_regular_file()) file = entry.path();
  std::string bytes = read_file(file, 1 << 30);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  EXPECT_NE(bench.result(bench.step(model, 3)).message.find("has other bytes in block"), std::string::npos);
  EXPECT_NE(bench.result(bench.batch(model, 4, training_batch(1, 3))).message.find("load_state of a checkpoint goes on from there"), std::string::npos);
  bits_of(bench, bench.service->operations().load("me", model, 5, "kept", true, [](const ModelRecord& r) { return Outcome{"text/plain", r.id, {}, {}}; }));
  bits_of(bench, bench.batch(model, 6, training_batch(1, 3)));
  bits_of(bench, bench.step(model, 7));
}

// Only beyond a key's own share of the disk is there an error, and it has that key's figures.
TEST(Resting, DiskForGradientsHasABudgetOfWhichAKeyHasAShare) {
  std::int64_t one = 0;
  {
    TrainingBench probe;
    one = gradient_file_bytes(adapter_layout(*probe.base,
                                             [] {
                                               ModelSettings settings;
                                               settings.rank = 2;
                                               return settings;
                                             }())
                                  ->manifest(),
                              true, {});
  }
  TrainingBench bench({.gradient_bytes = 4 * one, .max_models = 1, .key_share = 50});
  const std::string mine = bench.session(), yours = bench.session("you");
  std::vector<std::string> models;
  for (std::int64_t i = 0; i < 3; ++i) models.push_back(bench.model(mine, i, 2));
  for (std::size_t i = 0; i < 2; ++i) bits_of(bench, bench.batch(models[i], 1, training_batch(1, 3)));
  const std::string refused = bench.result(bench.batch(models[2], 1, training_batch(1, 3))).message;
  const auto megabytes = [](std::int64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / (1 << 20)); };
  EXPECT_EQ(refused, fmt::format("this API key has {} of gradients that no optim_step has taken and asks for {} more, allowed are {} of the server's {} "
                                 "(--gradient-megabytes, --key-share); step or unload some of their models",
                                 megabytes(2 * one), megabytes(one), megabytes(2 * one), megabytes(4 * one)));
  const std::string theirs = bench.model(yours, 0, 2, "you");
  bits_of(bench, bench.batch(theirs, 1, training_batch(1, 3), "you"), "you");
  bits_of(bench, bench.step(models[0], 2));
  bits_of(bench, bench.batch(models[2], 2, training_batch(1, 3)));
  bits_of(bench, bench.service->model_life().unload("me", models[1], [](const ModelRecord& r) { return Outcome{"text/plain", r.id, {}, {}}; }));
  bits_of(bench, bench.batch(models[0], 3, training_batch(1, 3)));
  EXPECT_EQ(waiting_folders(bench), 2u);  // of the third and theirs
}

// A session that is closed, or silent, leaves memory though nobody wants its place.
TEST(Resting, ClosedAndSilentSessionsLeaveMemory) {
  TrainingBench bench({.session_idle_seconds = 1000});
  const std::string session = bench.session(), other = bench.session(), model = bench.model(session, 0, 2), stays = bench.model(other, 0, 2);
  bits_of(bench, bench.batch(model, 1, training_batch(1, 3)));
  bits_of(bench, bench.batch(stays, 1, training_batch(1, 3)));
  const auto wait_for_rested = [](TrainingBench& b, std::uint64_t wanted) {
    for (int i = 0; i < 2000 && b.service->statistics().rested < wanted; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(b.service->statistics().rested.load(), wanted);
  };
  bench.service->session_life().finish("me", session, "finished: success", "");
  wait_for_rested(bench, 1);
  EXPECT_EQ(waiting_folders(bench), 1u);
  EXPECT_THROW(bench.step(model, 2), Error);  // a session that is finished takes no more work
  bits_of(bench, bench.step(stays, 2));

  TrainingBench silent({.session_idle_seconds = 0.2});
  const std::string quiet = silent.model(silent.session(), 0, 2);
  bits_of(silent, silent.batch(quiet, 1, training_batch(1, 3)));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  silent.session("you");  // whoever comes in looks
  wait_for_rested(silent, 1);
  bits_of(silent, silent.step(quiet, 2));
}

// Two keys die with gradients, and a third trains at once in the two places that there are. Hours later, by a clock that the test moves, both have left memory;
// they come back, and step to the bits of who was never disturbed.
TEST(Resting, TheDeadComeBackAfterHours) {
  using Clock = std::chrono::steady_clock;
  for (const std::int64_t rank : {0, 2}) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    const auto run = [&](bool disturbed) {
      std::atomic<std::int64_t> hours{0};
      TrainingServiceOptions options{.max_models = disturbed ? 2 : 10};
      options.clock = [&hours] { return Clock::now() + std::chrono::hours(hours.load()); };
      TrainingBench bench(options);
      const std::string a = bench.model(bench.session("a"), 0, rank, "a"), b = bench.model(bench.session("b"), 1, rank, "b");
      std::string bits = bits_of(bench, bench.batch(a, 1, training_batch(1, 3), "a"), "a");
      bits += bits_of(bench, bench.batch(b, 1, training_batch(2, 3), "b"), "b");
      bits += bits_of(bench, bench.batch(b, 2, training_batch(3, 3), "b"), "b");
      const std::string session = bench.session("c"), c = bench.model(session, 2, rank, "c");
      bits += bits_of(bench, bench.batch(c, 1, training_batch(4, 3), "c"), "c");
      bits += bits_of(bench, bench.step(c, 2, "c"), "c");
      EXPECT_EQ(bench.service->statistics().rested.load(), disturbed ? 1u : 0u);
      if (disturbed) {
        hours = 7;
        bits += bits_of(bench, bench.batch(c, 3, training_batch(8, 3), "c"), "c");  // c was heard now, a and b were not
        bench.session("d");                                                         // whoever comes in looks
        for (int i = 0; i < 2000 && bench.service->statistics().rested < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        EXPECT_EQ(bench.service->statistics().rested.load(), 2u);  // nobody wanted the second place
        EXPECT_EQ(waiting_folders(bench), 2u);
      } else {
        bits += bits_of(bench, bench.batch(c, 3, training_batch(8, 3), "c"), "c");
      }
      bits += bits_of(bench, bench.batch(a, 2, training_batch(5, 3), "a"), "a");
      bits += bits_of(bench, bench.step(a, 3, "a"), "a");
      bits += bits_of(bench, bench.step(b, 3, "b"), "b");
      bits += bits_of(bench, bench.batch(a, 4, training_batch(6, 3), "a"), "a");
      return bits + bits_of(bench, bench.batch(b, 4, training_batch(7, 3), "b"), "b");
    };
    EXPECT_TRUE(run(true) == run(false));
  }
}

TEST(Resting, WhoeverWaitsForAPlaceIsToldSo) {
  TrainingBench bench({.max_models = 1});
  const std::string session = bench.session(), model = bench.model(session, 0, 2), other = bench.model(session, 1, 2);
  bits_of(bench, bench.batch(model, 1, training_batch(1, 3)));  // the other one is on disk
  std::promise<void> go = bench.hold();
  const std::string waits = bench.batch(other, 1, training_batch(1, 3)), runs = bench.batch(model, 2, training_batch(1, 3));
  EXPECT_EQ(bench.service->resting().why_paused("me", waits),
            fmt::format("model '{}' waits for a place in memory: 1 are taken of 1 (--max-models), and whoever has work takes turns", other));
  EXPECT_EQ(bench.service->resting().why_paused("me", runs), "");
  EXPECT_EQ(bench.service->resting().why_paused("you", waits), "");
  go.set_value();
  bits_of(bench, waits), bits_of(bench, runs);
}

// They do not outlive the process: a server that starts again has none, and none of their files.
TEST(Resting, GradientsEndWithTheServer) {
  TrainingBench bench({.max_models = 1});
  const std::string session = bench.session(), model = bench.model(session, 0, 2), other = bench.model(session, 1, 2);
  bits_of(bench, bench.batch(model, 1, training_batch(1, 3)));
  bits_of(bench, bench.batch(other, 1, training_batch(1, 3)));
  EXPECT_EQ(waiting_folders(bench), 1u);
  bench.service.reset();
  TrainingServiceOptions options;
  options.state = bench.folder;
  bench.service = std::make_shared<TrainingService>(bench.base, bench.generation, options);
  EXPECT_EQ(waiting_folders(bench), 0u);
  const auto gone = [&](const std::string& step) {
    return bench.result(step).message.find("the gradients of earlier forward_backward calls") != std::string::npos;
  };
  EXPECT_TRUE(gone(bench.step(model, 2)));
  EXPECT_NE(bench.result(bench.step(model, 3)).message.find("optim_step without a forward_backward before it"), std::string::npos);  // it was told
}

// What was acknowledged before a restart is never silently absent from a step: not where the client goes on as if nothing had been.
TEST(Resting, NoStepIsMadeOfAPartOfItsGradients) {
  const auto steps = [](TrainingBench& bench, const std::string& model, std::int64_t from) {
    std::string bits = bits_of(bench, bench.batch(model, from, training_batch(1, 3)));
    bits += bits_of(bench, bench.batch(model, from + 1, training_batch(2, 3)));
    return bits + bits_of(bench, bench.step(model, from + 2));
  };
  std::string undisturbed;
  {
    TrainingBench bench;
    undisturbed = steps(bench, bench.model(bench.session(), 0, 2), 1);
  }
  TrainingBench bench;
  const std::string session = bench.session(), model = bench.model(session, 0, 2), stepped = bench.model(session, 1, 2), loads = bench.model(session, 2, 2);
  const auto saved = [](const CheckpointRecord& r) { return Outcome{"text/plain", r.path(), {}, {}}; };
  bits_of(bench, bench.service->operations().save("me", loads, 1, {.name = "kept"}, saved));
  for (const std::string& one : {model, stepped}) bits_of(bench, bench.batch(one, 1, training_batch(1, 3)));
  bits_of(bench, bench.batch(loads, 2, training_batch(1, 3)));
  bits_of(bench, bench.step(stepped, 2));
  bench.service.reset();
  TrainingServiceOptions options;
  options.state = bench.folder;
  bench.service = std::make_shared<TrainingService>(bench.base, bench.generation, options);
  bits_of(bench, bench.batch(model, 2, training_batch(2, 3)));  // the second half of a step
  const Outcome refused = bench.result(bench.step(model, 3));
  EXPECT_TRUE(refused.failed());
  EXPECT_NE(refused.message.find("send the forward_backward calls of this step again"), std::string::npos) << refused.message;
  EXPECT_EQ(steps(bench, model, 4), undisturbed);
  steps(bench, stepped, 3);  // a step had taken its gradients: nothing is gone
  bits_of(bench, bench.service->operations().load("me", loads, 3, "kept", true, [](const ModelRecord& r) { return Outcome{"text/plain", r.id, {}, {}}; }));
  steps(bench, loads, 4);  // what was gone is replaced by what was loaded
}

}  // namespace
}  // namespace lockstep
