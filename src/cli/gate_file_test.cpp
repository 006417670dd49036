#include "cli/gate_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/options.h"

namespace lockstep {
namespace {

class GateFile : public testing::Test {
 protected:
  GateFile() { std::filesystem::create_directories(folder_); }
  ~GateFile() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  std::string fault(const std::string& toml) {
    try {
      gate_of_file(write("gate.toml", toml));
    } catch (const Error& e) {
      return e.message();
    }
    return "nothing was refused";
  }
  const std::filesystem::path folder_ = std::filesystem::temp_directory_path() / fmt::format("lockstep-gate-file-{}", getpid());
};

TEST_F(GateFile, FilesStandBesideIt) {
  write("questions.jsonl", "{\"prompt\":\"a\",\"answer\":\"b\"}\n\n{\"prompt\":\"c\",\"answer\":\"d\"}");
  write("texts.jsonl", "{\"text\":\"x\"}\r\n");
  const auto gate = gate_of_file(write("gate.toml",
                                       "questions = \"questions.jsonl\"\naccuracy_drop = 0.02\naccuracy-floor = 0.5\ntexts = \"texts.jsonl\"\n"
                                       "logprob_drop = 0.01\nkl_limit = 0.25\nspeed_drop = 0.5\ndigests = false\ncompany = 2\n"));
  EXPECT_EQ(gate, nlohmann::ordered_json::parse(R"({"questions":[{"prompt":"a","answer":"b"},{"prompt":"c","answer":"d"}],"problems":200,"max_tokens":64,
    "accuracy_drop":0.02,"accuracy_floor":0.5,"texts":["x"],"logprob_drop":0.01,"kl_limit":0.25,"speed_drop":0.5,"digests":false,"company":2})"));
}

TEST_F(GateFile, WhatIsWrongIsOneSentence) {
  write("no-question.jsonl", "{\"prompt\":\"a\",\"answer\":\"b\"}\n{\"prompt\":\"a\"}\n");
  write("deep.jsonl", std::string(100, '[') + std::string(100, ']'));
  write("empty.jsonl", "\n");
  EXPECT_NE(fault("problem = 5").find("did you mean"), std::string::npos) << fault("problem = 5");
  EXPECT_NE(fault("accuracy_drop = 2").find("0 to 1"), std::string::npos);
  EXPECT_NE(fault("kl_limit = -1").find("kl_limit is '-1'"), std::string::npos) << fault("kl_limit = -1");
  EXPECT_NE(fault("speed_drop = 2").find("0 to 1"), std::string::npos);
  EXPECT_NE(fault("questions = \"nowhere.jsonl\"").find("nowhere.jsonl"), std::string::npos);
  EXPECT_NE(fault("questions = \"no-question.jsonl\"").find("line 2 is no object of the texts prompt, answer"), std::string::npos);
  EXPECT_NE(fault("texts = \"deep.jsonl\"").find("line 1 is no object"), std::string::npos);
  EXPECT_NE(fault("texts = \"empty.jsonl\"").find("has no line"), std::string::npos);
  EXPECT_NE(fault("questions = [").find("gate.toml"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
