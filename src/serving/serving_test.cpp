#include "serving/serving.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "base/error.h"
#include "engine/engine_test_tools.h"
#include "serving/loading.h"
#include "serving/local_sampler.h"

namespace lockstep {
namespace {

RuntimeSettings settings() { return {.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .threads = 2}; }
const OpenedModel& opened() {
  static const OpenedModel model = open_model(settings());
  return model;
}
std::shared_ptr<GenerationService> make_service(const ServingOptions& options = {}, std::shared_ptr<Executor> executor = {}) {
  ServingModel model = serving_model(opened());
  model.executor = std::move(executor);
  return std::make_shared<GenerationService>(std::move(model), options);
}
// Holds an executor's thread, so that nothing runs while a test says more.
class HeldThread {
 public:
  explicit HeldThread(Executor& executor) {
    std::promise<void> entered;
    executor.submit(WorkClass::live, [&entered, open = open_.get_future().share()] {
      entered.set_value();
      open.wait();
      return false;
    });
    entered.get_future().wait();
  }
  void release() { open_.set_value(); }

 private:
  std::promise<void> open_;
};
Request request_of(std::uint64_t seed, std::int32_t most = 12, std::int32_t index = 0) {
  return {.prompt = opened().tokenizer->encode("3 7 12=48:", true),
          .sampling = {.seed = seed, .max_tokens = most, .stop_tokens = {102}, .sample_index = index}};
}
std::future<Generation> start(GenerationService& service, Request request, std::uint64_t* id = nullptr) {
  auto done = std::make_shared<std::promise<Generation>>();
  auto future = done->get_future();
  const auto got = service.generate(std::move(request), {}, [done](Generation&& g) { done->set_value(std::move(g)); });
  if (id) *id = got;
  return future;
}
std::string signature(const Generation& g) {
  std::string text = std::string(finish_reason_name(g.finish));
  for (const GeneratedToken& t : g.tokens)
    text += fmt::format(" {}:{:08x}:{:08x}", t.id, std::bit_cast<std::uint32_t>(t.raw_logprob), std::bit_cast<std::uint32_t>(t.sampling_logprob));
  return text;
}

TEST(Serving, ManyThreadsGetTheBitsOfOneAlone) {
  std::vector<std::string> alone;
  {
    const auto service = make_service();
    for (int i = 0; i < 16; ++i) alone.push_back(signature(start(*service, request_of(i)).get()));
  }
  const auto service = make_service();
  std::vector<std::string> together(16);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = t; i < 16; i += 4) together[i] = signature(start(*service, request_of(i)).get());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
  EXPECT_EQ(service->bounds().open(), 0);
  EXPECT_GT(service->counters().sampled_tokens, 0);
}

TEST(Serving, TokensComeOneByOneAndFalseEndsThem) {
  const auto service = make_service();
  std::promise<Generation> done;
  std::vector<std::int32_t> seen;
  service->generate(
      request_of(3), [&](const GeneratedToken& t) { return seen.push_back(t.id), seen.size() < 2; }, [&](Generation&& g) { done.set_value(std::move(g)); });
  const Generation g = done.get_future().get();
  EXPECT_EQ(g.finish, FinishReason::stop);
  ASSERT_EQ(g.tokens.size(), 2u);
  EXPECT_EQ(g.tokens[1].id, seen[1]);
  // Enough and the limit in one token.
  std::promise<Generation> both;
  service->generate(
      request_of(3, 1), [](const GeneratedToken&) { return false; }, [&](Generation&& g2) { both.set_value(std::move(g2)); });
  EXPECT_EQ(both.get_future().get().finish, FinishReason::stop);
}

TEST(Serving, CancelEndsOneAlone) {
  const auto executor = std::make_shared<Executor>();
  const auto service = make_service({}, executor);
  HeldThread hold(*executor);
  std::uint64_t id = 0;
  auto cancelled = start(*service, request_of(1), &id);
  auto other = start(*service, request_of(2));
  service->cancel(id);
  hold.release();
  EXPECT_EQ(cancelled.get().finish, FinishReason::cancelled);
  EXPECT_NE(other.get().finish, FinishReason::cancelled);
  service->cancel(id);
  service->cancel(12345);
}

TEST(Serving, FaultsAreRefusedBeforeAnythingIsKept) {
  const auto service = make_service();
  Request bad = request_of(1);
  bad.sampling.temperature = -1;
  EXPECT_THROW(start(*service, bad), Error);
  bad = request_of(1, 100000);
  EXPECT_THROW(start(*service, bad), Error);
  // One fault of several refuses all.
  EXPECT_THROW(service->generate_all({request_of(1), bad}, {}, [](const OnExecutor&, std::size_t, Generation&&) { ADD_FAILURE(); }), Error);
  EXPECT_EQ(service->bounds().open(), 0);
}

TEST(Serving, TheBoundHolds) {
  const auto executor = std::make_shared<Executor>();
  const auto service = make_service({.max_open = 2}, executor);
  HeldThread hold(*executor);
  auto a = start(*service, request_of(1));
  auto b = start(*service, request_of(2));
  try {
    start(*service, request_of(3));
    ADD_FAILURE() << "a third request was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::resource_exhausted);
    EXPECT_NE(std::string(e.what()).find("has 2 open requests and gets 1 more, allowed are 2 (--max-open)"), std::string::npos) << e.what();
  }
  hold.release();
  b.get();
  auto c = start(*service, request_of(3));
  c.get();
  a.get();
}

TEST(Serving, StreamsOfAKeyAreBounded) {
  const auto executor = std::make_shared<Executor>();
  const auto service = make_service({}, executor);
  service->bounds().set_streams({{"ann", 2}});
  const auto of = [&](const std::string& key, WorkClass work = WorkClass::live) {
    Request request = request_of(1);
    request.account = service->callers().account(key, work);
    return request;
  };
  const auto refused = [&](std::vector<Request> requests) {
    try {
      service->generate_all(std::move(requests), {}, [](const OnExecutor&, std::size_t, Generation&&) { ADD_FAILURE(); });
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::internal;
  };
  HeldThread hold(*executor);
  auto a = start(*service, of("ann")), b = start(*service, of("ann", WorkClass::rollouts));
  EXPECT_EQ(refused({of("ann")}), ErrorCode::resource_exhausted);
  EXPECT_EQ(refused({of("ann"), of("ann"), of("ann")}), ErrorCode::invalid_argument);
  EXPECT_EQ(service->bounds().open(), 2);
  Request part = of("ann");
  part.is_stream = false;
  auto c = start(*service, part), d = start(*service, of("bob"));
  hold.release();
  for (auto* one : {&a, &b, &c, &d}) EXPECT_NE(one->get().finish, FinishReason::error);
  auto again = start(*service, of("ann")), and_again = start(*service, of("ann"));
  again.get(), and_again.get();
}

// Who goes first changes no bit; and all who had rows in a step paid for them.
TEST(Serving, AccountsChangeNoBit) {
  const auto executor = std::make_shared<Executor>();
  executor->set_keys({{"0", 1}, {"1", 4}, {"2", 1}});
  std::vector<std::string> alone;
  for (std::uint64_t seed = 0; seed < 9; ++seed) alone.push_back(signature(start(*make_service(), request_of(seed)).get()));
  // Mixed by shares, and live ones first with next to no room for others.
  for (const double live_token_seconds : {0.0, 1e-6}) {
    const auto service =
        make_service({.engine = {.max_batch_rows = 24, .max_sequences = 3, .prefill_chunk = 5, .live_token_seconds = live_token_seconds}}, executor);
    std::vector<std::future<Generation>> all;
    for (std::uint64_t seed = 0; seed < 9; ++seed) {
      Request request = request_of(seed);
      request.account = service->callers().account(std::to_string(seed / 3), seed % 2 ? WorkClass::live : WorkClass::rollouts);
      all.push_back(start(*service, std::move(request)));
    }
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(signature(all[i].get()), alone[i]) << i;
    executor->drain();
    for (const WorkClass work : {WorkClass::live, WorkClass::rollouts}) {
      const ClassStatistics& of_class = service->statistics().by_class[static_cast<std::size_t>(work)];
      EXPECT_EQ(of_class.requests.load(), work == WorkClass::live ? 4u : 5u);
      EXPECT_GE(of_class.tokens.load(), of_class.requests.load());
    }
    EXPECT_EQ(service->statistics().by_class[2].requests.load(), 0u);
  }
  PrometheusText text;
  executor->append_metrics(text);
  const std::string shown = text.take();
  for (const char* work : {"live", "rollouts"})
    for (const char* key : {"0", "1", "2"})
      EXPECT_NE(shown.find(fmt::format("lockstep_device_seconds_total{{class=\"{}\",key=\"{}\"}}", work, key)), std::string::npos) << shown;
}

TEST(Serving, StopAnswersEverybody) {
  const auto executor = std::make_shared<Executor>();
  const auto service = make_service({}, executor);
  HeldThread hold(*executor);
  std::vector<std::future<Generation>> all;
  for (int i = 0; i < 8; ++i) all.push_back(start(*service, request_of(i)));
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // stop() waits by then, most likely
    hold.release();
  });
  service->stop();
  later.join();
  int cancelled = 0;
  for (auto& one : all) cancelled += one.get().finish == FinishReason::cancelled;
  EXPECT_EQ(cancelled, 8);
  EXPECT_THROW(start(*service, request_of(1)), Error);
  EXPECT_THROW(service->counters(), Error);
  EXPECT_EQ(service->bounds().open(), 0);
}

