// An engine whose ranks several processes have answers with the bits of one rank: threads stand for processes, with a wire in memory between them.
#include "engine/changed_weights_test_tools.h"
#include "engine/engine_test_tools.h"
#include "engine/step_follower.h"
#include "model/adapter_test_tools.h"
#include "parallel/memory_wire_test_tools.h"

namespace lockstep {
namespace {

struct Following {
  std::string config, profile;
  RankLayout ranks;
  int processes = 2;
  bool meddle = false;  // the control: a follower computes with another token
};

// A call of a step, whose first token is another.
std::string with_another_token(const std::string& call) {
  ByteReader in(call);
  in.value<EngineCall>();
  TakenStep step = taken_step(in);
  std::int32_t& token = step.sequences[0].tokens[static_cast<std::size_t>(step.plan[0].begin)];
  token = token == 3 ? 4 : 3;
  ByteWriter out;
  out.value(EngineCall::step);
  put_step(out, step.plan, step.wants);
  return out.take();
}

void follow_until_the_end(ProcessMail& mail, const Following& f) {
  Plant plant(f.config, f.profile, {.threads = 1});
  StepFollower follower(plant.runtime, mail);
  int steps = 0;  // the first ones are meddled with, whose requests bring nothing of their own
  while (const std::optional<std::string> call = mail.next_call()) {
    const bool meddled = f.meddle && call->front() == static_cast<char>(EngineCall::step) && steps++ < 3;
    const std::string bytes = meddled ? with_another_token(*call) : *call;
    ByteReader in(bytes);
    follower.perform(in);
  }
}

std::vector<Request> requests_of(const Runtime& runtime) {
  std::vector<Request> requests = random_requests(10, 5, runtime.model->facts().vocabulary);
  for (Request& r : requests) r.experts = r.experts && runtime.model->facts().expert_shape().row() > 0;
  for (std::size_t i = 0; i < requests.size(); i += 3) requests[i].sampling.top_logprobs = 3;
  return requests;
}

using Bits = std::vector<std::vector<std::uint32_t>>;

// The same requests under two adapters and weights of their own, beside those without.
std::vector<Request> requests_with_their_own(Runtime& runtime, std::uint64_t seed, const std::shared_ptr<const WeightSet>& own) {
  std::vector<Request> requests = requests_of(runtime);
  const auto layout = std::make_shared<const AdapterLayout>(runtime.model->manifest(), AdapterSettings{.rank = 4, .alpha = 7, .unembedding = true});
  for (std::uint64_t a = 0; a < 2; ++a) {
    const auto adapter = make_adapter(runtime.backend, layout, stirred(*layout, seed + a), 1);
    for (std::size_t i = a; i < requests.size(); i += 3) requests[i].adapter = adapter;
  }
  for (std::size_t i = 4; i < requests.size(); i += 5) requests[i].weights = own;
  return requests;
}

// Under the weights that the engine is made with; under others, and those changed, beside them and in their memory; and twice with adapters and weights
// that requests bring, of which the first are gone the second time.
std::vector<Bits> answers(Plant& plant, const Following& f, ProcessMail* lead) {
  EngineOptions options{.page_size = 4, .cache_pages = 60, .max_batch_rows = 48, .prefill_chunk = 16};
  if (lead) options.ranks = f.ranks, options.lead = lead;
  Engine engine(plant.runtime, plant.weights, options);
  std::vector<Bits> all{bits_of(engine.generate(requests_of(plant.runtime)))};
  const Plant other(f.config, f.profile, {.threads = 1}, 128, 8);
  const auto second = make_weight_set(plant.runtime.backend, plant.runtime.model->manifest(), other.images, plant.runtime.profile, 2);
  engine.set_weights(second);
  all.push_back(bits_of(engine.generate(requests_of(plant.runtime))));
  const ChangedWeights third = changed_weights(plant.runtime, second, 1), fourth = changed_weights(plant.runtime, third.weights, 2);
  engine.set_weights(third.weights);
  all.push_back(bits_of(engine.generate(requests_of(plant.runtime))));
  fourth.changes->in_place = true;  // the ranks write into their shares of the third
  engine.set_weights(fourth.weights);
  all.push_back(bits_of(engine.generate(requests_of(plant.runtime))));
  for (const std::uint64_t seed : {20, 30}) all.push_back(bits_of(engine.generate(requests_with_their_own(plant.runtime, seed, plant.weights))));
  EXPECT_GT(engine.counters().mixed_batches, 0);
  EXPECT_GT(engine.counters().chunks, 0);
  EXPECT_GT(engine.counters().most_adapters, 1);
  return all;
}

std::vector<Bits> answers_over_processes(const Following& f) {
  std::vector<Bits> got;
  as_processes(f.processes, [&](ProcessMail& mail) {
    if (mail.process() > 0) return follow_until_the_end(mail, f);
    Plant plant(f.config, f.profile, {.threads = 1});
    got = answers(plant, f, &mail);
  });
  return got;
}

TEST(EngineProcesses, AnswersHaveTheBitsOfOneRank) {
  for (const char* profile : {"cpu-bf16w", "cpu-f32", "cpu-int4-base"}) {
    Plant plant("sharing", profile, {.threads = 1});
    const std::vector<Bits> want = answers(plant, {"sharing", profile, {}}, nullptr);
    for (std::size_t i = 0; i + 1 < want.size(); ++i) EXPECT_NE(want[i], want[i + 1]);  // other weights and adapters say something else
    for (const auto& [ranks, processes] :
         {std::pair(RankLayout{2, 1, 1}, 2), std::pair(RankLayout{1, 1, 2}, 2), std::pair(RankLayout{2, 1, 2}, 3), std::pair(RankLayout{1, 1, 1, 2}, 2)}) {
      SCOPED_TRACE(fmt::format("{}, {}, {} processes", profile, ranks.text(), processes));
      EXPECT_EQ(answers_over_processes({"sharing", profile, ranks, processes}), want);
    }
  }
}

// The control: what a follower computes is in the answers.
TEST(EngineProcesses, AFollowerThatComputesSomethingElseIsSeen) {
  Plant plant("sharing", "cpu-f32", {.threads = 1});
  const std::vector<Bits> want = answers(plant, {"sharing", "cpu-f32", {}}, nullptr);
  EXPECT_NE(answers_over_processes({"sharing", "cpu-f32", {2, 1, 1}, 2, true}), want);
}

// A follower that cannot go on is an error of the step, in words that name it.
TEST(EngineProcesses, AnErrorOfAFollowerIsNamed) {
  as_processes(2, [&](ProcessMail& mail) {
    Plant plant("sharing", "cpu-f32", {.threads = 1});
    if (mail.process() == 0) {
      Engine engine(plant.runtime, plant.weights, {.page_size = 4, .cache_pages = 60, .ranks = {2, 1, 1}, .lead = &mail});
      try {
        engine.generate({{.prompt = {1, 5, 7}, .sampling = {.temperature = 0, .max_tokens = 4}}});
        ADD_FAILURE() << "no error";
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find("process 1 cannot follow: planted"), std::string::npos) << e.what();
      }
      return;
    }
    StepFollower follower(plant.runtime, mail);
    try {
      while (const std::optional<std::string> call = mail.next_call()) {
        ByteReader in(*call);
        if (call->front() == static_cast<char>(EngineCall::step)) mail.fail_call("planted");
        else follower.perform(in);
      }
    } catch (const Error&) {  // it has made fewer runs than process 0
    }
  });
}

TEST(EngineProcesses, AnEngineThatIsNotThereIsAnError) {
  as_processes(1, [&](ProcessMail& mail) {
    Plant plant("sharing", "cpu-f32", {.threads = 1});
    StepFollower follower(plant.runtime, mail);
    ByteWriter out;
    out.value(EngineCall::step);
    ByteReader in(out.bytes());
    EXPECT_THROW(follower.perform(in), Error);
  });
}

}  // namespace
}  // namespace lockstep
