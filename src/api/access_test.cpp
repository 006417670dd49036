#include "api/access.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "api/routes.h"
#include "base/error.h"
#include "base/hash.h"

namespace lockstep {
namespace {

const std::string kKey = "sk-0123456789abcdef";

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(ApiKeysTest, OwnersAndStrangers) {
  ApiKeys keys;
  keys.add("ann", kKey);
  keys.add("bob", "another-key-of-his-own");
  EXPECT_EQ(*keys.owner_of(kKey), "ann");
  EXPECT_EQ(*keys.owner_of_authorization("Bearer another-key-of-his-own"), "bob");
  EXPECT_EQ(*keys.owner_of_authorization("bearer  " + kKey), "ann");
  for (const std::string& wrong : {std::string(), std::string("Bearer"), std::string("Bearer "), "Basic " + kKey, kKey, "Bearer " + kKey + "x",
                                   "Bearer " + kKey.substr(1), "Bearer " + kKey + " ", "Bearer " + sha256_hex(kKey), "Bearer " + std::string(100000, 'a')})
    EXPECT_EQ(keys.owner_of_authorization(wrong), nullptr) << wrong.substr(0, 80);
  EXPECT_THROW(keys.add("ann", "yet-another-long-key"), Error);
  EXPECT_THROW(keys.add("eve", kKey), Error);
  for (const std::string& bad :
       {std::string("short"), std::string("with a space in the middle"), std::string(257, 'a'), std::string("key-with-\x01-control")}) {
    const std::string message = message_of([&] { keys.add("zoe", bad); });
    EXPECT_NE(message, "accepted");
    EXPECT_EQ(message.find(bad), std::string::npos);  // never says a key
  }
  EXPECT_EQ(keys.size(), 2u);
}

TEST(ApiKeysTest, Files) {
  const auto path = std::filesystem::path(testing::TempDir()) / "lockstep-keys.txt";
  const auto read = [&](const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
    ApiKeys keys;
    return message_of([&] { keys.read_file(path); });
  };
  std::ofstream(path) << "# ours\n\nann  " << kKey << "\r\n\tbob sha256:" << sha256_hex("a-key-that-only-bob-has") << "\n";
  ApiKeys keys;
  keys.read_file(path);
  EXPECT_EQ(*keys.owner_of(kKey), "ann");
  EXPECT_EQ(*keys.owner_of("a-key-that-only-bob-has"), "bob");
  EXPECT_EQ(keys.owner_of(sha256_hex("a-key-that-only-bob-has")), nullptr);
  // A key in the wrong place is not repeated in the refusal.
  EXPECT_NE(read(kKey + "\n").find("line 1"), std::string::npos);
  EXPECT_EQ(read("\n" + kKey + "!! ann\n").find(kKey), std::string::npos);
  EXPECT_NE(read("ann sha256:12\n").find("64 hexadecimal digits"), std::string::npos);
  EXPECT_NE(read("# nobody\n").find("holds no api key"), std::string::npos);
  EXPECT_NE(read("ann " + kKey + "\nann other-key-0123456789\n"), "accepted");
  std::filesystem::remove(path);
  EXPECT_THROW(keys.read_file(path), Error);
}

TEST(ApiKeysTest, FilesSayWhatAKeyIsAllowed) {
  const auto path = std::filesystem::path(testing::TempDir()) / fmt::format("lockstep-terms-{}.txt", getpid());
  const auto refused = [&](const std::string& behind) {
    std::ofstream(path, std::ios::binary) << "ann " << kKey << " " << behind << "\n";
    ApiKeys keys;
    return message_of([&] { keys.read_file(path); });
  };
  std::ofstream(path) << "ann " << kKey << "  weight=3 streams=8\t requests_per_minute=60\r\nbob sha256:" << sha256_hex("a-key-that-only-bob-has")
                      << " tokens_per_minute=1000 class=rollouts keep_forward=false\ncid a-key-that-only-cid-has\n";
  ApiKeys keys;
  keys.read_file(path);
  EXPECT_EQ(*keys.owner_of(kKey), "ann");
  const std::map<std::string, KeyTerms> terms = keys.terms();
  EXPECT_EQ(terms.at("ann").weight, 3);
  EXPECT_EQ(terms.at("ann").streams, 8);
  EXPECT_EQ(terms.at("ann").requests_per_minute, 60);
  EXPECT_EQ(terms.at("ann").tokens_per_minute, 0);
  EXPECT_EQ(terms.at("bob").tokens_per_minute, 1000);
  EXPECT_EQ(terms.at("cid").weight, 1);
  EXPECT_NE(refused("weight=0").find("weight is '0', allowed is 1 to 1000"), std::string::npos);
  EXPECT_NE(refused("streams=2.5").find("streams is '2.5'"), std::string::npos);
  EXPECT_NE(refused("weight=2 weight=3").find("weight is given twice"), std::string::npos);
  EXPECT_EQ(terms.at("ann").work, WorkClass::live);
  EXPECT_EQ(terms.at("bob").work, WorkClass::rollouts);
  EXPECT_NE(refused("class=training").find("class is 'training', allowed are live and rollouts"), std::string::npos);
  EXPECT_NE(refused("class=live class=rollouts").find("class is given twice"), std::string::npos);
  for (const char* fine : {"class=rollouts", "class=live weight=2"}) EXPECT_EQ(refused(fine), "accepted");
  EXPECT_EQ(terms.at("ann").keep_forward, std::nullopt);
  EXPECT_EQ(terms.at("bob").keep_forward, false);
  EXPECT_EQ(refused("keep_forward=true"), "accepted");
  EXPECT_NE(refused("keep_forward=yes").find("keep_forward is 'yes', allowed are true and false"), std::string::npos);
  EXPECT_NE(refused("keep_forward=true keep_forward=true").find("keep_forward is given twice"), std::string::npos);
  // The rest of a key that holds a space.
  EXPECT_EQ(refused("rest-of-the-key").find("rest-of"), std::string::npos);
  EXPECT_NE(refused("rest-of-the-key").find("no setting, allowed are weight=N"), std::string::npos);
  std::filesystem::remove(path);
}

class KeptAnswer : public Responder {
 public:
  void send(ApiResponse response) override { response_ = std::move(response); }
  void begin_stream(std::string_view) override {}
  void stream(std::string) override {}
  void end_stream() override {}
  void on_abandoned(std::function<void()>) override {}
  ApiResponse response_;
};

class AccessTest : public testing::Test {
 protected:
  void SetUp() override {
    access_.keys = ring_ = ring_of("ann", kKey);
    const auto name = [](const ApiRequest& r, const std::shared_ptr<Responder>& out) { out->send({200, "text/plain", "key of " + r.key_name, {}}); };
    routes_.add({"GET", "/closed", name});
    routes_.add({"POST", "/closed", name});
    routes_.add({"GET", "/open", name, false});
  }
  ApiResponse call(const std::string& method, const std::string& path, HeaderList headers = {}) {
    routes_.set_access(access_);
    const auto answer = std::make_shared<KeptAnswer>();
    const ApiRequest request{.method = method, .path = path, .headers = std::move(headers)};
    const Examination early = routes_.examine(request);
    routes_.handle(request, answer);
    EXPECT_EQ(early.refusal ? early.refusal->status : 200, answer->response_.status);  // both say the same
    return answer->response_;
  }
  HeaderList always(const std::string& method, HeaderList headers) {
    routes_.set_access(access_);
    return routes_.examine({.method = method, .path = "/closed", .headers = std::move(headers)}).headers;
  }
  static std::shared_ptr<KeyRing> ring_of(const std::string& name, const std::string& key) {
    ApiKeys keys;
    keys.add(name, key);
    return std::make_shared<KeyRing>(std::move(keys));
  }
  Access access_;
  std::shared_ptr<KeyRing> ring_;
  Routes routes_;
};

TEST_F(AccessTest, Keys) {
  EXPECT_EQ(call("GET", "/open").status, 200);
  EXPECT_EQ(call("GET", "/closed", {{"authorization", "Bearer " + kKey}}).body, "key of ann");
  const ApiResponse none = call("GET", "/closed"), wrong = call("GET", "/closed", {{"authorization", "Bearer wrong-wrong-wrong-wrong"}});
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(wrong.status, 401);
  EXPECT_EQ(none.headers.at(0).first, "WWW-Authenticate");
  EXPECT_NE(none.body.find("\"code\":\"invalid_api_key\""), std::string::npos);
  EXPECT_EQ(wrong.body.find("wrong-wrong"), std::string::npos);
  access_.keys = nullptr;
  EXPECT_EQ(call("GET", "/closed").status, 200);
}

TEST_F(AccessTest, ARateIsOfOneKeyAndOfWorkAlone) {
  double now = 100;
  access_.rates = std::make_shared<RateLimits>([&] { return now; });
  access_.rates->set({{"ann", {.requests_per_minute = 2}}});
  const HeaderList ann{{"authorization", "Bearer " + kKey}};
  EXPECT_EQ(always("GET", ann).size(), 0u);
  const auto value = [](const HeaderList& headers, std::string_view name) {
    for (const auto& [key, text] : headers)
      if (key == name) return text;
    return std::string();
  };
  EXPECT_EQ(value(always("POST", ann), "x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(value(always("POST", ann), "x-ratelimit-remaining-requests"), "1");
  EXPECT_EQ(value(always("POST", ann), "x-ratelimit-reset-requests"), "30s");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(call("POST", "/closed", ann).status, 200);
  const ApiResponse refused = call("POST", "/closed", ann);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(value(refused.headers, "Retry-After"), "30");
  EXPECT_NE(
      refused.body.find("this API key has used 2 requests of this minute, allowed are 2 a minute (requests_per_minute in the key file); try again in 30 s"),
      std::string::npos);
  EXPECT_NE(refused.body.find("\"code\":\"rate_limit_exceeded\""), std::string::npos);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(call("GET", "/closed", ann).status, 200);
  now += 29;
  EXPECT_EQ(call("POST", "/closed", ann).status, 429);
  now += 1;
  EXPECT_EQ(call("POST", "/closed", ann).status, 200);
  EXPECT_EQ(call("POST", "/closed", ann).status, 429);
  access_.rates->set({{"bob", {.requests_per_minute = 2}}});
  EXPECT_EQ(call("POST", "/closed", ann).status, 200);
}

TEST_F(AccessTest, ATokenEndsWithTheKeyThatItWasExchangedFor) {
  const auto file = std::filesystem::path(testing::TempDir()) / fmt::format("lockstep-token-key-{}", getpid());
  std::filesystem::remove(file);
  const auto signer = std::make_shared<const TokenSigner>(file, 3600);
  access_.tokens = signer;
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::string token = signer->sign("ann", now, sha256_hex(kKey));
  const auto status = [&](const std::string& credential) { return call("GET", "/closed", {{"x-api-key", credential}}).status; };
  EXPECT_EQ(status(token), 200);
  EXPECT_EQ(status(kKey), 200);
  EXPECT_EQ(status(signer->sign("ann", now)), 401);                    // names no key
  EXPECT_EQ(status(signer->sign("bob", now, sha256_hex(kKey))), 401);  // there is no bob
  EXPECT_EQ(token.find(sha256_hex(kKey).substr(0, 16)), std::string::npos);
  // The file is read anew, with another key of ann's: no restart, no hour.
  ApiKeys replaced;
  replaced.add("ann", "sk-another-key-of-ann");
  ring_->replace(std::move(replaced));
  EXPECT_EQ(status(token), 401);
  EXPECT_EQ(status(kKey), 401);
  EXPECT_EQ(status("sk-another-key-of-ann"), 200);
  const std::string next = signer->sign("ann", now, sha256_hex("sk-another-key-of-ann"));
  EXPECT_EQ(status(next), 200);
  ApiKeys others;
  others.add("bob", "sk-another-key-of-ann");  // the same key, another owner
  ring_->replace(std::move(others));
  EXPECT_EQ(status(next), 401);
  std::filesystem::remove(file);
}

TEST_F(AccessTest, HostsAndOriginsOfALoopbackServer) {
  access_.keys = nullptr;
  access_.loopback = true;
  for (const char* host : {"localhost", "LOCALHOST:8080", "127.0.0.1:80", "127.1.2.3", "[::1]:8080", "[::1]"})
    EXPECT_EQ(call("GET", "/closed", {{"host", host}}).status, 200) << host;
  for (const char* host : {"evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "[::2]", "10.0.0.1"})
    EXPECT_EQ(call("GET", "/closed", {{"host", host}}).status, 421) << host;
  EXPECT_EQ(call("POST", "/closed", {{"host", "localhost:1"}, {"origin", "http://localhost:1"}}).status, 200);
  for (const char* origin : {"http://evil.example", "http://localhost:2", "null", "http://localhost"})
    EXPECT_EQ(call("POST", "/closed", {{"host", "localhost:1"}, {"origin", origin}}).status, 403) << origin;
  access_.hosts = {"box.lan"};
  EXPECT_EQ(call("GET", "/closed", {{"host", "Box.lan:99"}}).status, 200);
  access_.loopback = false;
  EXPECT_EQ(call("GET", "/closed", {{"host", "evil.example"}}).status, 421);
  access_.hosts = {};
  EXPECT_EQ(call("GET", "/closed", {{"host", "any.example"}, {"origin", "http://other"}}).status, 200);  // its answer cannot be read there
}

TEST_F(AccessTest, OriginsThatMayAsk) {
  access_.cors_origins = {"https://a.example"};
  EXPECT_EQ(always("GET", {{"origin", "https://b.example"}}), (HeaderList{{"Vary", "Origin"}}));
  const HeaderList allowed = always("GET", {{"origin", "https://a.example"}});
  EXPECT_EQ(allowed.at(1), (std::pair<std::string, std::string>{"Access-Control-Allow-Origin", "https://a.example"}));
  // Asked without a key, as browsers do.
  routes_.set_access(access_);
  const auto answer = std::make_shared<KeptAnswer>();
  routes_.handle({.method = "OPTIONS",
                  .path = "/closed",
                  .headers = {{"origin", "https://a.example"},
                              {"access-control-request-method", "POST"},
                              {"access-control-request-headers", "authorization, x-stainless-os"}}},
                 answer);
  EXPECT_EQ(answer->response_.status, 204);
  const auto value = [&](const ApiResponse& response, const std::string& name) {
    for (const auto& [key, text] : response.headers)
      if (key == name) return text;
    return std::string();
  };
  EXPECT_EQ(value(answer->response_, "Access-Control-Allow-Headers"), "authorization, x-stainless-os");
  EXPECT_EQ(value(answer->response_, "Access-Control-Allow-Methods"), "GET, HEAD, POST");
  EXPECT_THROW(({
                 Access bad;
                 bad.cors_origins = {"example.com"};
                 bad.check();
               }),
               Error);
  EXPECT_THROW(({
                 Access bad;
                 bad.cors_origins = {"https://example.com/"};
                 bad.check();
               }),
               Error);
  EXPECT_THROW(({
                 Access bad;
                 bad.hosts = {"example.com:80"};
                 bad.check();
               }),
               Error);
  access_.cors_origins = {"*"};
  EXPECT_EQ(always("GET", {{"origin", "https://b.example"}}).at(0), (std::pair<std::string, std::string>{"Access-Control-Allow-Origin", "*"}));
}

}  // namespace
}  // namespace lockstep
