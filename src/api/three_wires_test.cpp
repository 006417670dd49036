// One request over three wires: the same tokens, the same text and the same reason for its end, whatever stop strings cut; it is charged alike, and ends
// when its client leaves; errors call a field by its wire's name.
#include <gtest/gtest.h>

#include "api/api_test_tools.h"
#include "api/fireworks/fireworks_routes.h"
#include "api/openai/openai_api.h"
#include "api/tinker/tinker_routes.h"
#include "host/training_test_tools.h"

namespace lockstep {
namespace {

// 64 tokens that cut characters in two: "aA" and so on, 20 of a letter and the first byte of "é", 20 of its second byte and a letter.
std::shared_ptr<const Tokenizer> cutting_tokenizer() {
  Json vocabulary = Json::object();
  std::int32_t id = 0;
  const std::string letters = "abcdefghijklmnopqrstuvwx";
  for (const char c : letters) vocabulary[std::string{c, static_cast<char>(c - 'a' + 'A')}] = id++;
  for (const char c : letters.substr(0, 20)) vocabulary[std::string{c} + "\xc3\x83"] = id++;  // byte C3, as byte-level vocabularies write it
  for (const char c : letters.substr(0, 20)) vocabulary["\xc2\xa9" + std::string{c}] = id++;  // byte A9
  const Json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  return std::make_shared<const Tokenizer>(Tokenizer::from_json(Json{{"version", "1.0"},
                                                                     {"added_tokens", Json::array()},
                                                                     {"pre_tokenizer", bytes},
                                                                     {"decoder", bytes},
                                                                     {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}}
                                                                    .dump()));
}

struct Told {
  std::vector<std::int32_t> tokens;
  std::string text, finish;
};

class ThreeWires : public testing::Test {
 protected:
  ThreeWires() : tokenizer_(cutting_tokenizer()) {
    bench_.service.reset();
    bench_.generation =
        std::make_shared<GenerationService>(ServingModel{"tiny", bench_.base->opened.runtime, bench_.base->weights, tokenizer_, bench_.base->executor},
                                            ServingOptions{.count_tokens = [this](const std::string& key, std::int64_t tokens) {
                                              const std::lock_guard lock(mutex_);
                                              counted_[key] += tokens;
                                            }});
    bench_.base->opened.tokenizer = tokenizer_;
    bench_.service = std::make_shared<TrainingService>(bench_.base, bench_.generation, TrainingServiceOptions{.state = bench_.folder});
    add_openai_routes(routes_, bench_.generation);
    add_tinker_routes(routes_, bench_.service);
    add_fireworks_routes(routes_, bench_.service, ShapeCatalog::published());
    sampler_ = bench_.service->samplers().create("me", bench_.session(), 0, "tiny", "");
    ApiKeys keys;
    keys.add("me", kKey);
    bench_.base->executor->set_keys({{"me", 1}});
    Access access;
    access.keys = std::make_shared<const KeyRing>(std::move(keys));
    routes_.set_access(std::move(access));
  }
  static constexpr const char* kKey = "key-of-me-0123456789";
  template <class R = Recorder>
  std::shared_ptr<R> ask(const std::string& path, const Json& body) {
    ApiRequest request{"POST", path, "", "application/json", body.dump()};
    request.headers.emplace_back("authorization", std::string("Bearer ") + kKey);
    const auto recorder = std::make_shared<R>();
    routes_.handle(std::move(request), recorder);
    return recorder;
  }
  Json body(const Json& more) {
    Json out{{"model", "tiny"}, {"prompt", {1, 2, 3}}, {"max_tokens", 40}, {"seed", 5}, {"return_token_ids", true}};
    out.update(more);
    return out;
  }
  static Told told(const Json& answer) {
    const Json& choice = answer.at("choices").at(0);
    return {choice.at("token_ids"), choice.at("text"), choice.at("finish_reason")};
  }
  Told openai(const Json& more) { return told(ask("/v1/completions", body(more))->json()); }
  Told fireworks(const Json& more) { return told(ask("/inference/v1/completions", body(more))->json()); }
  Told streamed(const std::string& path, Json more, std::size_t* parts = nullptr) {
    more["stream"] = true;
    Told out;
    const std::vector<Json> events = stream_parts(ask(path, body(more))->wait().body);
    if (parts != nullptr) *parts = events.size();
    for (const Json& event : events) {
      if (event.at("choices").empty()) continue;
      const Json& choice = event.at("choices").at(0);
      for (const Json& id : choice.at("token_ids")) out.tokens.push_back(id);
      out.text += choice.at("text").get<std::string>();
      if (choice.at("finish_reason").is_string()) out.finish = choice.at("finish_reason");
    }
    return out;
  }
  SamplingRequest sample_of() {
    SamplingRequest wanted;
    wanted.prompt = {1, 2, 3};
    wanted.max_tokens = 40;
    wanted.seed = 5;
    return wanted;
  }
  Outcome sample(const SamplingRequest& wanted, std::vector<SampledSequence>* out = nullptr) {
    return bench_.result(bench_.service->sampling().sample("me", sampler_, number_++, wanted, [&](const SamplingResult& r) {
      if (out != nullptr) *out = r.sequences;
      return Outcome{"text/plain", "done", {}, {}};
    }));
  }
  std::string bytes_of(const std::vector<std::int32_t>& ids) {
    std::string out;
    for (const std::int32_t id : ids) out += tokenizer_->token_bytes(id);
    return out;
  }
  void expect_the_same(const std::vector<std::string>& stops, const std::string& text, std::size_t tokens) {
    const Told whole = openai({{"stop", stops}});
    EXPECT_EQ(whole.text, text);
    EXPECT_EQ(whole.tokens.size(), tokens);
    EXPECT_EQ(whole.finish, "stop");
    for (const Told& other :
         {fireworks({{"stop", stops}}), streamed("/v1/completions", {{"stop", stops}}), streamed("/inference/v1/completions", {{"stop", stops}})}) {
      EXPECT_EQ(other.text, whole.text);
      EXPECT_EQ(other.tokens, whole.tokens);
      EXPECT_EQ(other.finish, whole.finish);
    }
    SamplingRequest wanted = sample_of();
    wanted.stop_texts = stops;
    std::vector<SampledSequence> sequences;
    EXPECT_EQ(sample(wanted, &sequences).bytes, "done");
    ASSERT_EQ(sequences.size(), 1u);
    EXPECT_EQ(sequences[0].tokens, whole.tokens);
    EXPECT_TRUE(sequences[0].stopped);
  }
  // Tokens that were counted since the last call.
  std::map<std::string, std::int64_t> counted() {
    bench_.generation->counters();  // behind all that ended
    const std::lock_guard lock(mutex_);
    return std::exchange(counted_, {});
  }
  bool has_seconds(const std::string& work) {
    PrometheusText text;
    bench_.base->executor->append_metrics(text);
    return text.take().find("lockstep_device_seconds_total{class=\"" + work + "\",key=\"me\"}") != std::string::npos;
  }
  std::string fault(const std::string& path, const Json& more) {
    const Json error = ask(path, body(more))->json().at("error");
    return error.value("param", Json()).dump() + " " + error.at("message").get<std::string>();
  }

