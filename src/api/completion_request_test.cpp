#include <gtest/gtest.h>

#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <array>

#include "api/errors.h"
#include "api/json_fields.h"
#include "api/openai/answer.h"
#include "api/openai/completion_request.h"

namespace lockstep {
namespace {

// "param|message" of a refusal.
std::string completion_refusal(const std::string& body) {
  try {
    decode_completion(body);
  } catch (const RequestError& e) {
    return e.param() + "|" + e.what();
  }
  return "accepted";
}
std::string completion_with(const std::string& fields) { return R"({"model":"m","prompt":"a",)" + fields + "}"; }

TEST(CompletionRequest, Defaults) {
  const CompletionRequest r = decode_completion(R"({"model": "m", "prompt": "1+1="})");
  EXPECT_EQ(r.sampling.model, "m");
  ASSERT_EQ(r.prompts.size(), 1u);
  EXPECT_EQ(r.prompts[0].text, "1+1=");
  EXPECT_FALSE(r.sampling.max_tokens);
  EXPECT_EQ(r.sampling.n, 1);
  EXPECT_EQ(r.sampling.temperature, 1);
  EXPECT_FALSE(r.sampling.seed);
  EXPECT_FALSE(r.logprobs);
  EXPECT_FALSE(r.sampling.stream);
}

TEST(CompletionRequest, Prompts) {
  const auto prompts = [](const std::string& value) { return decode_completion(R"({"model":"m","prompt":)" + value + "}").prompts; };
  EXPECT_EQ(prompts("[1,2,3]").at(0).ids, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(prompts(R"(["a","b"])").at(1).text, "b");
  EXPECT_EQ(prompts("[[1],[2,3]]").at(1).ids, (std::vector<std::int32_t>{2, 3}));
  EXPECT_EQ(prompts(R"(["a",[7]])").at(1).field, "prompt[1]");
}

TEST(CompletionRequest, EveryField) {
  const CompletionRequest r = decode_completion(
      completion_with(R"("max_tokens":9,"temperature":0.5,"top_p":0.9,"top_k":-1,"min_p":0.1,"n":3,"seed":-1,"stop":["x","yz"],"stop_token_ids":[5],)"
                      R"("logprobs":1,"stream":true,"stream_options":{"include_usage":true},"user":"u","metadata":{"a":1},"echo":true,"best_of":1,)"
                      R"("suffix":null,"presence_penalty":0.5,"frequency_penalty":-1,"repetition_penalty":1.5,"logit_bias":{"7":-100,"8":1.5},)"
                      R"("ignore_eos":true,"skip_special_tokens":false,"return_token_ids":true,"min_tokens":2,"response_format":{"type":"json_object"})"));
  const SamplingFields& s = r.sampling;
  EXPECT_EQ(s.max_tokens, 9);
  EXPECT_EQ(s.min_tokens, 2);
  EXPECT_EQ(s.temperature, 0.5f);
  EXPECT_EQ(s.min_p, 0.1f);
  EXPECT_EQ(s.top_k, 0);
  EXPECT_EQ(s.n, 3);
  EXPECT_EQ(s.seed, ~std::uint64_t{0});
  EXPECT_EQ(s.stop, (std::vector<std::string>{"x", "yz"}));
  EXPECT_EQ(s.stop_token_ids, (std::vector<std::int32_t>{5}));
  EXPECT_EQ(s.presence_penalty, 0.5f);
  EXPECT_EQ(s.frequency_penalty, -1.0f);
  EXPECT_EQ(s.repetition_penalty, 1.5f);
  ASSERT_EQ(s.logit_bias.size(), 2u);
  EXPECT_EQ(s.logit_bias[1].token, 8);
  EXPECT_EQ(s.logit_bias[1].bias, 1.5f);
  EXPECT_EQ(s.response_format.kind, ResponseFormat::Kind::json_object);
  EXPECT_TRUE(s.stream && s.include_usage && s.ignore_eos && !s.skip_special_tokens && s.return_token_ids == true);
  EXPECT_EQ(r.logprobs, 1);
  EXPECT_TRUE(r.echo);
  EXPECT_EQ(decode_completion(R"({"model":"m","prompt":"","prompt_token_ids":[3,4]})").prompts.at(0).ids, (std::vector<std::int32_t>{3, 4}));
}

TEST(CompletionRequest, RefusalsNameTheField) {
  EXPECT_EQ(completion_refusal("{"), "|the body is not JSON: fault at byte 2 of 1");
  EXPECT_EQ(completion_refusal("[1]"), "|the body is an array of 1, allowed is a JSON object");
  EXPECT_TRUE(decode_completion(R"({"prompt":"a"})").sampling.model.empty());  // the server's own
  EXPECT_EQ(completion_refusal(R"({"model":"m"})"), "prompt|prompt is missing");
  EXPECT_EQ(completion_refusal(R"({"model":7,"prompt":"a"})"), "model|model is 7, allowed is a string");
  EXPECT_EQ(completion_refusal(completion_with(R"("max_token":5)")), "max_token|unknown field 'max_token'; did you mean 'max_tokens'?");
  EXPECT_EQ(completion_refusal(completion_with(R"("max_tokens":"5")")), "max_tokens|max_tokens is \"5\", allowed is an integer from 0 to 2147483647");
  EXPECT_EQ(completion_refusal(completion_with(R"("max_tokens":1.5)")), "max_tokens|max_tokens is 1.5, allowed is an integer from 0 to 2147483647");
  EXPECT_EQ(completion_refusal(completion_with(R"("max_tokens":18446744073709551615)")),
            "max_tokens|max_tokens is 18446744073709551615, allowed is an integer from 0 to 2147483647");
  EXPECT_EQ(completion_refusal(completion_with(R"("stream":1)")), "stream|stream is 1, allowed are true and false");
  EXPECT_EQ(completion_refusal(completion_with(R"("n":0)")), "n|n is 0, allowed is an integer from 1 to 256");
  EXPECT_EQ(completion_refusal(completion_with(R"("stop":[1])")), "stop[0]|stop[0] is 1, allowed is a string");
  EXPECT_EQ(completion_refusal(completion_with(R"("stop":"")")), "stop|stop has a string of 0 bytes, allowed is 1 to 1000");
  EXPECT_EQ(completion_refusal(completion_with(R"("seed":1.5)")), "seed|seed is 1.5, allowed is an integer of 64 bits");
  EXPECT_EQ(completion_refusal(completion_with(R"("logprobs":21)")), "logprobs|logprobs is 21, allowed is an integer from 0 to 20");
  EXPECT_EQ(completion_refusal(completion_with(R"("logit_bias":{"a":1})")), "logit_bias|logit_bias has the key \"a\", allowed are token ids");
  EXPECT_EQ(completion_refusal(completion_with(R"("logit_bias":{"1":1,"01":2})")), "logit_bias|logit_bias names token 1 twice");
  EXPECT_EQ(completion_refusal(completion_with(R"("logit_bias":{"1":101})")), "logit_bias.1|logit_bias.1 is 101, allowed is a number from -100 to 100");
  EXPECT_EQ(completion_refusal(completion_with(R"("min_tokens":6,"max_tokens":5)")), "min_tokens|min_tokens is 6, allowed is at most 5, which is max_tokens");
  EXPECT_EQ(completion_refusal(completion_with(R"("response_format":{"type":"json"})")).substr(0, 21), "response_format.type|");
  EXPECT_EQ(completion_refusal(completion_with(R"("response_format":{"type":"json_schema"})")),
            "response_format.json_schema|response_format.json_schema is missing");
  EXPECT_EQ(completion_refusal(completion_with(R"("response_format":{"type":"json_schema","json_schema":{"name":"a"}})")),
            "response_format.json_schema.schema|response_format.json_schema.schema is missing");
  EXPECT_EQ(completion_refusal(completion_with(R"("prompt_token_ids":[1])")),
            "prompt_token_ids|prompt_token_ids is given beside prompt, allowed is one of them");
  EXPECT_EQ(completion_refusal(completion_with(R"("best_of":4)")).substr(0, 8), "best_of|");
  EXPECT_EQ(decode_completion(completion_with(R"("best_of":4,"n":4)")).sampling.n, 4);
  EXPECT_EQ(completion_refusal(completion_with(R"("stream_options":{"include_usage":true})")).substr(0, 15), "stream_options|");
  EXPECT_EQ(completion_refusal(completion_with(R"("stream":true,"stream_options":{"usage":true})")),
            "stream_options.usage|unknown field 'stream_options.usage'");
  EXPECT_EQ(completion_refusal(R"({"model":"m","prompt":[]})").substr(0, 7), "prompt|");
  EXPECT_EQ(completion_refusal(R"({"model":"m","prompt":[1,"a"]})"), "prompt[1]|prompt[1] is \"a\", allowed is an integer from 0 to 2147483647");
  EXPECT_EQ(completion_refusal(R"({"model":"m","prompt":["a",7]})"), "prompt[1]|prompt[1] is 7, allowed is a string or an array of token ids");
  EXPECT_EQ(completion_refusal(R"({"model":"m","prompt":["a",[]]})").substr(0, 10), "prompt[1]|");
  EXPECT_EQ(completion_refusal(R"({"model":"m","prompt":["a","b"],"n":200})").substr(0, 2), "n|");
}

TEST(CompletionRequest, OddValuesOfSampling) {
  const std::string temperature = ", allowed is 0 or a number from 1e-06 to 100", top_p = ", allowed is a number above 0 and at most 1";
  const std::string id = ", allowed is an integer from 0 to 2147483647", seed = ", allowed is an integer of 64 bits";
  // Field, value, the field that the error names where it is another, the value as the error shows it where it is another, what is allowed.
  const std::vector<std::array<std::string, 5>> table{
      {"temperature", "-1", "", "", temperature},
      {"temperature", "true", "", "", temperature},
      {"temperature", "1e-45", "", "", temperature},
      {"temperature", "1e-60", "", "", temperature},
      {"temperature", "-1e-60", "", "", temperature},
      {"temperature", "100.01", "", "", temperature},
      {"top_p", "0", "", "", top_p},
      {"top_p", "-0.5", "", "", top_p},
      {"top_p", "1.0000001", "", "", top_p},
      {"top_p", "\"1\"", "", "", top_p},
      {"top_k", "-2", "", "", ", allowed is an integer from -1 to 2147483647"},
      {"top_k", "4294967297", "", "", ", allowed is an integer from -1 to 2147483647"},
      {"max_tokens", "-1", "", "", id},
      {"max_tokens", "4294967297", "", "", id},
      {"n", "0", "", "", ", allowed is an integer from 1 to 256"},
      {"n", "-1", "", "", ", allowed is an integer from 1 to 256"},
      {"n", "4294967297", "", "", ", allowed is an integer from 1 to 256"},
      {"seed", "18446744073709551616", "", "1.8446744073709552e+19", seed},
      {"seed", "-9223372036854775809", "", "-9.223372036854776e+18", seed},
      {"seed", "1e300", "", "1e+300", seed},
      {"stop_token_ids", "[1,4294967297]", "stop_token_ids[1]", "4294967297", id},
      {"stop_token_ids", "[-1]", "stop_token_ids[0]", "-1", id},
      {"stop_token_ids", "[18446744073709551615]", "stop_token_ids[0]", "18446744073709551615", id},
      {"stop_token_ids", "[1e20]", "stop_token_ids[0]", "1e+20", id},
  };
  for (const auto& [field, value, named, told, allowed] : table) {
    const std::string& name = named.empty() ? field : named;
    EXPECT_EQ(completion_refusal(completion_with("\"" + field + "\":" + value)), name + "|" + name + " is " + (told.empty() ? value : told) + allowed);
  }
  EXPECT_NE(completion_refusal(completion_with(R"("temperature":NaN)")), "accepted");
  // The ends of what is allowed, which must not be taken for others.
  EXPECT_EQ(decode_completion(completion_with(R"("temperature":0.000001)")).sampling.temperature, 1e-6f);
  EXPECT_EQ(decode_completion(completion_with(R"("temperature":-0.0)")).sampling.temperature, 0);
  EXPECT_GT(decode_completion(completion_with(R"("top_p":1e-60)")).sampling.top_p, 0);
  EXPECT_EQ(decode_completion(completion_with(R"("top_k":2147483647)")).sampling.top_k, 2147483647);
  EXPECT_EQ(decode_completion(completion_with(R"("seed":18446744073709551615)")).sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(decode_completion(completion_with(R"("seed":-9223372036854775808)")).sampling.seed, std::uint64_t{1} << 63);
}

TEST(CompletionRequest, HostileBodies) {
  EXPECT_EQ(completion_refusal(std::string(3'000'000, '[')), "|the body nests deeper than 64 levels");
  const auto nested = [](int levels) { return R"({"model":"m","prompt":)" + std::string(levels, '[') + std::string(levels, ']') + "}"; };
  EXPECT_EQ(completion_refusal(nested(500'000)), "|the body nests deeper than 64 levels");
  EXPECT_EQ(completion_refusal(nested(20)).substr(0, 7), "prompt[");
  std::string keys = R"({"model":"m","prompt":"a","metadata":{)";
  for (int i = 0; i < 20'000; ++i) keys += fmt::format("\"{}\":1,", i);
  EXPECT_EQ(completion_refusal(keys + "\"a\":1}}"), "|the body has too many keys, allowed are 4000 in one object");
  EXPECT_EQ(completion_refusal(R"({"model":"m","prompt":"a","temperature":1e999})"), "|the body has a number that no double holds, in temperature");
  EXPECT_NE(completion_refusal("{\"model\":\"m\",\"prompt\":\"\xff\"}"), "accepted");
  EXPECT_NE(completion_refusal(R"({"model":"m","prompt":"\ud800"})"), "accepted");
  EXPECT_NE(completion_refusal(std::string("{\"model\":\"m\0\"}", 14)), "accepted");
}

// Whether an answer is long, and so written by another thread than the engine's: a kept set may have a hundred thousand ids.
TEST(AnswerToken, ItsKeptSetIsWrittenToo) {
  AnswerToken token;
  EXPECT_EQ(token.written(), 1u);
  token.top.resize(5);
  std::vector<std::int32_t> ids(3000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
  token.kept = KeptTokens::of(KeptTokens::Order::by_id, ids, 4096);  // a bitmap: fewer words than ids
  EXPECT_EQ(token.written(), 3006u);
}

TEST(Errors, OneShapeForAll) {
  const auto body = [](const std::exception& e) { return Json::parse(error_body(e)).at("error"); };
  const Json field = body(RequestError(ErrorCode::invalid_argument, "n", "n is 0"));
  EXPECT_EQ(field.at("message"), "n is 0");
  EXPECT_EQ(field.at("type"), "invalid_request_error");
  EXPECT_EQ(field.at("param"), "n");
  EXPECT_EQ(field.at("code"), "invalid_argument");
  EXPECT_EQ(body(RequestError(ErrorCode::unsupported, "echo", "no")).at("code"), "unsupported");
  EXPECT_EQ(error_response(Error(ErrorCode::resource_exhausted, "full")).status, 429);
  EXPECT_EQ(body(Error(ErrorCode::resource_exhausted, "full")).at("code"), "rate_limit_exceeded");
  EXPECT_EQ(error_response(RequestError(ErrorCode::not_found, "model", "none", 0, "model_not_found")).status, 404);
  // What we did not foresee is for the log, not for the client.
  EXPECT_EQ(body(std::runtime_error("secret path")).at("message").get<std::string>().find("secret"), std::string::npos);
  EXPECT_EQ(body(Error(ErrorCode::invalid_argument, "bytes \xff here")).at("message").get<std::string>().substr(0, 5), "bytes");
}

RC_GTEST_PROP(CompletionRequest, AnyBytesAreRefusedOrAccepted, (const std::string& bytes)) { completion_refusal(bytes); }

RC_GTEST_PROP(CompletionRequest, MutatedBodiesAreRefusedOrAccepted, ()) {
  std::string body = completion_with(R"("max_tokens":5,"stop":["x"],"n":2,"seed":4,"logprobs":0,"stream":false)");
  const auto edits = *rc::gen::inRange(1, 6);
  for (int i = 0; i < edits; ++i) body[*rc::gen::inRange<std::size_t>(0, body.size())] = *rc::gen::arbitrary<char>();
  completion_refusal(body);
}

}  // namespace
}  // namespace lockstep
