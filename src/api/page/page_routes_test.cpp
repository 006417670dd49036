#include "api/page/page_routes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <fstream>
#include <mutex>

#include "api/worker.h"
#include "runs/page_bundle.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class OneAnswer : public Responder {
 public:
  void send(ApiResponse response) override {
    const std::lock_guard lock(mutex_);
    response_ = std::move(response);
    changed_.notify_all();
  }
  void begin_stream(std::string_view) override { ADD_FAILURE() << "nothing here streams"; }
  void stream(std::string) override {}
  void end_stream() override {}
  void on_abandoned(std::function<void()>) override {}
  const ApiResponse& wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return response_.has_value(); }));
    return *response_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<ApiResponse> response_;
};

struct PageRoutesTest : testing::Test {
  fs::path root = fs::temp_directory_path() / fmt::format("lockstep-page-routes-{}", getpid());
  Routes routes;
  void SetUp() override {
    fs::remove_all(root);
    fs::create_directories(root / "a");
    std::ofstream(root / "a/metrics.jsonl") << "{\"step\":1,\"reward\":0.5}\n";
    std::ofstream(root / "a/transcripts.jsonl") << "{\"step\":1,\"tokens\":[\"<b>\"]}\n";
    add_page_routes(routes, {.places = {.roots = {root}}, .title = "here", .playground = true});
  }
  void TearDown() override { fs::remove_all(root); }
  ApiResponse get(const std::string& target, HeaderList headers = {{"host", "127.0.0.1:80"}}, const std::string& method = "GET") {
    auto answer = std::make_shared<OneAnswer>();
    ApiRequest request;
    request.method = method;
    request.path = target.substr(0, target.find('?'));
    if (request.path.size() < target.size()) request.query = target.substr(request.path.size() + 1);
    request.headers = std::move(headers);
    routes.handle(request, answer);
    return answer->wait();
  }
  Json json(const std::string& target) { return Json::parse(get(target).body); }
  static std::string header(const ApiResponse& response, std::string_view name) {
    for (const auto& [key, value] : response.headers)
      if (key == name) return value;
    return {};
  }
};

TEST_F(PageRoutesTest, FilesComeWithPolicyTagAndGzip) {
  const ApiResponse index = get("/");
  EXPECT_EQ(index.status, 200);
  EXPECT_EQ(index.content_type, "text/html; charset=utf-8");
  EXPECT_NE(index.bytes().find("assets/app.js"), std::string_view::npos);
  const std::string policy = header(index, "Content-Security-Policy");
  EXPECT_NE(policy.find("script-src 'self';"), std::string::npos);
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
  for (const PageFile& file : page_files()) {
    const std::string path = file.name == "index.html" ? "/" : "/" + std::string(file.name);
    EXPECT_EQ(get(path).bytes(), file.plain);
    const ApiResponse packed = get(path, {{"host", "localhost"}, {"accept-encoding", "br, gzip;q=0.8"}});
    EXPECT_EQ(packed.bytes(), file.gzip);
    EXPECT_EQ(header(packed, "Content-Encoding"), "gzip");
    EXPECT_LT(file.gzip.size(), file.plain.size());
    EXPECT_TRUE(header(get(path, {{"host", "localhost"}, {"accept-encoding", "gzip;q=0, br"}}), "Content-Encoding").empty());
    const ApiResponse again = get(path, {{"host", "localhost"}, {"accept-encoding", "gzip"}, {"if-none-match", header(packed, "ETag")}});
    EXPECT_EQ(again.status, 304);
    EXPECT_TRUE(again.bytes().empty());
    EXPECT_EQ(get(path, {{"host", "localhost"}, {"if-none-match", header(packed, "ETag")}}).status, 200);  // another form of it
  }
}

TEST_F(PageRoutesTest, NothingIsFetchedFromElsewhere) {
  for (const PageFile& file : page_files()) {
    std::string text(file.plain);
    for (std::size_t at; (at = text.find("/*!")) != std::string::npos;) text.erase(at, text.find("*/", at) + 2 - at);  // licences name their homes
    for (const char* scheme : {"http:", "https:", "ws:", "wss:"}) EXPECT_EQ(text.find(std::string(scheme) + "//"), std::string::npos) << file.name;
  }
}

TEST_F(PageRoutesTest, Data) {
  EXPECT_EQ(json("/api/page"), Json::parse(R"({"title":"here","playground":true,"device":false,"gates":false,"fleet":false})"));
  EXPECT_EQ(json("/api/runs")["runs"][0]["name"], "a");
  EXPECT_TRUE(json("/api/runs/a")["parity"].is_null());
  const Json metrics = json("/api/runs/a/metrics");
  EXPECT_EQ(metrics["columns"]["reward"]["y"][0], 0.5);
  EXPECT_EQ(json(fmt::format("/api/runs/a/metrics?arm=&from={}&file={}", metrics["next"].get<int>(), metrics["file"].get<std::string>()))["lines"], 0);
  EXPECT_EQ(json("/api/runs/a/ranks"), (Json{{"step", 1}, {"ranks", Json::array()}, {"starts", Json::array()}}));
  EXPECT_EQ(json("/api/runs/a/transcripts")["steps"], Json::array({1}));
  EXPECT_EQ(json("/api/runs/a/transcripts?step=1")["entries"][0]["tokens"][0], "<b>");
  const ApiResponse response = get("/api/runs");
  EXPECT_EQ(header(response, "Cache-Control"), "no-store");
  EXPECT_EQ(header(response, "X-Content-Type-Options"), "nosniff");
}

TEST_F(PageRoutesTest, Refusals) {
  EXPECT_EQ(get("/api/runs/b").status, 404);
  EXPECT_EQ(get("/api/runs/..%2Fa").status, 404);
  EXPECT_EQ(get("/api/runs/%2e%2e/metrics").status, 404);
  EXPECT_EQ(get("/assets/../index.html").status, 404);
  EXPECT_EQ(get("/api/runs/a/metrics?arm=../a").status, 404);
  for (const char* value : {"-1", "x", "1e3", "", "99999999999999999999"}) {
    const ApiResponse response = get(fmt::format("/api/runs/a/metrics?from={}", value));
    EXPECT_EQ(response.status, 400) << value;
    EXPECT_EQ(Json::parse(response.body)["error"]["param"], "from");
  }
  EXPECT_EQ(get("/", {{"host", "127.0.0.1"}}, "POST").status, 405);
}

TEST(Worker, IsBoundedAndEnds) {
  std::mutex mutex;
  std::atomic<int> done = 0;
  {
    Worker worker;
    std::unique_lock hold(mutex);
    std::size_t taken = 0;
    while (worker.post([&] {
      const std::lock_guard lock(mutex);
      ++done;
    }))
      ++taken;
    EXPECT_GE(taken, Worker::kMostWaiting);
    EXPECT_LE(taken, Worker::kMostWaiting + 1);
    hold.unlock();
  }
  EXPECT_LE(done, static_cast<int>(Worker::kMostWaiting) + 1);
}

}  // namespace
}  // namespace lockstep