TEST(Serving, AStoppedExecutorLeavesNobodyWaiting) {
  const auto executor = std::make_shared<Executor>();
  const auto service = make_service({}, executor);
  auto one = start(*service, {.prompt = {1}, .sampling = {.max_tokens = 400}});
  executor->stop();
  service->stop();
  const FinishReason finish = one.get().finish;
  EXPECT_TRUE(finish == FinishReason::cancelled || finish == FinishReason::length);
}

TEST(Serving, NewWeightsHaveTheirVersion) {
  const auto service = make_service();
  EXPECT_EQ(start(*service, request_of(1)).get().tokens.at(0).weights_version, 0u);
  service->weights().set(serving_model(opened(), 5).weights);
  EXPECT_EQ(start(*service, request_of(1)).get().tokens.at(0).weights_version, 5u);
  EXPECT_EQ(service->weights().version(), 5u);
}

TEST(Serving, AModelWithoutATokenizerServesTokens) {
  auto runtime = std::make_shared<Runtime>(BackendOptions{.threads = 1}, make_model(golden_config("sharing")), profile_by_name("cpu-f32"), 64);
  const auto weights = make_weight_set(runtime->backend, runtime->model->manifest(), initial_weights(runtime->model->manifest(), 1, 0.1), runtime->profile, 0);
  GenerationService service({.name = "tiny", .runtime = runtime, .weights = weights});
  EXPECT_EQ(start(service, {.prompt = {1, 2}, .sampling = {.max_tokens = 3}}).get().tokens.size(), 3u);
  EXPECT_THROW(service.model().tokenizer(), Error);
}

