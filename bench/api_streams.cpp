// Measures the cost of the OpenAI API per token beyond the engine's: the same sequences through the bare service, and as streams whose bytes are
// dropped. Prints processor time per token of each and the difference; no socket (bench/http_streams.cpp has that part).
//   ninja -C build api_streams && build/bench/api_streams models/countdown-glm [streams [tokens]]
#include <sys/resource.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "api/json_fields.h"
#include "api/openai/openai_api.h"
#include "serving/loading.h"

namespace {
using namespace lockstep;

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

// Counts down to the end of all.
class Gate {
 public:
  explicit Gate(int count) : left_(count) {}
  void done() {
    const std::lock_guard lock(mutex_);
    if (--left_ == 0) changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return left_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_;
};

class Nowhere : public Responder {
 public:
  explicit Nowhere(Gate& gate) : gate_(gate) {}
  void send(ApiResponse response) override {
    std::fprintf(stderr, "%s\n", response.body.c_str());
    std::exit(1);
  }
  void begin_stream(std::string_view) override {}
  void stream(std::string) override {}
  void end_stream() override { gate_.done(); }
  void on_abandoned(std::function<void()>) override {}

 private:
  Gate& gate_;
};
}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "models/countdown-glm";
  const int streams = argc > 2 ? std::atoi(argv[2]) : 64, tokens = argc > 3 ? std::atoi(argv[3]) : 400;
  ServingModel model = serving_model(open_model({.model = folder, .threads = 1}));
  model.chat_template = std::make_shared<const ChatTemplate>(ChatTemplate::from_source("{{ messages[0].content }}"));
  model.name = "m";
  const auto service = std::make_shared<GenerationService>(std::move(model));
  Routes routes;
  add_openai_routes(routes, service);
  const double all = static_cast<double>(streams) * tokens * 1e-6;

  const auto bare = [&](std::int32_t top) {
    Gate gate(streams);
    const double began = processor_seconds();
    for (int i = 0; i < streams; ++i) {
      Request request{.prompt = service->model().tokenizer().encode("3 7 12=48:", true)};
      request.sampling.max_tokens = tokens;
      request.sampling.seed = static_cast<std::uint64_t>(i);
      request.sampling.top_logprobs = top;
      service->generate(
          std::move(request), [](const GeneratedToken&) { return true; }, [&](Generation&&) { gate.done(); });
    }
    gate.wait();
    return (processor_seconds() - began) / all;
  };
  const auto streamed = [&](const std::string& path, const std::string& fields) {
    Gate gate(streams);
    const double began = processor_seconds();
    for (int i = 0; i < streams; ++i)
      routes.handle({"POST", path, "", "application/json",
                     fmt::format(R"({{"model":"m","stream":true,"ignore_eos":true,"max_tokens":{},"seed":{},{}}})", tokens, i, fields)},
                    std::make_shared<Nowhere>(gate));
    gate.wait();
    return (processor_seconds() - began) / all;
  };
  bare(0);
  const double engine = bare(0), engine_top = bare(5);
  std::printf("engine alone              %6.2f us a token (%.2f with 5 likeliest tokens)\n", engine, engine_top);
  const std::string chat = R"("messages":[{"role":"user","content":"3 7 12=48:"}])", prompt = R"("prompt":"3 7 12=48:")";
  const auto report = [&](const char* what, double microseconds, double without) {
    std::printf("%-25s %6.2f us, the API's part %.2f\n", what, microseconds, microseconds - without);
  };
  report("completions", streamed("/v1/completions", prompt), engine);
  report("completions, logprobs 5", streamed("/v1/completions", prompt + R"(,"logprobs":5)"), engine_top);
  report("chat", streamed("/v1/chat/completions", chat), engine);
  report("chat, token ids", streamed("/v1/chat/completions", chat + R"(,"return_token_ids":true)"), engine);
  report("chat, top_logprobs 5", streamed("/v1/chat/completions", chat + R"(,"logprobs":true,"top_logprobs":5)"), engine_top);
  return 0;
}
