// Times what kept sets (base/kept_tokens.h) cost: sampling with top-k that tells them against the same sampling that does not, and the policy's forward,
// backward and step over them against the same over the whole vocabulary. In turns, on the same tokens; a JSON object a line, with the seconds of each round
// by the clock and of the process's processors.
//   ninja -C build kept_sets && build/bench/kept_sets MODEL [--profile cpu-f32] [--threads 0] [--rounds 5] [--prompts 8] [--samples 8] [--prompt 16]
//                                                     [--tokens 32] [--top-k 40]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/philox.h"
#include "engine/engine.h"
#include "serving/loading.h"
#include "timing.h"
#include "train/trainer.h"

namespace {
using namespace lockstep;

std::map<std::string, std::int64_t> numbers{{"--threads", 0}, {"--rounds", 5},  {"--prompts", 8}, {"--samples", 8},
                                            {"--prompt", 16}, {"--tokens", 32}, {"--top-k", 40}};

std::vector<Request> requests_of(const OpenedModel& opened, bool kept) {
  std::vector<Request> requests;
  for (std::int64_t p = 0; p < numbers["--prompts"]; ++p) {
    RandomSequence random(1, RandomStream::environment, static_cast<std::uint64_t>(p));
    std::vector<std::int32_t> prompt(static_cast<std::size_t>(numbers["--prompt"]));
    for (std::int32_t& token : prompt) token = static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(opened.model->facts().vocabulary)));
    for (std::int64_t s = 0; s < numbers["--samples"]; ++s) {
      SamplingParameters sampling;
      sampling.top_k = static_cast<std::int32_t>(numbers["--top-k"]);
      sampling.max_tokens = static_cast<std::int32_t>(numbers["--tokens"]);
      sampling.sample_index = static_cast<std::int32_t>(s);
      requests.push_back({.prompt = prompt, .sampling = sampling});
      requests.back().kept_tokens = kept;
    }
  }
  return requests;
}

// The samples as sequences of policy training; without kept sets the same tokens and old log-probabilities.
std::vector<TrainSequence> data_of(const std::vector<Request>& requests, const std::vector<Generation>& generations, bool kept) {
  std::vector<TrainSequence> data;
  for (std::size_t i = 0; i < generations.size(); ++i) {
    std::vector<std::int32_t> tokens = requests[i].prompt;
    for (const GeneratedToken& token : generations[i].tokens) tokens.push_back(token.id);
    TrainSequence& d = data.emplace_back(TrainSequence::next_token(tokens));
    const std::size_t first = requests[i].prompt.size() - 1;
    std::fill_n(d.weights.begin(), first, 0.0f);
    std::fill_n(d.targets.begin(), first, -1);
    d.advantages.assign(d.tokens.size(), i % 2 ? 1.0f : -1.0f);
    d.old_logprobs.assign(d.tokens.size(), 0.0f);
    if (kept) d.kept_tokens.resize(d.tokens.size());
    for (std::size_t t = 0; t < generations[i].tokens.size(); ++t) {
      d.old_logprobs[first + t] = generations[i].tokens[t].sampling_logprob;
      if (kept) d.kept_tokens[first + t] = generations[i].tokens[t].kept;
    }
  }
  return data;
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// What rounds took, of all threads too.
struct Times {
  std::vector<double> clock, processor;
  template <class F>
  void add(const F& work) {
    const double begin = processor_seconds();
    clock.push_back(seconds_of(work));
    processor.push_back(processor_seconds() - begin);
  }
};

void print(const char* what, const Times& without, const Times& with) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < with.clock.size(); ++i) ratios.push_back(with.clock[i] / without.clock[i]);
  const nlohmann::ordered_json row{
      {"what", what},           {"without", without.clock}, {"with", with.clock}, {"without_processor", without.processor}, {"with_processor", with.processor},
      {"ratio", median(ratios)}};
  std::printf("%s\n", row.dump().c_str());
}

int measure(const std::string& model, const std::string& profile) {
  RuntimeSettings settings;
  settings.model = model;
  settings.profile = profile;
  settings.threads = numbers["--threads"];
  OpenedModel opened = open_model(settings);
  Trainer trainer(*opened.runtime, opened.masters(), {.share_prefixes = true});  // as `train rl` does unless told otherwise
  Engine engine(*opened.runtime, trainer.weights(), {.max_sequences = numbers["--prompts"] * numbers["--samples"]});
  const std::vector<Request> plain = requests_of(opened, false), telling = requests_of(opened, true);
  const std::vector<Generation> generations = engine.generate(telling);
  if (!generations[0].tokens[0].kept.cut()) fail(ErrorCode::invalid_argument, "--top-k is {}, and it cuts nothing", numbers["--top-k"]);
  const std::vector<TrainSequence> whole = data_of(telling, generations, false), over_kept = data_of(telling, generations, true);
  LossOptions loss;
  loss.kind = LossKind::policy;
  const auto step = [&](const std::vector<TrainSequence>& data) {
    trainer.forward_backward(data, loss);
    trainer.optim_step({.learning_rate = 0});
  };
  engine.generate(plain), step(whole), step(over_kept);  // the first ones fill caches
  Times sampled, sampled_kept, stepped, stepped_kept;
  for (std::int64_t round = 0; round < numbers["--rounds"]; ++round) {
    const bool turned = round % 2 == 1;  // the order changes, so that a machine that slows down under load favours neither
    for (const bool kept : {turned, !turned}) {
      (kept ? sampled_kept : sampled).add([&] { engine.generate(kept ? telling : plain); });
      (kept ? stepped_kept : stepped).add([&] { step(kept ? over_kept : whole); });
    }
  }
  print("sampling", sampled, sampled_kept);
  print("step", stepped, stepped_kept);
  return 0;
}
}  // namespace

int main(int count, char** arguments) {
  std::string model, profile = "cpu-f32";
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    const bool named = word == "--profile" || numbers.contains(word);
    if ((named && i + 1 == count) || (!named && (!model.empty() || word.starts_with("--")))) return std::fprintf(stderr, "kept_sets: '%s'?\n", word.c_str()), 2;
    if (word == "--profile") profile = arguments[++i];
    else if (named) numbers[word] = std::atoll(arguments[++i]);
    else model = word;
  }
  if (model.empty()) return std::fprintf(stderr, "usage: kept_sets MODEL [--profile NAME] [--threads N] [--rounds N] ...\n"), 2;
  try {
    return measure(model, profile);
  } catch (const Error& e) {
    return std::fprintf(stderr, "kept_sets: %s\n", e.message().c_str()), 1;
  }
}
