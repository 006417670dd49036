#include "api/routes.h"

#include <gtest/gtest.h>

#include "api/errors.h"
#include "api/percent.h"

namespace lockstep {
namespace {

// Keeps the one answer it is given.
class Answer : public Responder {
 public:
  void send(ApiResponse response) override {
    EXPECT_FALSE(sent_);
    sent_ = true;
    response_ = std::move(response);
  }
  void begin_stream(std::string_view) override { ADD_FAILURE(); }
  void stream(std::string) override { ADD_FAILURE(); }
  void end_stream() override { ADD_FAILURE(); }
  void on_abandoned(std::function<void()>) override {}
  ApiResponse response_;
  bool sent_ = false;
};

class RoutesTest : public testing::Test {
 protected:
  void SetUp() override {
    row("GET", "/v1/models");
    row("GET", "/v1/models/{model}");
    row("DELETE", "/v1/models/{model}");
    row("GET", "/v1/models/all");
    row("POST", "/v1/completions");
    row("GET", "/files/{folder}/{path...}");
  }
  void row(const std::string& method, const std::string& path) {
    routes_.add({method, path,
                 [path](const ApiRequest& request, const std::shared_ptr<Responder>& out) {
                   if (request.query == "throw") fail(ErrorCode::not_found, "it is not there");
                   std::string text = path;
                   for (const auto& [name, value] : request.parameters) text += " " + name + "=" + value;
                   out->send({200, "text/plain", text, {}});
                 },
                 true, false, std::nullopt});
  }
  ApiResponse call(const std::string& method, const std::string& path, const std::string& query = "") {
    const auto answer = std::make_shared<Answer>();
    routes_.handle({method, path, query}, answer);
    EXPECT_TRUE(answer->sent_);
    return answer->response_;
  }
  Routes routes_;
};

TEST_F(RoutesTest, FindsRowsAndParameters) {
  EXPECT_EQ(call("GET", "/v1/models").body, "/v1/models");
  EXPECT_EQ(call("HEAD", "/v1/models").body, "/v1/models");
  EXPECT_EQ(call("GET", "/v1/models/glm").body, "/v1/models/{model} model=glm");
  EXPECT_EQ(call("GET", "/v1/models/z%2Fglm%20%C3%A9").body, "/v1/models/{model} model=z/glm \xC3\xA9");
  EXPECT_EQ(call("GET", "/v1/models/all").body, "/v1/models/all");
  EXPECT_EQ(call("GET", "/files/a/b/c//d").body, "/files/{folder}/{path...} folder=a path=b/c//d");
  EXPECT_EQ(call("GET", "/files/a/").body, "/files/{folder}/{path...} folder=a path=");
  for (const char* path : {"", "v1/models", "/", "/v1/models/", "/v1/models/a/b", "/v1", "/V1/models", "/files/a", "//v1/models", "/files//b", "*"})
    EXPECT_EQ(call("GET", path).status, 404) << path;
  for (const char* path : {"/v1/models/%", "/v1/models/%4", "/v1/models/%zz", "/v1/models/%00", "/v1/models/%ff", "/v1/models/%ed%a0%80"})
    EXPECT_EQ(call("GET", path).status, 400) << path;
}

TEST_F(RoutesTest, OtherMethodsAndMissingPaths) {
  EXPECT_NE(call("GET", "/v1/model").body.find("did you mean '/v1/models'?"), std::string::npos);
  const ApiResponse wrong = call("PUT", "/v1/models/x");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers, (HeaderList{{"Allow", "GET, HEAD, DELETE"}}));
  EXPECT_EQ(call("DELETE", "/v1/completions").headers, (HeaderList{{"Allow", "POST"}}));
  EXPECT_EQ(call("DELETE", "/v1/models/all").status, 405);  // a path of its own hides the parameter
  const ApiResponse options = call("OPTIONS", "/v1/completions");
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.headers, (HeaderList{{"Allow", "POST"}}));
  EXPECT_EQ(call("get", "/v1/models").status, 405);
  // A client's text in our words is cut, and is JSON.
  EXPECT_LT(call("GET", "/" + std::string(10000, '\xff')).body.size(), 2000u);
}

