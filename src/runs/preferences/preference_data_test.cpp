// Pairs whose answers are lists of messages, with tool calls and further turns, in the template of models/agent-glm: their tokens and weights are those of
// the same conversations as data for fine-tuning, and only what the assistant wrote in the answer has a weight.
#include "runs/preferences/preference_data.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;
using LineJson = nlohmann::ordered_json;

const fs::path kModel = fs::path(LOCKSTEP_SOURCE_DIR) / "models/agent-glm";

class PreferenceData : public testing::Test {
 protected:
  PreferenceData() { fs::create_directories(root_); }
  ~PreferenceData() override { fs::remove_all(root_); }

  static LineJson says(const char* role, const std::string& text) { return {{"role", role}, {"content", text}}; }
  static LineJson call(const std::string& id, const std::string& text) {
    const LineJson function = {{"name", "write"}, {"arguments", LineJson{{"text", text}}.dump()}};
    LineJson message = says("assistant", "");
    message["tool_calls"] = LineJson::array({LineJson{{"id", id}, {"type", "function"}, {"function", function}}});
    return message;
  }
  static LineJson result(const std::string& id, const std::string& text) {
    LineJson message = says("tool", text);
    message["tool_call_id"] = id;
    return message;
  }
  static LineJson tools() {
    return LineJson::parse(
        R"([{"type":"function","function":{"name":"write","parameters":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}}])");
  }
  static LineJson joined(const LineJson& first, const LineJson& rest) {
    LineJson all = first;
    for (const LineJson& message : rest) all.push_back(message);
    return all;
  }

  // As the server reads messages: to a template the arguments of calls are objects.
  static ChatData made_reader(const std::shared_ptr<const Tokenizer>& tokenizer) {
    const auto messages = [](LineJson given, const std::string&) {
      for (LineJson& message : given)
        if (message.contains("tool_calls"))
          for (LineJson& one : message["tool_calls"]) one["function"]["arguments"] = LineJson::parse(one["function"]["arguments"].get<std::string>());
      return given;
    };
    const auto same = [](const LineJson& given, const std::string&) { return given; };
    return open_chat_data(kModel, tokenizer, "", "", {messages, same});
  }

  PreferenceItem item_of(const LineJson& line) {
    const fs::path path = root_ / "pairs.jsonl";
    write_file_atomic(path, line.dump() + "\n");
    return read_preference_file(path.string(), reader_, true, 448, 2048)[0];
  }
  std::string refusal(const LineJson& line) {
    try {
      item_of(line);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }
  // The answer as data for fine-tuning; of the prompt nothing is trained.
  TrainSequence expected(LineJson prompt, const LineJson& answer) {
    for (LineJson& message : prompt)
      if (message["role"] == "assistant") message.erase("weight"), message["train"] = false;
    return train_sequence(reader_.conversation(joined(prompt, answer), tools(), {}));
  }
  static void expect_equal(const TrainSequence& got, const TrainSequence& want) {
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.targets, want.targets);
    EXPECT_EQ(got.weights, want.weights);
  }
  // The targets that have a weight, as a text.
  std::string weighed(const TrainSequence& sequence) {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < sequence.targets.size(); ++i)
      if (sequence.weights[i] != 0) ids.push_back(sequence.targets[i]);
    return tokenizer_->decode(ids, false);
  }
  static bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

  // A conversation of two turns of the user, to which the answers go on.
  const LineJson prompt_ = LineJson::array({says("user", "count to two"), says("assistant", "one, two"), says("user", "open the door")});
  const LineJson chosen_ =
      LineJson::array({call("a", "7F"), result("a", "behind it is 3"), call("b", "2Q"), result("b", "it stays shut"), says("assistant", "three")});
  const LineJson rejected_ = LineJson::array({call("a", "1X"), result("a", "no key fits"), says("assistant", "four")});
  fs::path root_ = fs::path(testing::TempDir()) / ("lockstep_preference_data_" + std::to_string(::getpid()));
  std::shared_ptr<const Tokenizer> tokenizer_ = std::make_shared<const Tokenizer>(Tokenizer::from_folder(kModel));
  ChatData reader_ = made_reader(tokenizer_);
};