  TrainingBench bench_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  Routes routes_;
  std::string sampler_;
  std::int64_t number_ = 0;
  std::mutex mutex_;
  std::map<std::string, std::int64_t> counted_;
};

// Leaves as soon as it is told something.
struct Leaver : Recorder {
  void stream(std::string data) override {
    Recorder::stream(std::move(data));
    abandon();
  }
};

TEST_F(ThreeWires, StopStringsCutAlike) {
  const Told free = openai(Json::object());
  ASSERT_EQ(free.tokens.size(), 40u);
  EXPECT_EQ(free.finish, "length");
  EXPECT_EQ(fireworks(Json::object()).tokens, free.tokens);
  EXPECT_EQ(fireworks(Json::object()).text, free.text);
  // A whole "é" behind the fifth token, which two tokens make: the first ends with a letter and half of it.
  std::size_t second = 0;
  for (std::size_t i = 6; i < free.tokens.size() && second == 0; ++i)
    if (free.tokens[i] >= 44 && free.tokens[i - 1] >= 24 && free.tokens[i - 1] < 44) second = i;
  ASSERT_GT(second, 0u);
  const std::string middle = bytes_of({free.tokens[second - 1], free.tokens[second]});  // "bé" and a letter
  ASSERT_EQ(middle.size(), 4u);
  const std::size_t at = free.text.find(middle);
  ASSERT_NE(at, std::string::npos);
  ASSERT_EQ(bytes_of(std::vector<std::int32_t>(free.tokens.begin(), free.tokens.begin() + static_cast<std::ptrdiff_t>(second) + 1)).find(middle),
            bytes_of(std::vector<std::int32_t>(free.tokens.begin(), free.tokens.begin() + static_cast<std::ptrdiff_t>(second) + 1)).size() - 4);
  expect_the_same({middle}, free.text.substr(0, at), second + 1);
  // The character alone, and what follows it: the text ends before its first byte.
  expect_the_same({middle.substr(1)}, free.text.substr(0, at + 1), second + 1);
  // One is the other's beginning: the shorter is whole first. One is the other's end: both end together, and the longer counts.
  expect_the_same({middle, middle.substr(0, 3), "zz"}, free.text.substr(0, at), second + 1);
  expect_the_same({middle.substr(1), middle}, free.text.substr(0, at), second + 1);
}

TEST_F(ThreeWires, FireworksStreamsAsTheTokensCome) {
  std::size_t parts = 0;
  const Json more{{"logprobs", true}, {"raw_output", true}, {"perf_metrics_in_response", true}};
  const Told all = streamed("/inference/v1/completions", more, &parts);
  EXPECT_GT(parts, 5u);
  EXPECT_EQ(all.tokens, openai(Json::object()).tokens);
  Json asked = body(more);
  asked["stream"] = true;
  const std::vector<Json> events = stream_parts(ask("/inference/v1/completions", asked)->wait().body);
  const Json whole = ask("/inference/v1/completions", body(more))->json();
  Json rows = Json::array();
  for (const Json& event : events)
    for (const Json& row : event.at("choices").at(0).at("logprobs").at("content")) rows.push_back(row);
  EXPECT_EQ(rows, whole.at("choices").at(0).at("logprobs").at("content"));
  const Json& last = events.back();
  EXPECT_EQ(last.at("choices").at(0).at("raw_output").at("completion_token_ids"), Json(all.tokens));
  EXPECT_EQ(last.at("usage"), whole.at("usage"));
  EXPECT_EQ(last.at("perf_metrics").at("prompt-tokens"), "3");
  // With a prompt's rows, which are known at the end, all of it comes then, in the same form.
  asked["echo"] = true;
  const std::vector<Json> echoed = stream_parts(ask("/inference/v1/completions", asked)->wait().body);
  ASSERT_EQ(echoed.size(), 1u);
  EXPECT_EQ(echoed[0].at("choices").at(0).at("logprobs").at("content").size(), 43u);
  EXPECT_EQ(echoed[0].at("choices").at(0).at("raw_output").at("completion_token_ids").size(), 43u);
}

TEST_F(ThreeWires, WhoLeavesAStreamEndsIt) {
  for (const std::string path : {"/v1/completions", "/inference/v1/completions"}) {
    const ServiceStatistics& statistics = bench_.generation->statistics();
    const std::uint64_t generated = statistics.generated_tokens, cancelled = statistics.cancelled;
    ask<Leaver>(path, body({{"max_tokens", 100}, {"stream", true}}))->wait();
    counted();
    EXPECT_EQ(statistics.cancelled - cancelled, 1u) << path;
    EXPECT_LE(statistics.generated_tokens - generated, 3u) << path;
    EXPECT_EQ(bench_.generation->bounds().open(), 0) << path;
  }
}

// Tokens of prompts and answers, up to the stop string, whole and streamed; and the device's time, of people or of rollouts.
TEST_F(ThreeWires, AreChargedAlike) {
  const std::vector<std::int32_t> free = openai(Json::object()).tokens;
  const auto letters = std::find_if(free.begin() + 5, free.end(), [](std::int32_t id) { return id < 24; });
  ASSERT_NE(letters, free.end());
  const std::string end = bytes_of({*letters});
  EXPECT_TRUE(has_seconds("live") && !has_seconds("rollouts"));
  counted();
  const auto tokens = static_cast<std::int64_t>(openai({{"stop", end}}).tokens.size());
  ASSERT_LE(tokens, letters - free.begin() + 1);
  const std::map<std::string, std::int64_t> all{{"me", 3 + tokens}};
  EXPECT_EQ(counted(), all);
  streamed("/v1/completions", {{"stop", end}});
  EXPECT_EQ(counted(), all);
  fireworks({{"stop", end}});
  EXPECT_TRUE(has_seconds("rollouts"));
  EXPECT_EQ(counted(), all);
  streamed("/inference/v1/completions", {{"stop", end}});
  EXPECT_EQ(counted(), all);
  SamplingRequest wanted = sample_of();
  wanted.stop_texts = {end};
  sample(wanted);
  EXPECT_EQ(counted(), all);
  wanted.num_samples = 2;
  sample(wanted);
  EXPECT_GT(counted().at("me"), 6 + tokens);  // a prompt a sample
}

TEST_F(ThreeWires, ErrorsCallAFieldByItsWiresName) {
  const std::string openai = "/v1/completions", fireworks = "/inference/v1/completions";
  for (const std::string& path : {openai, fireworks}) {
    EXPECT_TRUE(fault(path, {{"stop_token_ids", {3, 99}}}).starts_with("\"stop_token_ids\" stop_token_ids[1] is 99"))
        << fault(path, {{"stop_token_ids", {3, 99}}});
    EXPECT_TRUE(fault(path, {{"prompt", {{1, 99}}}}).starts_with("\"prompt[0]\" prompt[0][1] is 99")) << fault(path, {{"prompt", {{1, 99}}}});
  }
  EXPECT_TRUE(fault(openai, {{"max_tokens", 1000}}).starts_with("\"max_tokens\" max_tokens is 1000 behind"));
  EXPECT_TRUE(fault(fireworks, {{"max_tokens", nullptr}, {"max_completion_tokens", 1000}, {"context_length_exceeded_behavior", "error"}})
                  .starts_with("\"max_completion_tokens\" max_completion_tokens is 1000 behind"));
  const auto said = [&](auto&& change) {
    SamplingRequest wanted = sample_of();
    change(wanted);
    return sample(wanted).message;
  };
  EXPECT_TRUE(said([](SamplingRequest& w) { w.stop_tokens = {3, 99}; }).starts_with("sampling_params.stop[1] is 99"));
  EXPECT_TRUE(said([](SamplingRequest& w) { w.temperature = 200; }).starts_with("sampling_params.temperature is 200"));
  EXPECT_TRUE(said([](SamplingRequest& w) { w.stop_texts = {"a", ""}; }).starts_with("sampling_params.stop has a text of 0 bytes"));
  EXPECT_TRUE(said([](SamplingRequest& w) { w.num_samples = 0; }).starts_with("num_samples is 0"));
  EXPECT_TRUE(said([](SamplingRequest& w) { w.max_tokens = 0; }).starts_with("sampling_params.max_tokens is 0"));
  EXPECT_TRUE(said([](SamplingRequest& w) { w.stop_texts = std::vector<std::string>(65, "a"); }).starts_with("sampling_params.stop has 65 texts"));
  EXPECT_TRUE(said([](SamplingRequest& w) { w.stop_tokens = std::vector<std::int32_t>(65, 1); }).starts_with("sampling_params.stop has 65 token ids"));
  EXPECT_TRUE(said([](SamplingRequest& w) { w.prompt = std::vector<std::int32_t>(128, 1); }).starts_with("prompt makes 128 tokens"));
}

}  // namespace
}  // namespace lockstep
