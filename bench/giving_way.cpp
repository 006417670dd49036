// Measures the cost of giving way (docs/glossary.md) and of shares while nobody waits: a training step of all parameters, alone, on a device that
// gives way between its kernels and on one that does not; and completions without training, by an executor with shares and by an engine that runs
// until it is idle. In turns in one process; medians.
//   ninja -C build giving_way
//   build/bench/giving_way LARGE SMALL [--rounds 7] [--threads 2] [--sequences 2] [--length 128] [--streams 16] [--keys 1] [--tokens 400]
// LARGE is trained, SMALL answers: folders of models. Prints one JSON object; seconds a round, and the ratios of the rounds (with : without).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/give_way.h"
#include "engine/engine.h"
#include "serving/executor.h"
#include "timing.h"
#include "trained/trained_model.h"

namespace {
using namespace lockstep;

std::map<std::string, int> numbers{{"--rounds", 7},   {"--threads", 2}, {"--sequences", 2}, {"--length", 128},
                                   {"--streams", 16}, {"--keys", 1},    {"--tokens", 400}};

// A row of the two, which run in turns, the first first in every second round; one round before is not counted.
nlohmann::ordered_json row(const char* name, const std::function<void()>& with, const std::function<void()>& without) {
  std::vector<double> times[2], ratios;
  for (int round = 0; round <= numbers["--rounds"]; ++round) {
    double seconds[2] = {0, 0};
    for (const bool first : {true, false}) {
      const bool own = first == (round % 2 == 0);
      seconds[own ? 0 : 1] = seconds_of(own ? with : without);
    }
    if (round == 0) continue;
    for (const int i : {0, 1}) times[i].push_back(seconds[i]);
    ratios.push_back(seconds[0] / seconds[1]);
  }
  return {{"case", name}, {"with", median(times[0])}, {"without", median(times[1])}, {"ratio", median(ratios)}, {"ratios", ratios}};
}

nlohmann::ordered_json training_row(const std::string& folder) {
  TrainedBase base;
  base.opened = open_model({.model = folder, .threads = numbers["--threads"]});
  base.options.accumulate = true;
  const auto executor = std::make_shared<Executor>();
  Backend& backend = base.opened.runtime->backend;
  std::unique_ptr<TrainedModel> model;
  executor->run(WorkClass::training, [&] { model = make_trained_model(base, {}); }).get();
  std::vector<TrainSequence> data;
  const std::int64_t vocabulary = base.opened.model->facts().vocabulary;
  for (int s = 0; s < numbers["--sequences"]; ++s) {
    std::vector<std::int32_t> tokens;
    for (int i = 0; i <= numbers["--length"]; ++i) tokens.push_back(static_cast<std::int32_t>((7 * i + 31 * s + 1) % vocabulary));
    data.push_back(TrainSequence::next_token(tokens));
  }
  LossOptions loss;
  loss.normaliser = static_cast<double>(numbers["--sequences"]) * numbers["--length"];
  const auto step = [&](bool gives_way) {
    backend.set_pause_point(gives_way ? executor : nullptr);
    executor
        ->run(WorkClass::training,
              [&] {
                PausePoint* const own = std::exchange(thread_pause_point, gives_way ? thread_pause_point : nullptr);
                model->forward_backward(data, loss);
                model->optim_step({.learning_rate = 1e-6});
                thread_pause_point = own;
              })
        .get();
  };
  const auto measured = row(
      "a training step alone, giving way", [&] { step(true); }, [&] { step(false); });
  executor->run(WorkClass::training, [&] { model.reset(); }).get();
  backend.set_pause_point(nullptr);
  return measured;
}

nlohmann::ordered_json completions_row(const std::string& folder) {
  OpenedModel opened = open_model({.model = folder, .threads = numbers["--threads"]});
  Executor executor;
  std::vector<Executor::Account> accounts;
  for (int i = 0; i < numbers["--keys"]; ++i) accounts.push_back(executor.account(WorkClass::live, fmt::format("key-{}", i)));
  std::unique_ptr<Engine> engine;
  executor.run(WorkClass::live, [&] { engine = std::make_unique<Engine>(*opened.runtime, opened.weight_set()); }).get();
  const auto submit = [&] {
    for (int i = 0; i < numbers["--streams"]; ++i)
      engine->submit({.prompt = {3, 7, 12, 48},
                      .sampling = {.temperature = 1, .seed = static_cast<std::uint64_t>(i), .max_tokens = numbers["--tokens"]},
                      .account = accounts[static_cast<std::size_t>(i) % accounts.size()]});
  };
  const auto by_shares = [&] {
    executor.run(WorkClass::live, submit).get();
    for (const Executor::Account& account : accounts)
      executor.submit(account, [&] {
        if (engine->idle()) return false;
        engine->step();
        std::vector<DevicePart> parts;
        for (const AccountRows& one : engine->take_rows()) parts.push_back({one.account, static_cast<double>(one.rows)});
        executor.name_piece("forward", std::move(parts));
        return !engine->idle();
      });
    executor.drain();
  };
  const auto alone = [&] { executor.run(WorkClass::live, [&] { submit(), engine->run_until_idle(); }).get(); };
  const auto measured = row("completions without training, by shares", by_shares, alone);
  executor.run(WorkClass::live, [&] { engine.reset(); }).get();
  return measured;
}

int run(int count, char** arguments) {
  if (count < 3)
    return std::fprintf(stderr,
                        "usage: giving_way LARGE SMALL [--rounds N] [--threads N] [--sequences N] [--length N] [--streams N] [--keys N] [--tokens N]\n"),
           2;
  for (int i = 3; i + 1 < count; i += 2) numbers.at(arguments[i]) = std::atoi(arguments[i + 1]);
  nlohmann::ordered_json out{{"options", numbers}, {"rows", nlohmann::ordered_json::array()}};
  out["rows"].push_back(training_row(arguments[1]));
  out["rows"].push_back(completions_row(arguments[2]));
  std::printf("%s\n", out.dump(1).c_str());
  return 0;
}
}  // namespace

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