TEST_F(RoutesTest, WhatAHandlerThrowsIsTheAnswer) {
  const ApiResponse response = call("GET", "/v1/models", "throw");
  EXPECT_EQ(response.status, 404);
  EXPECT_NE(response.body.find("it is not there"), std::string::npos);
}

TEST_F(RoutesTest, EarlyRefusalsAndNames) {
  EXPECT_FALSE(routes_.examine({"POST", "/v1/completions"}).refusal);
  EXPECT_EQ(routes_.examine({"POST", "/v1/complete"}).refusal->status, 404);
  EXPECT_EQ(routes_.examine({"GET", "/v1/models/secret"}).route, "/v1/models/{model}");
  EXPECT_EQ(routes_.examine({"GET", "/v1/secret"}).route, "other");
}

TEST_F(RoutesTest, RowsThatCannotBe) {
  EXPECT_THROW(row("GET", "/v1/models"), Error);
  EXPECT_THROW(row("GET", "models"), Error);
  EXPECT_THROW(row("GET", "/{all...}/more"), Error);
}

// What nobody reads would be without effect.
TEST_F(RoutesTest, AQueryThatTheHandlerDoesNotReadIsRefused) {
  const auto say = [](const ApiRequest&, const std::shared_ptr<Responder>& out) { out->send({200, "text/plain", "yes", {}}); };
  routes_.add({.method = "GET", .path = "/pages", .handler = say, .query = std::vector<std::string>{"limit", "after"}});
  routes_.add({"GET", "/none", say});
  for (const char* fine : {"", "limit=1", "after=x&limit=", "&limit=1&", "%6cimit=1"}) EXPECT_EQ(call("GET", "/pages", fine).status, 200) << fine;
  EXPECT_EQ(call("HEAD", "/none").status, 200);
  const auto refused = [&](const char* path, const char* query, const char* message) {
    const ApiResponse response = call("GET", path, query);
    EXPECT_EQ(response.status, 400) << query;
    EXPECT_NE(response.body.find(message), std::string::npos) << response.body;
  };
  refused("/pages", "limt=1", "unknown query parameter 'limt'; did you mean 'limit'?; allowed are limit, after");
  refused("/pages", "limit=1&Limit=2", "unknown query parameter 'Limit'");
  refused("/pages", "limit%5b%5d=1", "unknown query parameter 'limit[]'");
  refused("/pages", "%ff=1", "unknown query parameter");
  refused("/none", "limit", "unknown query parameter 'limit'; allowed is none");
}

TEST(ApiRequestTest, QueryValues) {
  const ApiRequest request{"GET", "/", "a=1&b=x+y%20z&empty&a=2&bad=%ff&%6eame=%C3%A9"};
  EXPECT_EQ(request.query_value("a"), "1");
  EXPECT_EQ(request.query_value("b"), "x y z");
  EXPECT_EQ(request.query_value("empty"), "");
  EXPECT_EQ(request.query_value("name"), "\xC3\xA9");
  EXPECT_EQ(request.query_value("none"), std::nullopt);
  EXPECT_THROW(request.query_value("bad"), RequestError);
  const ApiRequest other{.headers = {{"x-a", "1"}, {"x-a", "2"}}, .parameters = {{"p", "v"}}};
  EXPECT_EQ(other.header("x-a"), "1");
  EXPECT_EQ(other.header("none"), "");
  EXPECT_EQ(other.parameter("p"), "v");
}

TEST(Percent, Utf8AtItsEdges) {
  for (const std::string_view good :
       {"", "a", "\x7f", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    EXPECT_TRUE(is_utf8(good)) << good;
  for (const std::string_view bad : {"\x80", "\xC1\xBF", "\xC2", "\xC2\x41", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF",
                                     "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE2\x82"})
    EXPECT_FALSE(is_utf8(bad)) << bad;
}

}  // namespace
}  // namespace lockstep
