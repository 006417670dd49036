#include "serving/generation_defaults.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "serving/loading.h"
#include "serving/served_defaults.h"

namespace lockstep {
namespace {

class GenerationDefaultsTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  GenerationDefaults read(const std::string& text) {
    write_file_atomic(folder_ / "generation_config.json", text);
    return read_generation_defaults(FolderOnDisk(folder_));
  }
  std::string refusal(const std::string& text) {
    try {
      read(text);
      return {};
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::corrupt_file);
      return e.message();
    }
  }
  const std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) / "lockstep-generation-defaults";
};

TEST_F(GenerationDefaultsTest, WithoutAFileNothingIsSaid) {
  const GenerationDefaults defaults = read_generation_defaults(FolderOnDisk(folder_));
  EXPECT_FALSE(defaults.says_sampling());
  EXPECT_TRUE(defaults.end_tokens.empty());
}

// Qwen3's own file.
TEST_F(GenerationDefaultsTest, SaysWhatTheFileSays) {
  const GenerationDefaults d = read(
      R"({"bos_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643], "pad_token_id": 151643,
        "temperature": 0.6, "top_k": 20, "top_p": 0.95, "transformers_version": "4.51.0"})");
  EXPECT_EQ(to_json(d).dump(), R"({"temperature":0.6,"top_p":0.95,"top_k":20,"end_tokens":[151645,151643]})");
  EXPECT_FALSE(d.min_p || d.repetition_penalty);
  EXPECT_EQ(read(R"({"eos_token_id": 2})").end_tokens, std::vector<std::int32_t>{2});
  EXPECT_FALSE(read(R"({"eos_token_id": 2, "temperature": null, "_from_model_config": true})").says_sampling());
  EXPECT_EQ(read(R"({"top_k": -1})").top_k, 0);
  EXPECT_EQ(read(R"({"do_sample": false, "temperature": 0.6})").temperature, 0);
  EXPECT_FLOAT_EQ(read(R"({"presence_penalty": 1.5, "frequency_penalty": -0.5})").frequency_penalty.value(), -0.5f);
  EXPECT_FLOAT_EQ(read(R"({"repetition_penalty": 1.1})").repetition_penalty.value(), 1.1f);
}

TEST_F(GenerationDefaultsTest, WhatNobodyCanSampleWithIsRefusedWithTheWayAround) {
  EXPECT_EQ(refusal(R"({"temperature": -1})"),
            "generation_config.json: 'temperature' is -1, allowed is a number from 0 to 100 (--generation-config none leaves the file out)");
  for (const char* text : {R"({"top_p": 0})", R"({"top_p": "0.9"})", R"({"top_k": 1.5})", R"({"eos_token_id": [1, "a"]})", R"({"eos_token_id": -2})",
                           R"({"do_sample": 1})", R"({"min_p": 2})", R"({"temperature": 1e-7})", R"({"presence_penalty": 3})", "[]"})
    EXPECT_NE(refusal(text).find("--generation-config none"), std::string::npos) << text;
}

// A server whose model brings a template that is not understood has no chat, and says so; one that was told to chat is refused.
TEST_F(GenerationDefaultsTest, AServerGoesWithoutATemplateThatIsNotUnderstood) {
  write_file_atomic(folder_ / "chat_template.jinja", "{% for %}");
  write_file_atomic(folder_ / "generation_config.json", R"({"temperature": 0.5})");
  ServingModel serving{.name = "tiny"};
  testing::internal::CaptureStderr();
  add_served_defaults(serving, folder_, {});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_FALSE(serving.chat_template);
  EXPECT_EQ(serving.defaults.temperature, 0.5f);
  EXPECT_NE(said.find("there is no chat"), std::string::npos) << said;
  EXPECT_NE(said.find("tiny"), std::string::npos) << said;
  EXPECT_THROW(add_served_defaults(serving, folder_, {.message_format = "chatml"}), Error);
  write_file_atomic(folder_ / "chat_template.jinja", "{{ messages[0].content }}");
  ServingModel other{.name = "tiny"};
  add_served_defaults(other, folder_, {.generation_config = "none"});
  EXPECT_TRUE(other.chat_template);
  EXPECT_FALSE(other.defaults.says_sampling());
}

}  // namespace
}  // namespace lockstep