TEST(LocalSampler, AnyNumberInOrder) {
  const auto service = make_service({.max_open = 3, .priority = WorkClass::rollouts});
  LocalSampler sampler(service);
  std::vector<SampleRequest> requests;
  for (int i = 0; i < 20; ++i) {
    const Request r = request_of(9, 12, i);
    requests.push_back({.prompt = r.prompt, .seed = 9, .sample_index = i, .max_tokens = 12, .stop_tokens = sampler.end_tokens()});
  }
  const auto results = sampler.sample(requests);
  ASSERT_EQ(results.size(), 20u);
  for (int i = 0; i < 20; ++i) {
    const Generation g = start(*service, request_of(9, 12, i)).get();
    ASSERT_EQ(results[i].tokens.size(), g.tokens.size());
    for (std::size_t t = 0; t < g.tokens.size(); ++t) {
      EXPECT_EQ(results[i].tokens[t], g.tokens[t].id);
      EXPECT_EQ(results[i].raw_logprobs[t], g.tokens[t].raw_logprob);
    }
    EXPECT_NE(results[i].finish, SampleFinish::failed);
    EXPECT_FALSE(results[i].mixed_versions);
  }
  EXPECT_EQ(sampler.profile_digest(), service->model().profile_digest());
  requests[3].temperature = -1;
  EXPECT_THROW(sampler.sample(requests), Error);
}

TEST(LocalSampler, ATokenEndsItsWaitAndCancelsWhatRuns) {
  const auto executor = std::make_shared<Executor>();
  const auto service = make_service({.max_open = 2, .priority = WorkClass::rollouts}, executor);
  HeldThread hold(*executor);
  StopSource source;
  LocalSampler sampler(service, source.token()), another(service);
  const Request r = request_of(9, 12, 0);
  std::vector<SampleRequest> requests(3, {.prompt = r.prompt, .seed = 9, .max_tokens = 12});
  source.stop();
  EXPECT_THROW(sampler.sample(requests), Error);
  hold.release();
  EXPECT_EQ(another.sample(requests).size(), 3u);
}

TEST(Loading, SettingsAreRefusedByName) {
  const auto refusal = [](auto&& change) {
    RuntimeSettings s = settings();
    change(s);
    try {
      open_model(s);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(refusal([](auto& s) { s.backend = "defered"; }).find("did you mean 'deferred'?"), std::string::npos);
  EXPECT_NE(refusal([](auto& s) { s.profile = "cpu-f23"; }).find("did you mean 'cpu-f32'?"), std::string::npos);
  EXPECT_NE(refusal([](auto& s) { s.isa = "avx"; }).find("allowed are scalar, avx2, avx512"), std::string::npos);
  EXPECT_NE(refusal([](auto& s) { s.model = "/nowhere"; }).find("no folder"), std::string::npos);
  EXPECT_NE(refusal([](auto& s) { s.context = 1 << 20; }).find("context"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
