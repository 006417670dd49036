// The record of what was changed over HTTP: what was written is read again, what is damaged is refused with what to do, and nothing else is believed.
#include "serving/deployment_record.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class DeploymentRecordTest : public testing::Test {
 protected:
  DeploymentRecordTest() : folder_(fs::temp_directory_path() / fmt::format("lockstep-record-{}", getpid())) { fs::remove_all(folder_); }
  ~DeploymentRecordTest() override { fs::remove_all(folder_); }
  static std::string refusal(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& e) {
      return fmt::format("{}: {}", error_code_name(e.code()), e.message());
    }
    return "nothing was refused";
  }
  const fs::path folder_;
};

TEST_F(DeploymentRecordTest, WhatWasChangedIsThereAgain) {
  const std::string id(64, 'a');
  {
    StoredDeployments stored(folder_);
    EXPECT_TRUE(stored.record().made.empty() && stored.record().aliases.empty());
    stored.made({"v8", "store/chat", id});
    stored.made({"v9", "v9", ""});
    stored.alias({"chat", {{"v8", 5}, {"v7", 95}}, {{"v7", 1}}});
    stored.alias({"code", {{"v9", 1}}, {{"v9", 1}, {"v8", 3}}});
    stored.alias_deleted("old");
    stored.deleted("v6");  // of the command line
    stored.deleted("v6");
  }
  {
    StoredDeployments again(folder_);
    const DeploymentRecord record = again.record();
    EXPECT_EQ(record.made, (std::vector<DeploymentRecord::Made>{{"v8", "store/chat", id}, {"v9", "v9", ""}}));
    EXPECT_EQ(record.deleted, std::vector<std::string>{"v6"});
    ASSERT_EQ(record.aliases.size(), 3u);
    EXPECT_EQ(record.aliases.at("chat")->shares, (std::vector<TrafficShare>{{"v8", 5}, {"v7", 95}}));
    EXPECT_EQ(record.aliases.at("chat")->before, (std::vector<TrafficShare>{{"v7", 1}}));
    EXPECT_FALSE(record.aliases.at("old"));
    again.deleted("v8");  // one that was made over HTTP: its name is free, and no rollback leads to who gets it next
  }
  const DeploymentRecord record = StoredDeployments(folder_).record();
  EXPECT_EQ(record.made.size(), 1u);
  EXPECT_EQ(record.deleted, std::vector<std::string>{"v6"});
  EXPECT_TRUE(record.aliases.at("code")->before.empty());
  EXPECT_EQ(record.aliases.at("chat")->before.size(), 1u);
}

TEST_F(DeploymentRecordTest, AnAliasKeepsItsGate) {
  const std::string gate = R"({"questions":[{"prompt":"a","answer":"b"}],"accuracy_drop":0.5})";
  {
    StoredDeployments stored(folder_);
    stored.alias({"chat", {{"v8", 5}}, {}, std::make_shared<const std::string>(gate)});
    stored.alias({"code", {{"v8", 5}}, {}});
    EXPECT_EQ(read_file(stored.file(), 1 << 20).find("gate"), read_file(stored.file(), 1 << 20).rfind("gate"));  // those without one say nothing of it
  }
  const DeploymentRecord record = StoredDeployments(folder_).record();
  EXPECT_EQ(*record.aliases.at("chat")->gate, gate);
  EXPECT_FALSE(record.aliases.at("code")->gate);
}

TEST_F(DeploymentRecordTest, OneProcessHasAFolder) {
  const StoredDeployments stored(folder_);
  EXPECT_EQ(refusal([&] { const StoredDeployments other(folder_); }).substr(0, 18), "resource_exhausted");
  const fs::path theirs = folder_ / "theirs";
  fs::create_directories(theirs);
  std::ofstream(theirs / "notes.txt") << "somebody's";
  EXPECT_EQ(refusal([&] { const StoredDeployments other(theirs); }).substr(0, 14), "already_exists");
  EXPECT_FALSE(fs::exists(theirs / "deployments.json"));
}

TEST_F(DeploymentRecordTest, WhatCannotBeWrittenChangesNothing) {
  StoredDeployments stored(folder_);
  stored.alias_deleted("old");
  fs::remove(stored.file());
  fs::create_directories(stored.file() / "in-the-way");
  EXPECT_NE(refusal([&] { stored.alias_deleted("chat"); }), "nothing was refused");
  EXPECT_EQ(stored.record().aliases.size(), 1u);
  fs::remove_all(stored.file());
  stored.alias_deleted("code");
  EXPECT_EQ(stored.record().aliases.size(), 2u);
}

TEST_F(DeploymentRecordTest, ADamagedFileIsOneErrorThatSaysWhatToDo) {
  fs::path file;
  std::string whole;
  {
    StoredDeployments stored(folder_);
    stored.made({"v8", "v8", ""});
    stored.alias({"chat", {{"v8", 5}}, {}});
    file = stored.file();
    whole = read_file(file, 1 << 20);
  }
  for (std::size_t bytes = 0; bytes + 2 < whole.size(); bytes += 7) {  // cut anywhere but at its end
    write_file_atomic(file, whole.substr(0, bytes));
    const std::string told = refusal([&] { const StoredDeployments other(folder_); });
    EXPECT_NE(told.find("is damaged: "), std::string::npos) << bytes << told;
    EXPECT_NE(told.find("deployments.json"), std::string::npos) << told;
    EXPECT_NE(told.find("or delete it"), std::string::npos) << told;
  }
  fs::remove(file);
  EXPECT_TRUE(StoredDeployments(folder_).record().made.empty());
}