TEST_F(PreferenceData, AnswersOfCallsAndFurtherTurnsAreThoseOfFineTuning) {
  LineJson prompt = prompt_;
  prompt[1]["weight"] = 2;  // it is no part of an answer
  const PreferenceItem item = item_of({{"messages", prompt}, {"chosen", chosen_}, {"rejected", rejected_}, {"tools", tools()}});
  expect_equal(item.chosen, expected(prompt, chosen_));
  expect_equal(item.rejected, expected(prompt, rejected_));
  const std::string good = weighed(item.chosen), bad = weighed(item.rejected);
  for (const char* words : {"7F", "2Q", "three"}) EXPECT_TRUE(has(good, words)) << words << " in " << good;
  for (const char* words : {"1X", "four"}) EXPECT_TRUE(has(bad, words)) << words << " in " << bad;
  for (const char* words : {"count", "one, two", "open", "behind", "shut", "fits", "parameters"}) EXPECT_FALSE(has(good + bad, words)) << words;
  // Each turn has the token that ends it: a result follows a call, the user an answer.
  for (const std::string& text : {good, bad}) {
    EXPECT_TRUE(has(text, "<|observation|>")) << text;
    EXPECT_TRUE(text.ends_with("<|user|>")) << text;
  }
}

TEST_F(PreferenceData, FormsOfOnePairAreOnePair) {
  const PreferenceItem item = item_of({{"messages", prompt_}, {"chosen", chosen_}, {"rejected", rejected_}, {"tools", tools()}});
  const PreferenceItem listed = item_of({{"prompt", prompt_}, {"chosen", chosen_}, {"rejected", rejected_}, {"tools", tools()}});
  const PreferenceItem whole = item_of({{"chosen", joined(prompt_, chosen_)}, {"rejected", joined(prompt_, rejected_)}, {"tools", tools()}});
  for (const PreferenceItem* other : {&listed, &whole}) {
    expect_equal(other->chosen, item.chosen);
    expect_equal(other->rejected, item.rejected);
  }
  const PreferenceItem text = item_of({{"messages", prompt_}, {"chosen", "three"}, {"rejected", "four"}});
  const PreferenceItem list =
      item_of({{"messages", prompt_}, {"chosen", LineJson::array({says("assistant", "three")})}, {"rejected", LineJson::array({says("assistant", "four")})}});
  expect_equal(text.chosen, list.chosen);
  expect_equal(text.rejected, list.rejected);
  EXPECT_NE(text.chosen.tokens, item.chosen.tokens);  // without tools the prompt is another
}

// Of whole conversations, what both begin with is the prompt, though the assistant wrote some of it.
TEST_F(PreferenceData, WhatBothConversationsBeginWithIsNotTrained) {
  const LineJson first = LineJson::array({says("user", "open the door"), call("a", "7F"), result("a", "behind it is 3")});
  const LineJson good = LineJson::array({says("assistant", "three")}),
                 bad = LineJson::array({call("b", "2Q"), result("b", "it stays shut"), says("assistant", "four")});
  const PreferenceItem item = item_of({{"chosen", joined(first, good)}, {"rejected", joined(first, bad)}, {"tools", tools()}});
  expect_equal(item.chosen, expected(first, good));
  expect_equal(item.rejected, expected(first, bad));
  EXPECT_FALSE(has(weighed(item.chosen), "7F")) << weighed(item.chosen);
  EXPECT_FALSE(has(weighed(item.rejected), "7F")) << weighed(item.rejected);
  EXPECT_TRUE(has(weighed(item.rejected), "2Q")) << weighed(item.rejected);
}

TEST_F(PreferenceData, AMessageOfAnAnswerHasItsWeight) {
  LineJson chosen = chosen_;
  chosen[0]["weight"] = 0, chosen[2]["weight"] = 0.5;
  const PreferenceItem item = item_of({{"messages", prompt_}, {"chosen", chosen}, {"rejected", rejected_}, {"tools", tools()}});
  expect_equal(item.chosen, expected(prompt_, chosen));
  EXPECT_FALSE(has(weighed(item.chosen), "7F")) << weighed(item.chosen);
  for (const float weight : {0.5f, 1.0f}) EXPECT_GT(std::count(item.chosen.weights.begin(), item.chosen.weights.end(), weight), 0) << weight;
}

TEST_F(PreferenceData, AnAnswerWithoutTheAssistantIsRefused) {
  const LineJson silent = LineJson::array({says("user", "well?")});
  EXPECT_TRUE(has(refusal({{"messages", prompt_}, {"chosen", silent}, {"rejected", rejected_}, {"tools", tools()}}), "no token that the assistant wrote"));
  EXPECT_TRUE(has(refusal({{"chosen", chosen_}, {"rejected", joined(prompt_, rejected_)}, {"tools", tools()}}), "begin with other messages"));
  LineJson heavy = chosen_;
  heavy[1]["weight"] = 1;  // a tool's
  EXPECT_TRUE(has(refusal({{"messages", prompt_}, {"chosen", heavy}, {"rejected", rejected_}, {"tools", tools()}}), "has a weight"));
}

}  // namespace
}  // namespace lockstep