TEST_F(DeploymentRecordTest, OnlyWhatItWritesIsRead) {
  const auto record = [](const std::string& deployments, const std::string& deleted, const std::string& aliases, const std::string& more = {}) {
    return fmt::format(R"({{"version":1,"deployments":{},"deleted":{},"aliases":{}{}}})", deployments, deleted, aliases, more);
  };
  EXPECT_EQ(refusal([&] { parse_deployment_record(record("[]", "[]", "[]")); }), "nothing was refused");
  std::string many = "[";
  for (int i = 0; i < 65; ++i) many += fmt::format(R"({}{{"name":"m{}","source":"m","snapshot":""}})", i > 0 ? "," : "", i);
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  const std::string hex(63, 'a');
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {"", "JSON"},
           {"[]", "it is no object"},
           {"{}", "it has no 'version'"},
           {R"({"version":2,"deployments":[],"deleted":[],"aliases":[]})", "version is 2, allowed is 1"},
           {record("[]", "[]", "[]", R"(,"more":1)"), "it has 5 fields"},
           {record("{}", "[]", "[]"), "deployments is no list"},
           {record(many + "]", "[]", "[]"), "deployments has 65 entries, allowed are 64"},
           {record(R"([{"name":"../x","source":"a","snapshot":""}])", "[]", "[]"), "deployments[0].name is '../x'"},
           {record(R"([{"name":"x","source":"","snapshot":""}])", "[]", "[]"), "deployments[0].source has 0 bytes"},
           {record(R"([{"name":"x","source":")" + std::string(4097, 'a') + R"(","snapshot":""}])", "[]", "[]"), "source has 4097 bytes"},
           {record(R"([{"name":"x","source":7,"snapshot":""}])", "[]", "[]"), "source is no text"},
           {record(R"([{"name":"x","source":"a","snapshot":")" + hex + R"("}])", "[]", "[]"), "no snapshot's id"},
           {record(R"([{"name":"x","source":"a","snapshot":"../)" + hex.substr(2) + R"("}])", "[]", "[]"), "no snapshot's id"},
           {record(R"([{"name":"x","source":"a","snapshot":""},{"name":"x","source":"b","snapshot":""}])", "[]", "[]"), "deployments has 'x' twice"},
           {record("[]", "[1]", "[]"), "deleted[0] is no text"},
           {record("[]", deep, "[]"), "nests deeper"},
           {record("[]", "[]", R"([{"name":"x","deployments":{"a":1},"before":null,"gate":7}])"), "aliases[0].gate is no object"},
           {record("[]", "[]", R"([{"name":"x","deployments":{"a":1},"before":null,"gates":{}}])"), "aliases[0] has 4 fields"},
           {record("[]", "[]", R"([{"name":"c","deployments":{"a":-1},"before":null}])"), "the weight of 'a' is -1"},
           {record("[]", "[]", R"([{"name":"c","deployments":{"a":18446744073709551615},"before":null}])"), "the weight of 'a'"},
           {record("[]", "[]", R"([{"name":"c","deployments":{"a":1.5},"before":null}])"), "no whole number"},
           {record("[]", "[]", R"([{"name":"c","deployments":{},"before":null}])"), "has 0 deployments"},
           {record("[]", "[]", R"([{"name":"c","deployments":{"a/b":1},"before":null}])"), "is 'a/b'"},
           {record("[]", "[]", R"([{"name":"c","deployments":{"a":1},"before":7}])"), "before is no object"},
           {record("[]", "[]", R"([{"name":"c","deployments":null,"before":null},{"name":"c","deployments":null,"before":null}])"), "aliases has 'c' twice"},
       })
    EXPECT_NE(refusal([&, text = text] { parse_deployment_record(text); }).find(words), std::string::npos)
        << text.substr(0, 200) << "\n"
        << refusal([&, text = text] { parse_deployment_record(text); });
}

// Deleted aliases give way to those that are there; the file can always be read again.
TEST_F(DeploymentRecordTest, ItStaysWithinItsLimits) {
  DeploymentRecord record;
  for (std::size_t i = 0; i < TrafficTable::kMostAliases; ++i) record.aliases[fmt::format("gone-{}", i)] = std::nullopt;
  {
    const StoredDeployments made(folder_);
    write_file_atomic(made.file(), deployment_record_text(record));
  }
  StoredDeployments stored(folder_);
  stored.alias({"zz", {{"v8", 1}}, {}});
  EXPECT_EQ(stored.record().aliases.size(), TrafficTable::kMostAliases);
  EXPECT_TRUE(stored.record().aliases.at("zz"));
  EXPECT_EQ(parse_deployment_record(read_file(stored.file(), DeploymentRecord::kMostBytes)).aliases.size(), TrafficTable::kMostAliases);
}

}  // namespace
}  // namespace lockstep
